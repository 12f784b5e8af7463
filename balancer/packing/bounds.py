"""How few members could carry the loads at all: L1, L2, and what one partition alone demands."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-9
"""Relative slack of every "fits" comparison, so that sums of floats that fill a member exactly still fit."""


def fits(load: float, capacity: float) -> bool:
    """Whether a load fits a capacity, float dust aside."""
    return load <= capacity * (1 + TOLERANCE)


def l2_bound(loads: NDArray[np.float64], capacity: float) -> int:
    """Fewest members that can carry the loads: L2 of Martello and Toth, at least two thirds of the optimum.

    The maximum over alpha in {0} and {s_j <= C/2} of ``|J1| + |J2| + max(0, ceil((sum_J3 s - (|J2| C - sum_J2 s)) /
    C))`` with J1 = {s > C - alpha}, J2 = {C/2 < s <= C - alpha}, J3 = {alpha <= s <= C/2}. A load above the capacity
    is hot: no assignment can serve it, it counts as one full member.

    Parameters
    ----------
    loads
        Records/s, one a partition, finite and not negative.
    capacity
        Records/s of one member, positive.

    Raises
    ------
    ValueError
        If a load is negative or not finite, or the capacity is not positive.

    Examples
    --------
    Three partitions of 60 fill two members by volume, but no two of them share one:

    >>> l2_bound(np.array([60.0, 60.0, 60.0]), 100.0)
    3
    """
    _check(loads, capacity)
    s = np.sort(np.minimum(loads, capacity))
    s = s[s > 0]
    if not s.size:
        return 0
    half = capacity / 2
    total = np.concatenate(([0.0], np.cumsum(s)))
    small_end = int(np.searchsorted(s, half * (1 + TOLERANCE), side="right"))
    alpha = np.concatenate(([0.0], s[:small_end]))
    j1_start = np.searchsorted(s, (capacity - alpha) * (1 + TOLERANCE), side="right")
    j1 = s.size - j1_start
    j2 = np.maximum(j1_start - small_end, 0)
    j1_start = np.maximum(j1_start, small_end)
    j2_sum = total[j1_start] - total[small_end]
    j3_sum = total[small_end] - total[np.minimum(np.searchsorted(s, alpha, side="left"), small_end)]
    rest = (j3_sum - (j2 * capacity - j2_sum)) / capacity
    extra = np.maximum(0, np.ceil(rest - TOLERANCE * np.maximum(np.abs(rest), 1.0)))
    return int((np.minimum(j1, s.size - small_end) + j2 + extra).max())


def fewest_members(loads: NDArray[np.float64], capacities: NDArray[np.float64]) -> int | None:
    """Fewest of these members that could carry the loads by volume, biggest first; None if all together cannot.

    Parameters
    ----------
    loads
        Records/s, one a partition.
    capacities
        Records/s, one a member; they may differ. With equal ones this is L2.

    Examples
    --------
    >>> fewest_members(np.array([60.0, 60.0]), np.array([50.0, 200.0]))
    1
    """
    usable = np.sort(capacities[capacities > 0])[::-1]
    if not usable.size:
        return None if loads.sum() > 0 else 0
    if fits(float(usable[0]), float(usable[-1])):
        need = l2_bound(loads, float(usable[0]))
        return need if need <= usable.size else None
    carried = np.cumsum(usable)
    need = (
        int(np.searchsorted(carried, float(loads.sum()) * (1 - TOLERANCE), side="left")) + 1 if loads.sum() > 0 else 0
    )
    need = max(need, l2_bound(loads, float(usable[0])))
    return need if need <= usable.size else None


def _check(loads: NDArray[np.float64], capacity: float) -> None:
    if not 0 < capacity < math.inf:
        raise ValueError(f"capacity={capacity} must be a positive number of records/s")
    if loads.size and not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError("loads must be finite and not negative")
