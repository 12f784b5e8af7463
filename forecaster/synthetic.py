"""Synthetic traffic: arrivals of a topic whose daily and weekly shape, growth, holidays, outages and crowds are known.

For tests, benchmarks and demonstrations that need to know the truth: :func:`generate` returns the expected rate beside
the counts that were drawn around it, and where each fault was put. Everything follows from the parameters and the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from forecaster.calendar import NO_CALENDAR, Calendar
from forecaster.errors import InputRefused
from forecaster.series import ArrivalSeries
from forecaster.timegrid import DAY_S, TimeGrid

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Traffic:
    """How the traffic of a topic behaves; shares and heights are fractions, instants come out of the seed.

    Raises
    ------
    InputRefused
        If a field is outside its bound; the message names it.
    """

    rate: float = 100.0
    """Mean rate of the topic at the start, records/s."""

    partitions: int = 3
    """At least 1."""

    skew: float = 0.0
    """Zipf exponent of the partitions' shares; 0 is even."""

    daily: float = 0.6
    """Height of the day: the rate swings by this share around its mean; within [0, 1)."""

    weekend: float = 0.5
    """Rate on Saturdays and Sundays, as a share of that on other days."""

    growth_per_week: float = 0.02
    """Relative growth."""

    holiday: float = 0.4
    """Rate on a holiday of the calendar, as a share of the usual."""

    crowds_per_week: float = 0.5
    """Flash crowds: they rise within minutes and fall by half every half-hour."""

    crowd_height: float = 3.0
    """At its peak a crowd brings so many times the usual rate on top."""

    outages_per_week: float = 0.2
    """Times at which producers are down: nothing arrives, and that is known."""

    outage: timedelta = timedelta(hours=1)
    """How long each takes."""

    gaps_per_week: float = 0.2
    """Times at which nobody looked: what arrived then is not known."""

    gap: timedelta = timedelta(hours=2)
    """How long each takes."""

    noise: float = 0.05
    """Relative standard deviation of a slow error (half-life of two hours) besides that of counting."""

    def __post_init__(self) -> None:
        bounds = {
            "rate": self.rate > 0,
            "partitions": self.partitions >= 1,
            "daily": 0 <= self.daily < 1,
            "growth_per_week": self.growth_per_week > -1,
            "outage": self.outage > timedelta(0),
            "gap": self.gap > timedelta(0),
        }
        for name in ("skew", "weekend", "holiday", "crowds_per_week", "crowd_height", "outages_per_week", "noise"):
            bounds[name] = getattr(self, name) >= 0
        bounds["gaps_per_week"] = self.gaps_per_week >= 0
        for name, fine in bounds.items():
            if not fine:
                raise InputRefused(f"{name}={getattr(self, name)} is outside its bound")


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Arrivals, and what is true about them.

    Parameters
    ----------
    series
        Whole counts, drawn by Poisson's law around ``expected``; gaps are not known.
    expected
        Shape (partitions, steps): expected records per step, crowds and outages included.
    usual
        Shape (partitions, steps): the same without crowds, outages and the slow error: what a forecast can know.
    crowds, outages, gaps
        Shape (steps,): where they are.
    """

    series: ArrivalSeries
    expected: Floats
    usual: Floats
    crowds: Mask = field(repr=False)
    outages: Mask = field(repr=False)
    gaps: Mask = field(repr=False)


def generate(
    start: datetime,
    length: timedelta,
    grid: TimeGrid | None = None,
    traffic: Traffic | None = None,
    *,
    calendar: Calendar = NO_CALENDAR,
    seed: int = 0,
    topic: str = "synthetic",
) -> Generated:
    """Generate the traffic of one topic.

    Parameters
    ----------
    start
        Aware instant of the first step.
    length
        How long.
    grid
        Steps and zone; days, weeks and holidays follow its wall clock. One minute in UTC by default.
    traffic
        How it behaves.
    calendar
        Holidays, and named events whose factor multiplies the rate.
    seed
        Of everything random.
    topic
        Its name.

    Examples
    --------
    >>> from datetime import UTC
    >>> made = generate(datetime(2026, 1, 5, tzinfo=UTC), timedelta(weeks=2), TimeGrid(3600), seed=1)
    >>> made.series.counts.shape, made.expected.shape
    ((3, 336), (3, 336))
    >>> again = generate(datetime(2026, 1, 5, tzinfo=UTC), timedelta(weeks=2), TimeGrid(3600), seed=1)
    >>> bool((made.series.counts == again.series.counts).all())
    True
    """
    grid, traffic = grid or TimeGrid(60), traffic or Traffic()
    first, steps = grid.index_of(start), length // grid.step
    if steps < 1:
        raise InputRefused(f"length={length} is shorter than a step of {grid.step_s} s")
    rng = np.random.default_rng(seed)
    weeks = np.arange(steps) * grid.step_s / (7 * DAY_S)
    shape = _shape(grid, first, steps, traffic) * (1 + traffic.growth_per_week) ** weeks
    shape = np.where(calendar.holidays(grid, first, steps), traffic.holiday * shape, shape)
    shape = shape * calendar.factors(grid, first, steps)
    shares = np.arange(1, traffic.partitions + 1) ** -traffic.skew
    usual = traffic.rate * grid.step_s * shares[:, None] / shares.sum() * shape
    lift, crowds = _crowds(rng, grid, steps, traffic)
    outages = _spells(rng, grid, steps, traffic.outages_per_week, traffic.outage)
    gaps = _spells(rng, grid, steps, traffic.gaps_per_week, traffic.gap)
    expected = np.where(outages, 0.0, usual * (1 + lift) * _slow_error(rng, grid, steps, traffic.noise))
    counts = rng.poisson(expected).astype(np.float64)
    known = np.broadcast_to(~gaps, counts.shape).copy()
    series = ArrivalSeries(topic, grid, first, tuple(range(traffic.partitions)), np.where(known, counts, 0.0), known)
    return Generated(series, expected, usual, crowds, outages, gaps)


def _shape(grid: TimeGrid, first: int, steps: int, traffic: Traffic) -> Floats:
    """Return the day and the week around one: night at four, noon and evening high, weekends lower and later."""
    hour = grid.day_slots(first, steps) * grid.step_s / 3600
    weekend = grid.week_slots(first, steps) * grid.step_s // DAY_S >= 5
    hour = np.where(weekend, hour - 1.5, hour)
    wave = -np.cos((hour - 4) * 2 * np.pi / 24) * 0.8 + 0.2 * np.sin((hour - 9) * 4 * np.pi / 24)
    return (1 + traffic.daily * wave) * np.where(weekend, traffic.weekend, 1.0)


def _starts(rng: np.random.Generator, grid: TimeGrid, steps: int, per_week: float) -> Sequence[int]:
    count = int(rng.poisson(per_week * steps / grid.steps_per_week))
    return sorted(int(at) for at in rng.integers(0, steps, count))


def _spells(rng: np.random.Generator, grid: TimeGrid, steps: int, per_week: float, each: timedelta) -> Mask:
    where = np.zeros(steps, dtype=np.bool_)
    for at in _starts(rng, grid, steps, per_week):
        where[at : at + max(1, each // grid.step)] = True
    return where


def _crowds(rng: np.random.Generator, grid: TimeGrid, steps: int, traffic: Traffic) -> tuple[Floats, Mask]:
    """Return what crowds add to the usual rate, as a share of it, and where they are."""
    lift = np.zeros(steps)
    rise = max(timedelta(minutes=5) / grid.step, 1.0)
    halving = timedelta(minutes=30) / grid.step
    for at in _starts(rng, grid, steps, traffic.crowds_per_week):
        since = np.arange(steps - at, dtype=np.float64)
        height = traffic.crowd_height * rng.uniform(0.5, 1.5)
        lift[at:] += height * np.minimum((since + 1) / rise, 1.0) * 0.5 ** (np.maximum(since - rise, 0) / halving)
    return lift, lift > 0.1


def _slow_error(rng: np.random.Generator, grid: TimeGrid, steps: int, size: float) -> Floats:
    """Return a factor around one that wanders and comes back."""
    keep = 0.5 ** (grid.step / timedelta(hours=2))
    pushes = rng.normal(0.0, size * np.sqrt(1 - keep**2), steps)
    pushes[0] = rng.normal(0.0, size)
    from scipy.signal import lfilter  # slow to import

    wander: Floats = np.exp(lfilter([1.0], [1.0, -keep], pushes))
    return wander
