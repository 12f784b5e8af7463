"""Wiring of a simulation: a trace becomes arrivals, forecasts are made in batch, knobs are learned, policies run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import assigned_curve, pool_curve
from balancer.decision import Frame
from balancer.knobs import Knobs
from balancer.learning import Past, learn_knobs
from balancer.rivals.tuning import Wish
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.batch import Setting
from balancer.simulator.compare import RIVALS, against_limit, limit_hours, run_rival
from balancer.simulator.forecasts import BatchForecaster, ForecastBatch
from balancer.simulator.outcome import Outcome
from balancer.simulator.ticking import describe, run_headway
from balancer.simulator.world import World
from forecaster.methods.lead_ridge import DAY, WEEK, LeadRidge
from forecaster.series import ArrivalSeries
from headway.errors import HeadwayError

POLICIES = ("headway", *RIVALS)
LEARNING_ROWS = 3
"""Weeks that knobs are learned on."""
LEARNING_DAYS = 7
"""Days that they are learned on where there are no such weeks."""


def arrivals_of(series: ArrivalSeries, partitioned: bool) -> tuple[ArrivalTrace, int]:
    """Return a series as arrivals of a simulation, and how many missing values were bridged in a straight line.

    Raises
    ------
    HeadwayError
        If a partition has no value at all.
    """
    counts = series.counts.copy()
    steps = np.arange(series.steps)
    gaps = 0
    for row, known in enumerate(series.known):
        if known.all():
            continue
        if not known.any():
            raise HeadwayError(f"{series.topic}: partition {series.partitions[row]} has no value at all")
        gaps += int((~known).sum())
        counts[row] = np.interp(steps, steps[known], counts[row, known])
    return ArrivalTrace(series.start, series.grid.step_s, counts, partitioned), gaps


def ridge_forecaster(minutes: NDArray[np.float64]) -> BatchForecaster:
    """Return a batch forecaster over the minutes of a topic; each call fits on what lies before its first minute."""

    def forecast(first: int, end: int) -> ForecastBatch | None:
        if first < LeadRidge.least_minutes():
            return None
        model = LeadRidge().fit(minutes, first)
        return ForecastBatch(first, 300, model.levels, model.quantiles(minutes, np.arange(first, end)))

    return forecast


def frame_of(world: World) -> Frame:
    """Return what decisions in a world share; with partitions, members sustain what the busiest one lets them."""
    limit = world.limit_replicas
    if world.trace.partitioned:
        curve = assigned_curve(world.capacity, world.shares, limit)
    else:
        curve = pool_curve(world.capacity, limit)
    return Frame(curve, world.start_s, world.slo_s, min(world.min_replicas, limit), limit)


def past_of(world: World, forecaster: BatchForecaster) -> Past | None:
    """Return the history to learn on: three weeks where there are, else up to seven days; None with less than one."""
    end, minutes = world.first_minute, world.minutes
    length, most = (WEEK, LEARNING_ROWS) if end >= 2 * WEEK else (DAY, LEARNING_DAYS)
    rows = int(min(most, (end - LeadRidge.least_minutes()) // length))
    if rows < 1:
        rows, length = int(min(LEARNING_DAYS, (end - 4) // DAY)), DAY
    if rows < 1:
        return None
    begins = [end - (k + 1) * length for k in range(rows)]
    batches = [forecaster(b, b + length) for b in begins]
    cells = None
    levels: tuple[float, ...] = (0.5,)
    made = [b for b in batches if b is not None]
    if len(made) == rows:
        cells, levels = np.array([b.cells() for b in made]), made[0].levels
    return Past(
        np.array([minutes[b : b + length] for b in begins]),
        np.array([minutes[b - 4 : b] for b in begins]),
        cells,
        levels,
    )


def setting_of(world: World, past: Past) -> Setting:
    """Return a world for batch runs over its own history."""
    curve = frame_of(world).curve if world.trace.partitioned else None
    return replace(world.setting(past.minutes, past.before[:, -1]), curve=curve)


def learned(world: World, forecaster: BatchForecaster, late_target: float, budget: int) -> Knobs:
    """Return the knobs learned on what lies before the run; the safe defaults with less than a day of history."""
    past = past_of(world, forecaster)
    if past is None:
        return Knobs()
    knobs, _ = learn_knobs(past, setting_of(world, past), frame_of(world), late_target=late_target, budget=budget)
    return knobs


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """What ``headway simulate`` answers."""

    world: World
    outcomes: dict[str, Outcome]
    knobs: Knobs | None
    limit_hours: float
    seconds: dict[str, float]

    def document(self, price: float | None = None) -> dict[str, Any]:
        """Return the JSON document; with a price of a member-hour, what each policy cost."""
        told = {name: outcome.figures() for name, outcome in self.outcomes.items()}
        if price is not None:
            told = {name: {**figures, "cost": price * figures["hours"]} for name, figures in told.items()}
        return {
            "from": self.world.start,
            "to": self.world.end,
            "capacity": self.world.capacity,
            "limit_hours": self.limit_hours,
            "knobs": None if self.knobs is None else self.knobs.to_json(),
            "seconds": self.seconds,
            "policies": told,
        }


def simulate(
    world: World,
    policies: Sequence[str],
    *,
    clock: Callable[[], float],
    say: Callable[[str], None] = lambda text: None,
    late_target: float = 1e-4,
    budget: int = 24,
    forecaster: BatchForecaster | None = None,
    beside: Executor | None = None,
) -> Simulation:
    """Run policies in one world; Headway by its real control tick, with knobs learned before the run.

    Parameters
    ----------
    world
        Arrivals, members, time.
    policies
        Of :data:`POLICIES`.
    clock
        Seconds, for the time that each part took.
    say
        Told of progress.
    late_target, budget
        Share of records that may be late; changes per day.
    forecaster
        Batch forecasts; a ridge per lead by default.
    beside
        Plays the rivals while Headway is played here; None: one after the other.
    """
    forecaster = forecaster or ridge_forecaster(world.minutes)
    outcomes: dict[str, Outcome] = {}
    seconds: dict[str, float] = {}
    knobs: Knobs | None = None
    wish = Wish(late_share=late_target)
    under_way = {} if beside is None else {n: beside.submit(_rival, n, world, wish) for n in policies if n != "headway"}
    for name in policies:
        say(f"{name} …")
        began = clock()
        if name == "headway":
            knobs = learned(world, forecaster, late_target, budget)
            seconds["learning"] = clock() - began
            say(f"  learned: {describe(knobs)}")
            began = clock()
            batch = forecaster(world.first_minute, world.first_minute + world.run_minutes)
            seconds["forecasts"] = clock() - began
            say(f"  {world.run_minutes:,} control ticks, one a minute …")
            began = clock()
            notes = (knobs.learned_on,) if knobs.learned_on else ()
            outcomes[name] = run_headway(world, batch, knobs, notes=notes)
            seconds[name] = clock() - began
        elif name in under_way:
            outcomes[name], seconds[name] = under_way[name].result()
        else:
            outcomes[name], seconds[name] = _rival(name, world, wish, clock)
    hours = limit_hours(world)
    return Simulation(world, against_limit(outcomes, hours), knobs, hours, seconds)


def _rival(
    name: str, world: World, wish: Wish, clock: Callable[[], float] = time.perf_counter
) -> tuple[Outcome, float]:
    began = clock()
    return run_rival(name, world, wish), clock() - began


def run_span(trace: ArrivalTrace, start: datetime, end: datetime) -> None:
    """Refuse a run that does not lie in the trace.

    Raises
    ------
    HeadwayError
        With what the trace holds.
    """
    if not trace.start <= start < end <= trace.end:
        raise HeadwayError(
            f"--from {start.isoformat()} --to {end.isoformat()} does not lie within the trace, "
            f"{trace.start.isoformat()} to {trace.end.isoformat()}"
        )
