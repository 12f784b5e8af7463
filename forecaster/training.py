"""Train a stream's own method, judge it against what serves now, and say whether it should take over.

A challenger is promoted only when it is better on a rolling backtest: better than the champion, and no worse than
repeating yesterday or last week. Neither may have seen what it is judged on: the challenger's figures come from a copy
fitted before the first origin, and a champion that was trained on later data is judged by a copy of it fitted there
too. What is kept afterwards is fitted on everything.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from forecaster.accuracy import Scores
from forecaster.backtest import BacktestPlan, BacktestReport, Mapper, backtest
from forecaster.calendar import NO_CALENDAR, Calendar
from forecaster.errors import InputRefused
from forecaster.extra_seasons import ExtraSeasons
from forecaster.methods.base import Method
from forecaster.methods.catalogue import make_method
from forecaster.periods import Period, found_periods
from forecaster.series import ArrivalSeries

OWN_METHOD = "own"
"""What ``auto`` trains: the best of the catalogue that learns from a stream's own data."""

NAIVES = ("yesterday", "last_week")
"""What a model must not be worse than."""

TEST_DAYS = 7
"""Daily origins of the judgement."""

MIN_DAYS = 3
"""Shorter histories are not trained on: three days are within 15 % of what two weeks give, less is not."""


@dataclass(frozen=True, slots=True)
class TrainingPolicy:
    """How to judge and when to promote.

    Raises
    ------
    ValueError
        If a field is outside its bound.
    """

    method: str = "auto"
    """Catalogue name of the method to fit; ``auto`` takes the best that this release trains."""

    test_days: int = TEST_DAYS
    """Daily origins held back for the judgement, at least 1; fewer where the history is short."""

    horizon: timedelta = timedelta(days=1)
    """How far each of them is judged."""

    margin: float = 0.0
    """By which share a challenger must be better than the champion, 0 … 0.5; 0 takes any improvement."""

    seed: int = 0
    """Seed of everything random in the fit."""

    calendar: Calendar = NO_CALENDAR
    """Days that are not like others: neither learned from nor, once they are over, taken as a pattern."""

    def __post_init__(self) -> None:
        if self.test_days < 1:
            raise ValueError(f"test_days={self.test_days} must be at least 1")
        if self.horizon <= timedelta(0):
            raise ValueError(f"horizon={self.horizon} must be longer than zero")
        if not 0 <= self.margin <= 0.5:
            raise ValueError(f"margin={self.margin} must lie within 0 … 0.5")

    def recipe(self) -> dict[str, Any]:
        """Return what a card keeps of it: with the same data it makes the same method, by the same judgement.

        Examples
        --------
        >>> TrainingPolicy.from_recipe(TrainingPolicy(seed=3).recipe()) == TrainingPolicy(seed=3, method="own")
        True
        """
        return {
            "method": OWN_METHOD if self.method == "auto" else self.method,
            "test_days": self.test_days,
            "horizon_s": self.horizon.total_seconds(),
            "margin": self.margin,
            "seed": self.seed,
            **self.calendar.to_dict(),
        }

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> TrainingPolicy:
        """Return the policy that :meth:`recipe` wrote."""
        return cls(
            recipe["method"],
            recipe["test_days"],
            timedelta(seconds=recipe["horizon_s"]),
            recipe["margin"],
            recipe["seed"],
            Calendar.from_dict(recipe),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What a training gave.

    Parameters
    ----------
    method
        The challenger, fitted on all data.
    report
        The backtest: ``challenger``, the naive methods, and ``champion`` if there is one.
    promote, reason
        Whether it should serve, and why in one line.
    periods
        Periods that the data show (`forecaster.periods`).
    """

    method: Method
    report: BacktestReport
    promote: bool
    reason: str
    periods: tuple[Period, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Champion:
    """What serves now, and the end of the data it was fitted on."""

    method: Method
    trained_to: datetime


def train(
    series: ArrivalSeries,
    policy: TrainingPolicy,
    champion: Champion | None = None,
    *,
    map: Mapper = map,
    clock: Callable[[], float] = float,
    on_progress: Callable[[int, int], None] | None = None,
) -> Training:
    """Fit a challenger and judge it.

    Parameters
    ----------
    series
        All that is known.
    policy
        How to judge.
    champion
        What serves now; None if nothing does.
    map, clock, on_progress
        As in :func:`forecaster.backtest.backtest`.

    Raises
    ------
    InputRefused
        If there are less than three days of data, or none of the test period is known.
    """
    plan = judgement(series, policy)
    challenger = trainable(policy.method, policy.seed)
    methods: dict[str, Method] = {"challenger": challenger, **{name: make_method(name) for name in NAIVES}}
    unseen = frozenset[str]()
    if champion is not None:
        methods["champion"] = champion.method
        if series.grid.index_of(champion.trained_to) <= plan.origin_indices(series)[0]:
            unseen = frozenset({"champion"})
    report = backtest(series, methods, plan, map=map, clock=clock, fitted=unseen, on_progress=on_progress)
    promote, reason = verdict(report, policy.margin)
    method = copy.deepcopy(challenger).fit([policy.calendar.usual(series)])
    return Training(method, report, promote, reason, found_periods(series))


def trainable(name: str, seed: int) -> Method:
    """Return a fresh method to be trained, with its seeds (and those of its parts) set where it has any.

    What ``auto`` trains also learns periods beside day and week where the data show one.

    Examples
    --------
    >>> trainable("boosting", 7).seed
    7
    """
    method: Method = make_method(OWN_METHOD if name == "auto" else name)
    if name in ("auto", OWN_METHOD):
        method = ExtraSeasons(method)
    parameters: dict[str, Any] = getattr(method, "get_params", dict)()
    seeds = {k: seed for k in parameters if k.rpartition("__")[2] == "seed"}
    if seeds:
        method.set_params(**seeds)  # type: ignore[attr-defined]
    return method


def judgement(series: ArrivalSeries, policy: TrainingPolicy) -> BacktestPlan:
    """Return the backtest that a history of that length allows: at most a third of it is held back.

    Raises
    ------
    InputRefused
        If there are less than three days.
    """
    day = series.grid.steps_per_day
    known = np.flatnonzero(series.known.any(axis=0))
    days = 0.0 if known.size == 0 else (series.steps - int(known[0])) / day
    if days < MIN_DAYS:
        raise InputRefused(
            f"{series.topic}: {days:.1f} days of data, training needs {MIN_DAYS}; until then the shipped zero-shot "
            f"model and the last values forecast"
        )
    horizon = -(-policy.horizon // series.grid.step)
    horizon = min(horizon, int(days * day / 3))
    return BacktestPlan(horizon, max(1, min(policy.test_days, int(days / 3))), day, calendar=policy.calendar)


def verdict(report: BacktestReport, margin: float) -> tuple[bool, str]:
    """Say whether the challenger should serve, and why.

    Judged is the quantile score: the mean pinball loss over all levels, the median among them, in units of the MASE
    scale. Plans follow the upper quantiles, and a median alone cannot tell whether those mean what they say. Where no
    scale exists (less than a day before the test, or a constant one), WAPE decides.
    """
    ours = report.methods["challenger"]
    own = _figure(ours.mean)
    if own is None:
        why = ours.reasons[0] if ours.reasons else "nothing is known of the test period"
        return False, f"not judged: {why}"
    name, figure = own
    for naive in NAIVES:
        rival = _figure(report.methods[naive].mean)
        if rival is not None and report.methods[naive].answered >= ours.answered and figure > rival[1]:
            return False, f"{name} {figure:.3f} is worse than repeating {naive.replace('_', ' ')} ({rival[1]:.3f})"
    if "champion" not in report.methods:
        return True, f"first model of this stream: {name} {figure:.3f}, no worse than yesterday or last week"
    rival = _figure(report.methods["champion"].mean)
    if rival is None:
        return True, f"{name} {figure:.3f}; the champion gave no forecast in the test period"
    if figure < rival[1] * (1 - margin):
        return True, f"{name} {figure:.3f} is better than the champion's {rival[1]:.3f}"
    return False, f"{name} {figure:.3f} is not better than the champion's {rival[1]:.3f}"


def _figure(scores: Scores) -> tuple[str, float] | None:
    losses = [v for v in scores.scaled_pinball.values() if v is not None]
    if losses:
        return "quantile score", sum(losses) / len(losses)
    return None if scores.wape is None else ("WAPE", scores.wape)


def data_digest(series: ArrivalSeries) -> str:
    """Return a SHA-256 over grid, range, counts and gaps: two trainings on the same data have the same."""
    digest = hashlib.sha256()
    digest.update(f"{series.grid.step_s} {series.grid.timezone} {series.first_index} {series.partitions}".encode())
    for counts, known in zip(series.counts, series.known, strict=True):
        digest.update(np.where(known, counts, 0.0).tobytes())
    digest.update(np.packbits(series.known).tobytes())
    return digest.hexdigest()


def score_document(scores: Scores) -> dict[str, Any]:
    """Return figures as plain JSON values, levels as text.

    Examples
    --------
    >>> score_document(Scores(0.5, None, 3.0, {0.9: 1.0}, {0.9: None}, {0.9: 0.88}, 7))["coverage"]
    {'0.9': 0.88}
    """
    return {
        name: {f"{q:g}": v for q, v in value.items()} if isinstance(value, dict) else value
        for name, value in asdict(scores).items()
    }
