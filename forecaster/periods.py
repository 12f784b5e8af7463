"""Which periods a topic has, by a test that noise does not pass.

A period is reported when the means of its slots, learned on the first half of the history, explain the second half:
the share of variance that they remove out of sample is at least ``LEAST_SHARE``, is at least four standard errors of
what slot means of pure noise would show, and is positive in every quarter of that second half (in every cycle, where
it has fewer than four), so that one accident does not make a period. Day and week are tried first, on the wall clock,
and removed, so that their multiples and fractions are not found again; then every other whole number of steps up to a
day, by a clock that does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.panel import wall_positions
from forecaster.scaling import LogScale
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]

LEAST_SHARE = 0.05
"""A smaller share of variance is not worth a season."""

FEWEST_CYCLES = 4
"""Cycles of a period that a history must hold, so that each half has two."""

LEAST_STEP_S = 300
"""Finer steps are added up before the test: periods are whole multiples of this."""

LOOKED_AT = timedelta(weeks=4)
"""How much of a topic's history is tested: a job that was moved a month ago has no say."""

_PARTS, _SHORT_LIST = 4, 24
_LEAST_STEPS = 8  # fewer values than this show nothing but themselves


@dataclass(frozen=True, slots=True)
class Period:
    """A period that passed the test.

    Parameters
    ----------
    steps
        Length in steps of the test.
    share
        Share of the second half's variance that the first half's slot means remove, after the periods before it.
    step_s
        Length of such a step in seconds.
    """

    steps: int
    share: float
    step_s: int = 3600

    @property
    def hours(self) -> float:
        """Length in hours."""
        return self.steps * self.step_s / 3600

    def to_dict(self) -> dict[str, Any]:
        """Return what commands print: length in seconds, and the share of variance."""
        return {"period_s": self.steps * self.step_s, "share": round(self.share, 4)}


def found_periods(history: ArrivalSeries) -> tuple[Period, ...]:
    """Return the periods of a topic's sum, as its whole days (UTC) show them.

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> t = np.arange(28 * 24)
    >>> counts = 100.0 + 50.0 * np.cos(t * 2 * np.pi / 24)[None] + 80.0 * (t % 10 == 0)
    >>> jobs = ArrivalSeries("t", TimeGrid(3600), 0, (0,), counts, np.full(counts.shape, True))
    >>> [p.hours for p in found_periods(jobs)]
    [24.0, 10.0]
    """
    day = history.grid.steps_per_day
    end = history.end_index - history.end_index % day
    if end - history.first_index < day:
        end = history.end_index
    series = sum_of_known(history.between(end - int(LOOKED_AT / history.grid.step), end))
    if series.grid.step_s < LEAST_STEP_S:
        series = series.at_step(LEAST_STEP_S)
    values = series.with_gaps_as_nan()
    return _tested(values.tobytes(), series.grid, series.first_index) if np.isfinite(values).any() else ()


@lru_cache(maxsize=256)
def _tested(values: bytes, grid: TimeGrid, first: int) -> tuple[Period, ...]:
    """Test a row; the same row is tested once, for it changes once a day and is asked about at every tick."""
    row = np.frombuffer(values)[None]
    wall = wall_positions(grid, first, row.shape[1])
    found = find_periods(LogScale.of(row).forward(row)[0], grid.steps_per_day, wall, first)
    return tuple(Period(p.steps, p.share, grid.step_s) for p in found)


def sum_of_known(history: ArrivalSeries) -> ArrivalSeries:
    """Return the sum of the partitions that are known at least half of the time, as one row."""
    often = np.flatnonzero(2 * history.known.mean(axis=1) >= 1) if history.steps else np.zeros(0, dtype=np.int64)
    whole = len(often) in (0, len(history.partitions))
    return (history if whole else history.select(often.tolist())).total()


def find_periods(logs: Floats, steps_per_day: int, wall: Slots | None = None, first: int = 0) -> tuple[Period, ...]:
    """Test day, week, and other periods up to a day.

    Parameters
    ----------
    logs
        Shape (steps,): one row on the log scale; NaN in the gaps.
    steps_per_day
        Steps in a day.
    wall
        Each step's number on the wall clock, for day and week; even numbers by default.
    first
        Number of the first step, for other periods.

    Returns
    -------
    tuple of Period
        In the order in which they were found and removed; empty where nothing passes.

    Examples
    --------
    >>> t = np.arange(28 * 24)
    >>> [p.steps for p in find_periods(np.cos(t * 2 * np.pi / 24), 24)]
    [24]
    >>> find_periods(np.random.default_rng(0).normal(size=28 * 24), 24)
    ()
    """
    even = first + np.arange(len(logs))
    local = even if wall is None else wall
    if np.isfinite(logs).sum() < _LEAST_STEPS:
        return ()
    rest = logs - np.nanmean(logs)
    found: list[Period] = []
    others = [p for p in range(2, steps_per_day) if steps_per_day % p]
    for candidates, clock in (([steps_per_day], local), ([7 * steps_per_day], local), (others, even)):
        tested = [Period(p, _explained(rest, clock % p, p)) for p in _likely(rest, candidates)]
        best = _shortest(tested)
        if best is None or best.share < _limit(len(rest), best.steps, len(candidates)):
            continue
        if min(_explained_parts(rest, clock % best.steps, best.steps)) <= 0:
            continue
        found.append(best)
        rest = rest - slot_means(rest, clock % best.steps, best.steps)[clock % best.steps]
    return tuple(found)


def _shortest(tested: Sequence[Period]) -> Period | None:
    """Return the best period; of its fractions the shortest that explains as much, for a multiple explains it too."""
    best = max(tested, key=lambda p: p.share, default=None)
    if best is None:
        return None
    as_good = [p for p in tested if best.steps % p.steps == 0 and p.share >= 0.95 * best.share]
    return min(as_good, key=lambda p: p.steps, default=best)


def _likely(values: Floats, candidates: list[int]) -> list[int]:
    """Return the candidates whose harmonics hold the most power per harmonic: a screen, the test comes after it.

    All of them are looked up in one Fourier transform, so that the screen costs less than testing two of them.
    """
    if len(candidates) <= _SHORT_LIST:
        return candidates
    power = np.abs(np.fft.rfft(np.nan_to_num(values))) ** 2
    power /= max(float(power[1:].mean()), 1e-300)
    scores = []
    for period in candidates:
        at = np.arange(1, period // 2 + 1) * (len(values) / period)
        low = np.minimum(at.astype(np.int64), len(power) - 2)
        scores.append(float((power[low] + power[low + 1] - 2.0).sum()) / np.sqrt(len(at)))
    return [candidates[i] for i in np.argsort(scores)[::-1][:_SHORT_LIST]]


def _limit(length: int, period: int, candidates: int) -> float:
    """Return the share that must be removed: slot means of noise lose variance, so four standard errors are rare."""
    half = max(length // 2, 1)
    return max(LEAST_SHARE, float((4.0 + np.log(candidates)) * np.sqrt(2.0 * period) / half))


def _explained(values: Floats, slots: Slots, period: int) -> float:
    """Return the share of the second half's variance that slot means of the first half remove."""
    before, after = _sums(values, slots, period, 1)
    return 0.0 if before[0] <= 0 else float(1.0 - after[0] / before[0])


def _explained_parts(values: Floats, slots: Slots, period: int) -> list[float]:
    """Return the same for each part of the second half, of a cycle at least; one of which nothing is known is mute."""
    parts = min(_PARTS, max(1, len(values) // 2 // period))
    before, after = _sums(values, slots, period, parts)
    return [1.0 - float(a) / float(b) for a, b in zip(after, before, strict=True) if b > 0] or [0.0]


def _sums(values: Floats, slots: Slots, period: int, parts: int) -> tuple[list[float], list[float]]:
    """Return sums of squares of the second half, by part: before and after slot means of the first are taken off."""
    half = len(values) // 2
    if half < FEWEST_CYCLES // 2 * period:
        return [0.0], [0.0]
    means = slot_means(values[:half], slots[:half], period)
    known = np.isfinite(values[half:])
    second, expected = values[half:][known], means[slots[half:][known]]
    if second.size == 0:
        return [0.0], [0.0]
    second, left = second - second.mean(), (second - second.mean()) - (expected - expected.mean())
    before = [float(part @ part) for part in np.array_split(second, parts)]
    after = [float(part @ part) for part in np.array_split(left, parts)]
    nothing = sum(before) <= 1e-12 * second.size
    return ([0.0], [0.0]) if nothing else (before, after)


def slot_means(values: Floats, slots: Slots, period: int) -> Floats:
    """Return the mean of what is known in each slot, zero where nothing is; shape (period,)."""
    known = np.isfinite(values)
    sums = np.bincount(slots, np.where(known, values, 0.0), period)
    seen = np.bincount(slots, known, period)
    out: Floats = sums / np.maximum(seen, 1)
    return out
