"""How a stream's forecasts did lately: rolling WAPE, bias and coverage, and whether that is drift.

A :class:`ScoreLog` holds sums over partitions, one a step, of what was forecast a short lead before (the lead that
scaling acts on). Everything else is a ratio of sums over a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from forecaster.timegrid import TimeGrid

Floats = NDArray[np.float64]

LEAST_COMPARED = 0.5
"""Share of a window's records at which a naive method must have been there to be compared with."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreLog:
    """Sums of one stream by step; zero where nothing was scored.

    Parameters
    ----------
    grid, first_index
        Steps of the log.
    points
        Shape (steps,): partitions scored.
    actual, over, under
        Shape (steps,): records; what came, what the median said too much, and what it said too little.
    missed
        Level → shape (steps,): partitions whose actual lay above that quantile.
    naive
        Naive method → shape (steps,): its absolute error in records.
    compared
        Naive method → shape (steps,): whether it had anything to repeat at a step; else its error is unknown, not 0.
    """

    grid: TimeGrid
    first_index: int
    points: Floats
    actual: Floats
    over: Floats
    under: Floats
    missed: Mapping[float, Floats]
    naive: Mapping[str, Floats]
    compared: Mapping[str, NDArray[np.bool_]]

    def window(self, start: datetime, end: datetime) -> StreamHealth:
        """Return the figures of a window.

        Examples
        --------
        >>> one = np.ones(3)
        >>> naive, there = {"yesterday": 4 * one}, {"yesterday": one > 0}
        >>> log = ScoreLog(TimeGrid(3600), 0, one, 10 * one, one, 0 * one, {0.9: one * 0}, naive, there)
        >>> health = log.window(log.grid.start_of(1), log.grid.start_of(3))
        >>> health.points, health.wape, health.bias, health.coverage[0.9], health.naive["yesterday"]
        (2, 0.1, 0.1, 1.0, 0.4)
        """
        size = len(self.points)
        lo = min(max(self.grid.index_of(start) - self.first_index, 0), size)
        hi = min(max(self.grid.index_of(end) - self.first_index, lo), size)

        def total(values: Floats) -> float:
            return float(values[lo:hi].sum())

        def naive_wape(name: str) -> float | None:
            there = self.compared[name][lo:hi]
            came = float(self.actual[lo:hi][there].sum())
            if came <= 0 or came < LEAST_COMPARED * actual:
                return None
            return float(self.naive[name][lo:hi][there].sum()) / came

        points, actual = total(self.points), total(self.actual)
        over, under = total(self.over), total(self.under)
        return StreamHealth(
            points=int(points),
            wape=(over + under) / actual if actual > 0 else None,
            bias=(over - under) / actual if actual > 0 else None,
            coverage={q: 1 - total(v) / points if points > 0 else None for q, v in self.missed.items()},
            naive={name: naive_wape(name) for name in self.naive},
        )


@dataclass(frozen=True, slots=True)
class StreamHealth:
    """Figures of one stream over a window; None where nothing was scored or nothing came.

    Parameters
    ----------
    points
        Scored (partition, step) pairs.
    wape, bias
        Of the median at the scored lead, fractions of what came; bias is positive where too much was forecast.
    coverage
        Level → share of actuals at or below it.
    naive
        Naive method → its WAPE where it had anything to repeat; None where that is less than half of what came.
    """

    points: int
    wape: float | None
    bias: float | None
    coverage: Mapping[float, float | None]
    naive: Mapping[str, float | None]

    @property
    def best_naive(self) -> tuple[str, float] | None:
        """The naive method with the least WAPE; None if none was scored."""
        have = [(v, name) for name, v in self.naive.items() if v is not None]
        return (min(have)[1], min(have)[0]) if have else None

    @property
    def skill(self) -> float | None:
        """WAPE in units of the best naive's: a hard day raises both, drift raises this."""
        naive = self.best_naive
        return self.wape / naive[1] if self.wape is not None and naive is not None and naive[1] > 0 else None


@dataclass(frozen=True, slots=True)
class DriftPolicy:
    """When a stream has drifted from its model.

    Raises
    ------
    ValueError
        If a field is outside its bound.
    """

    recent: timedelta = timedelta(days=1)
    """What is looked at; a whole day, so that every hour is in it."""

    reference: timedelta = timedelta(days=7)
    """What it is compared with, just before it; a whole week, so that every weekday is in it."""

    min_points: int = 48
    """Fewer scored points in either window decide nothing."""

    skill_ratio: float = 1.3
    """How much worse than the reference, in units of the naive error, is drift; above 1."""

    max_bias: float = 0.25
    """A day that is over- or under-forecast by this share of its records is drift; within (0, 1]."""

    max_shortfall: float = 0.05
    """Coverage of the 0.95 level that is short by this much is drift; within (0, 1)."""

    def __post_init__(self) -> None:
        if self.recent <= timedelta(0) or self.reference <= timedelta(0):
            raise ValueError("recent and reference must be longer than zero")
        if self.min_points < 1 or self.skill_ratio <= 1 or not 0 < self.max_bias <= 1 or not 0 < self.max_shortfall < 1:
            raise ValueError("min_points, skill_ratio, max_bias or max_shortfall must be within its bound")


def drift(log: ScoreLog, now: datetime, policy: DriftPolicy | None = None) -> str | None:
    """Return what drifted, in one line, or None.

    Parameters
    ----------
    log
        What was scored.
    now
        End of the recent window, aware UTC.
    policy
        Windows and limits; None takes the defaults.
    """
    policy = policy or DriftPolicy()
    recent = log.window(now - policy.recent, now)
    if recent.points < policy.min_points:
        return None
    if recent.bias is not None and abs(recent.bias) > policy.max_bias:
        word = "over" if recent.bias > 0 else "under"
        return f"{word}-forecast by {abs(recent.bias):.0%} over {_span(policy.recent)}"
    for level, covered in recent.coverage.items():
        if covered is not None and level >= 0.9 and covered < level - policy.max_shortfall:
            return f"coverage of {level:g} fell to {covered:.3f} over {_span(policy.recent)}"
    before = log.window(now - policy.recent - policy.reference, now - policy.recent)
    if before.points < policy.min_points or recent.skill is None or before.skill is None:
        return None
    if recent.skill > policy.skill_ratio * max(before.skill, 1e-9) and recent.skill > 1 / policy.skill_ratio:
        return (
            f"error rose from {before.skill:.2f} to {recent.skill:.2f} of the best naive's over {_span(policy.recent)}"
        )
    return None


def _span(span: timedelta) -> str:
    hours = span / timedelta(hours=1)
    return f"{hours / 24:g} d" if hours % 24 == 0 else f"{hours:g} h"
