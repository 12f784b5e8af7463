"""Leak-free rolling-origin backtest: what each method would have said, scored against what came.

At every origin a method sees ``series.until(origin)`` and nothing else; actuals are read only after it has answered.
Origins lie ``every_steps`` apart and the last horizon ends with the data. A method is fitted once, on what lies before
the first origin, as a trained artefact would be (``refit=True`` fits it anew at each origin). The work goes through a
``map`` that the caller chooses, so this file knows neither processes nor clusters.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from forecaster.accuracy import Scores, Tally, mean_scores, seasonal_scales, tally
from forecaster.calendar import NO_CALENDAR, Calendar
from forecaster.errors import InputRefused
from forecaster.forecast import Forecast, NoForecast
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.series import ArrivalSeries

HOURS_A_WEEK = 168

_T = TypeVar("_T")
_R = TypeVar("_R")


class Mapper(Protocol):
    """Anything that maps like the builtin: in order, in this process or on many."""

    def __call__(self, function: Callable[[_T], _R], tasks: Iterable[_T], /) -> Iterable[_R]:
        """Apply ``function`` to each task."""
        ...


@dataclass(frozen=True, slots=True)
class BacktestPlan:
    """Which origins, how far, and how.

    Parameters
    ----------
    horizon_steps
        Steps forecast at each origin.
    origins
        Number of origins.
    every_steps
        Steps between origins.
    levels
        Quantile levels; 0.5 is added if it is missing, because the median is the point forecast.
    lead_steps
        Leads that get figures of their own: lead ``n`` is the ``n``-th step, which ends ``n`` steps after the origin.
    refit
        Fit at each origin instead of once before the first.
    calendar
        Holidays and events that are over are left out of what a method sees; events ahead multiply what it says.

    Raises
    ------
    ValueError
        If a number is not positive, or a lead lies beyond the horizon.
    """

    horizon_steps: int
    origins: int
    every_steps: int
    levels: tuple[float, ...] = DEFAULT_LEVELS
    lead_steps: tuple[int, ...] = ()
    refit: bool = False
    calendar: Calendar = NO_CALENDAR

    def __post_init__(self) -> None:
        for name in ("horizon_steps", "origins", "every_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if any(not 1 <= lead <= self.horizon_steps for lead in self.lead_steps):
            raise ValueError(f"leads {self.lead_steps} must lie within the horizon of {self.horizon_steps} steps")
        object.__setattr__(self, "levels", tuple(sorted({0.5, *self.levels})))

    def origin_indices(self, series: ArrivalSeries) -> tuple[int, ...]:
        """Return the step numbers of the origins, oldest first.

        Raises
        ------
        InputRefused
            If the first origin would have no history before it.

        Examples
        --------
        >>> import numpy as np
        >>> from forecaster.timegrid import TimeGrid
        >>> s = ArrivalSeries("t", TimeGrid(3600), 100, (0,), np.ones((1, 96)), np.ones((1, 96), dtype=bool))
        >>> BacktestPlan(24, 3, 24).origin_indices(s)
        (124, 148, 172)
        """
        last = series.end_index - self.horizon_steps
        found = tuple(last - k * self.every_steps for k in reversed(range(self.origins)))
        if found[0] <= series.first_index:
            need = self.horizon_steps + (self.origins - 1) * self.every_steps + 1
            raise InputRefused(
                f"{series.topic}: {self.origins} origins every {self.every_steps} steps with a horizon of "
                f"{self.horizon_steps} need at least {need} steps, there are {series.steps}; use fewer origins, "
                f"a shorter horizon or more history"
            )
        return found


@dataclass(frozen=True, slots=True)
class MethodReport:
    """What a backtest found about one method.

    Parameters
    ----------
    name
        Name it was asked by.
    mean
        Means over series.
    series
        Figures of each series (row of the input).
    leads
        Means over series at the asked leads, by number of steps.
    by_lead, by_hour
        Figures pooled over series at each step ahead, and at each local hour of the week (Monday 00:00 first).
    seconds_per_series
        Wall seconds of fitting and forecasting, per series and origin.
    answered
        Share of origins at which it gave a forecast.
    rungs
        How often each rung of the ladder answered.
    reasons
        Distinct reasons given with forecasts or instead of them, most frequent first.
    last
        The forecast from the last origin, for plots.
    """

    name: str
    mean: Scores
    series: tuple[Scores, ...]
    leads: dict[int, Scores]
    by_lead: tuple[Scores, ...]
    by_hour: tuple[Scores, ...]
    seconds_per_series: float
    answered: float
    rungs: dict[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    last: Forecast | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BacktestReport:
    """Every method over the same origins of the same series."""

    topic: str
    names: tuple[str, ...]
    step_s: int
    plan: BacktestPlan
    origins: tuple[int, ...]
    methods: dict[str, MethodReport]


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    name: str
    method: Method
    series: ArrivalSeries
    origin: int
    plan: BacktestPlan
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    name: str
    seconds: float
    rung: str
    reasons: tuple[str, ...]
    tallies: tuple[Tally, ...] = ()
    """By series; by (series, asked lead); by step ahead; by hour of the week. Empty if there was no forecast."""
    forecast: Forecast | None = None


def backtest(
    series: ArrivalSeries,
    methods: Mapping[str, Method],
    plan: BacktestPlan,
    *,
    map: Mapper = map,
    clock: Callable[[], float] = float,
    fitted: frozenset[str] = frozenset(),
    on_progress: Callable[[int, int], None] | None = None,
) -> BacktestReport:
    """Score methods over rolling origins.

    Parameters
    ----------
    series
        Arrivals, one row a series; gaps are neither seen by methods as values nor scored.
    methods
        Methods by name; they are copied, never changed.
    plan
        Which origins, how far, at which levels.
    map
        Runs the tasks, one per method (fit) and one per method and origin; results must come in order.
    clock
        Seconds, for ``seconds_per_series``; the default measures nothing and reports 0.
    fitted
        Names whose method is already fitted (a loaded artefact): they are used as they are. The caller answers for it
        that they have not seen the test period.
    on_progress
        Called with (done, total) forecasts.

    Raises
    ------
    InputRefused
        If there is too little history for the plan.
    """
    origins = plan.origin_indices(series)
    to_fit = [
        _Task(name, method, series, origins[0], plan, clock)
        for name, method in methods.items()
        if name not in fitted and not plan.refit
    ]
    fit_seconds = dict.fromkeys(methods, 0.0)
    ready = dict(methods)
    for task, (method, seconds) in zip(to_fit, map(_fit, to_fit), strict=True):
        ready[task.name], fit_seconds[task.name] = method, seconds
    refit = frozenset(methods) - fitted if plan.refit else frozenset()
    tasks = [_Task(name, ready[name], series, origin, plan, clock) for name in methods for origin in origins]
    sums = dict.fromkeys(methods, _no_points(series, plan))
    answers: dict[str, list[_Answer]] = {name: [] for name in methods}
    for done, answer in enumerate(map(_Runner(refit), tasks), start=1):
        if answer.tallies:
            sums[answer.name] = tuple(a + b for a, b in zip(sums[answer.name], answer.tallies, strict=True))
        answers[answer.name].append(replace(answer, tallies=()))
        if on_progress is not None:
            on_progress(done, len(tasks))
    reports = {name: _report(name, answers[name], sums[name], fit_seconds[name], plan) for name in methods}
    names = series.names or tuple(str(p) for p in series.partitions)
    return BacktestReport(series.topic, names, series.grid.step_s, plan, origins, reports)


def _fit(task: _Task) -> tuple[Method, float]:
    """Fit a copy on what lies before the task's origin."""
    began = task.clock()
    history = task.series.between(task.series.first_index, task.origin)
    method = copy.deepcopy(task.method).fit([task.plan.calendar.usual(history)])
    return method, task.clock() - began


@dataclass(frozen=True, slots=True)
class _Runner:
    """Forecasts and scores one origin; an object, not a closure, so that it travels to other processes."""

    refit: frozenset[str]

    def __call__(self, task: _Task) -> _Answer:
        series, plan = task.series, task.plan
        began = task.clock()
        history = series.between(series.first_index, task.origin)
        method = _fit(task)[0] if task.name in self.refit else task.method
        result = plan.calendar.forecast(method, history, plan.horizon_steps, plan.levels)
        seconds = task.clock() - began
        if isinstance(result, NoForecast):
            return _Answer(task.name, seconds, "none", (result.reason,))
        ahead = series.between(task.origin, task.origin + plan.horizon_steps)
        scale = seasonal_scales(history.counts, history.known, series.grid.steps_per_day, [history.steps])[:, 0]
        quantiles, said = _aligned(result, series)
        points = tally(ahead.rates(), ahead.known & said, quantiles, plan.levels, scale / series.grid.step_s)
        grouped = _grouped(points, series, task.origin, plan)
        last = task.origin + plan.horizon_steps == series.end_index
        return _Answer(task.name, seconds, str(result.rung), result.reasons, grouped, result if last else None)


def _aligned(forecast: Forecast, series: ArrivalSeries) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return quantiles row by row of the series, and which rows were forecast: a method may leave partitions out."""
    if forecast.partitions == series.partitions:
        return forecast.rates, np.ones((len(series.partitions), 1), dtype=np.bool_)
    row_of = {p: i for i, p in enumerate(series.partitions)}
    rows = [row_of[p] for p in forecast.partitions]
    rates = np.zeros((len(series.partitions), *forecast.rates.shape[1:]))
    said = np.zeros((len(series.partitions), 1), dtype=np.bool_)
    rates[rows], said[rows] = forecast.rates, True
    return rates, said


def _grouped(points: Tally, series: ArrivalSeries, origin: int, plan: BacktestPlan) -> tuple[Tally, ...]:
    """Add the points of one forecast up by series, by (series, asked lead), by step ahead and by hour of the week."""
    rows, steps, leads = len(series.partitions), plan.horizon_steps, len(plan.lead_steps)
    row, step = np.repeat(np.arange(rows), steps), np.tile(np.arange(steps), rows)
    hour = np.tile(series.grid.week_slots(origin, steps) * series.grid.step_s // 3600, rows)
    lead = np.full(rows * steps, rows * leads)  # what lies outside the asked leads goes to one spare group at the end
    for k, at in enumerate(plan.lead_steps):
        lead[step == at - 1] = np.arange(rows) * leads + k
    return (
        points.regrouped(row, rows),
        points.regrouped(lead, rows * leads + 1),
        points.regrouped(step, steps),
        points.regrouped(hour, HOURS_A_WEEK),
    )


def _no_points(series: ArrivalSeries, plan: BacktestPlan) -> tuple[Tally, ...]:
    rows, levels = len(series.partitions), len(plan.levels)
    nothing = np.zeros((rows, plan.horizon_steps))
    points = tally(nothing, nothing > 0, np.zeros((*nothing.shape, levels)), plan.levels, np.ones(rows))
    return _grouped(points, series, 0, plan)


def _report(
    name: str, answers: Sequence[_Answer], sums: tuple[Tally, ...], fit_s: float, plan: BacktestPlan
) -> MethodReport:
    by_series, by_lead_series, by_lead, by_hour = (t.scores() for t in sums)
    leads = len(plan.lead_steps)
    reasons = Counter(reason for a in answers for reason in a.reasons)
    return MethodReport(
        name=name,
        mean=mean_scores(by_series),
        series=by_series,
        leads={lead: mean_scores(by_lead_series[k:-1:leads]) for k, lead in enumerate(plan.lead_steps)},
        by_lead=by_lead,
        by_hour=by_hour,
        seconds_per_series=(fit_s + sum(a.seconds for a in answers)) / (len(by_series) * len(answers)),
        answered=sum(a.rung != "none" for a in answers) / len(answers),
        rungs=dict(Counter(a.rung for a in answers)),
        reasons=tuple(reason for reason, _ in reasons.most_common()),
        last=answers[-1].forecast,
    )
