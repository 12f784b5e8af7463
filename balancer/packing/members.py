"""The planner's packing: given members, keep what is well placed, and move the cheapest load that cures the rest.

This is KEEP* on a fixed set of members. Everything stays; a member above its limit gives away the cheapest sufficient
load; what has no home goes, biggest first, where the busiest member stays lowest; what is still too full is cured by
single moves and swaps; and only if load still exceeds capacity is a fresh packing considered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.packing.bounds import TOLERANCE
from balancer.packing.search import CLEARLY_LESS, CLEARLY_LOWER, MemberSearch

IDLE_BELOW = 0.5
"""Nothing moves for balance alone while the busiest member is below this share of its capacity: nobody would gain."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Who owns what, by index.

    Parameters
    ----------
    owner
        Shape (partitions,), member index; never -1.
    moved
        Shape (partitions,), True where a member that owned the partition must stop for it.
    utilization
        Shape (members,), load over capacity; 0 where the capacity is 0 (such a member owns nothing).
    """

    owner: NDArray[np.intp]
    moved: NDArray[np.bool_]
    utilization: NDArray[np.float64]


def pack(
    loads: NDArray[np.float64],
    capacity: NDArray[np.float64],
    owner: NDArray[np.intp],
    *,
    skew_limit: float = 1.25,
    budget: int | None = None,
    pinned: NDArray[np.bool_] | None = None,
    preferred: NDArray[np.bool_] | None = None,
) -> Packing:
    """Place every partition on a member, moving as little load as the limits allow.

    Parameters
    ----------
    loads
        Shape (partitions,), records/s: the forecast peak until the next planned move. Finite, not negative.
    capacity
        Shape (members,), records/s that may be planned onto each; 0 for a member that must give everything away.
    owner
        Shape (partitions,), index of the present owner, -1 where there is none.
    skew_limit
        Busiest member over the mean that is tolerated before anything moves for balance alone.
    budget
        Partitions that may change owner where nothing forces them; None for no limit. What has no usable owner is
        placed all the same.
    pinned
        Shape (partitions,), True for what stays where it is as long as its owner may keep it.
    preferred
        Shape (partitions, members), True where a member is near the partition (same rack): a wish, which never
        overloads anybody and never moves anything by itself.

    Raises
    ------
    ValueError
        If no member has capacity, a load is negative or not finite, or shapes disagree.

    Examples
    --------
    >>> pack(np.array([66.0, 20.0, 30.0, 45.0]), np.array([100.0, 100.0]), np.array([0, 0, 0, 1])).owner
    array([0, 1, 0, 1])
    """
    if budget is not None and budget >= loads.size:
        budget = None
    members = capacity.size
    usable = capacity > 0
    held = owner >= 0
    kept = held & usable[owner]
    if not usable.any():
        raise ValueError("no member has capacity; nothing can be assigned")
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError("loads must be finite and not negative")
    # An idle partition still costs its owner a little: ties are broken towards even counts.
    weight = loads + max(float(loads.sum()), 1e-9) * 1e-4 / max(loads.size, 1)
    load = np.bincount(owner[kept], weight[kept], members).astype(np.float64)  # of nothing it counts in integers
    room = np.where(usable, capacity, 1e-300)
    mean = float(weight.sum() / capacity.sum())
    limit = _limit(weight, capacity, skew_limit)
    if kept.all() and _is_at_rest(load, weight, limit, room, owner):
        return Packing(owner, np.zeros(loads.size, bool), utilization(owner, loads, capacity))

    search = MemberSearch(weight, room, usable, np.where(kept, owner, -1), load, pinned, preferred, limit)
    if budget is None:
        search.shed()
    search.place()
    search.relieve(_target(limit, mean), budget)
    if budget is None and pinned is None:
        search.start_afresh_if_overloaded()
    result = search.owner
    if kept.all() and not search.has_gained(np.bincount(owner, weight, members).astype(np.float64)):
        result = owner
    return Packing(result, held & (result != owner), utilization(result, loads, capacity))


def utilization(
    owner: NDArray[np.intp], loads: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Load over capacity of each member, 0 where the capacity is 0; partitions without an owner count nowhere.

    Examples
    --------
    >>> utilization(np.array([0, 0, 1, -1]), np.array([1.0, 2.0, 4.0, 8.0]), np.array([10.0, 8.0, 0.0]))
    array([0.3, 0.5, 0. ])
    """
    held = owner >= 0
    carried = np.bincount(owner[held], loads[held], capacity.size)
    return np.divide(carried, capacity, out=np.zeros(capacity.size), where=capacity > 0)


def is_settled(
    loads: NDArray[np.float64], capacity: NDArray[np.float64], owner: NDArray[np.intp], skew_limit: float = 1.25
) -> bool:
    """Whether :func:`pack` would move nothing, told without building anything; every partition must have an owner.

    Examples
    --------
    >>> is_settled(np.array([60.0, 50.0]), np.array([100.0, 100.0]), np.array([0, 1]))
    True
    """
    load = np.bincount(owner, loads, capacity.size).astype(np.float64, copy=False)
    return _is_at_rest(load, loads, _limit(loads, capacity, skew_limit), capacity, owner)


def _limit(weight: NDArray[np.float64], capacity: NDArray[np.float64], skew_limit: float) -> float:
    """Return the utilization above which a member must give something away."""
    mean = float(weight.sum() / capacity.sum())
    largest = float(weight.max(initial=0.0) / capacity.max())
    full = 1.0 if mean <= 1.0 else 1.1 * mean  # too much for all together: share it roughly, and do not chase it
    return max(min(full, max(skew_limit * mean, largest)), IDLE_BELOW)


def _is_at_rest(
    load: NDArray[np.float64],
    weight: NDArray[np.float64],
    limit: float,
    room: NDArray[np.float64],
    owner: NDArray[np.intp],
) -> bool:
    """Whether nobody is above the limit, or nothing can be done for who is: one partition alone, and nobody faster."""
    above = load > limit * room * (1 + TOLERANCE)
    if not above.any():
        return True
    over = above.nonzero()[0]
    alone = np.bincount(owner, minlength=room.size)[over] == 1
    return bool(alone.all() and (room[over] >= room.max() * (1 - TOLERANCE)).all()) or not _may_gain(load, weight, room)


def _may_gain(load: NDArray[np.float64], weight: NDArray[np.float64], room: NDArray[np.float64]) -> bool:
    """Whether any packing at all could be clearly better, as :meth:`MemberSearch.has_gained` means it."""
    usable = room > 1e-200
    largest, volume = float(room.max()), float(room[usable].sum())
    least_over = max(float(np.maximum(weight - largest, 0.0).sum()), float(weight.sum()) - volume)
    over = float(np.maximum(load - room, 0.0)[usable].sum())
    lowest = max(float(weight.max(initial=0.0)) / largest, float(weight.sum()) / volume)
    return over - CLEARLY_LESS * volume > least_over or CLEARLY_LOWER * float((load / room).max()) > lowest


def _target(limit: float, mean: float) -> float:
    """Aim halfway between limit and mean, so that what was cured is not the first to break again."""
    return (limit + max(mean, IDLE_BELOW)) / 2 if limit < 1.0 else limit
