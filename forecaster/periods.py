"""Which periods a series has, by a test that noise does not pass.

A period is reported when the means of its slots, learned on the first half of the history, explain the second half:
the share of variance removed out of sample is at least ``LEAST_SHARE`` and at least four standard errors of what
slot means of pure noise would show. Day and week are tried first and removed, so that their multiples and fractions
are not found again; then other whole numbers of steps up to a day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SHARE = 0.05
"""A smaller share of variance is not worth a season."""

FEWEST_CYCLES = 4
"""Cycles of a period that a history must hold, so that each half has two."""


@dataclass(frozen=True, slots=True)
class Period:
    """A period that passed the test.

    Parameters
    ----------
    steps
        Length in steps.
    share
        Share of the second half's variance that the first half's slot means remove, after the periods before it.
    """

    steps: int
    share: float


def find_periods(logs: Floats, steps_per_day: int) -> tuple[Period, ...]:
    """Test day, week, and other periods up to a day.

    Parameters
    ----------
    logs
        Shape (positions,): one row on the log scale; NaN in the gaps.
    steps_per_day
        Positions in a day.

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
    rest = logs - np.nanmean(logs) if np.isfinite(logs).any() else logs
    found: list[Period] = []
    others = [p for p in range(2, steps_per_day) if p != steps_per_day]
    for candidates in ([steps_per_day], [7 * steps_per_day], others):
        best = max((Period(p, _explained(rest, p)) for p in candidates), key=lambda p: p.share, default=None)
        if best is not None and best.share >= _limit(len(rest), best.steps, len(candidates)):
            found.append(best)
            rest = rest - _slot_means(rest, best.steps)[np.arange(len(rest)) % best.steps]
    return tuple(found)


def _limit(length: int, period: int, candidates: int) -> float:
    """Return the share that must be removed: slot means of noise lose variance, so four standard errors are rare."""
    half = max(length // 2, 1)
    return max(LEAST_SHARE, float((4.0 + np.log(candidates)) * np.sqrt(2.0 * period) / half))


def _explained(values: Floats, period: int) -> float:
    """Return the share of the second half's variance that slot means of the first half remove."""
    half = len(values) // 2
    if half < FEWEST_CYCLES // 2 * period:
        return 0.0
    first, second = values[:half], values[half:]
    known = np.isfinite(second)
    if not known.any():
        return 0.0
    expected = _slot_means(first, period)[(half + np.arange(len(second))) % period]
    centred = second[known] - second[known].mean()
    total = float(centred @ centred)
    if total <= 1e-12 * known.sum():
        return 0.0
    left = centred - (expected[known] - expected[known].mean())
    return float(1.0 - float(left @ left) / total)


def _slot_means(values: Floats, period: int) -> Floats:
    known = np.isfinite(values)
    slots = np.arange(len(values)) % period
    sums = np.bincount(slots, np.where(known, values, 0.0), period)
    seen = np.bincount(slots, known, period)
    out: Floats = sums / np.maximum(seen, 1)
    return out
