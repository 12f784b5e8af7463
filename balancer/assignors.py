"""Models of Kafka's own assignors, for groups whose size is ours to choose but not their assignment.

What their members own follows from counts, not from loads, so such a group is as slow as its busiest member: it is
sized by that member's share of the load, and only at sizes that lower this share.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Assignor(StrEnum):
    """Who deals the partitions out."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"
    STICKY = "sticky"
    COOPERATIVE = "cooperative-sticky"
    UNIFORM = "uniform"
    PLANNED = "planned"
    """Ours: by load."""


def range_owner(topics: Sequence[int], members: int) -> NDArray[np.intp]:
    """Kafka's RangeAssignor: each topic cut into consecutive runs, the first members get the longer ones.

    Parameters
    ----------
    topics
        Partitions of each topic; the answer lists the topics one after the other.
    members
        Members in the order of their ids.

    Examples
    --------
    Two topics of three partitions: the first member is first twice.

    >>> range_owner([3, 3], 2)
    array([0, 0, 1, 0, 0, 1])
    """
    _check(members)
    runs = []
    for partitions in topics:
        short, longer = divmod(partitions, members)
        lengths = [short + 1] * longer + [short] * (members - longer)
        runs.append(np.repeat(np.arange(members, dtype=np.intp), lengths))
    return np.concatenate(runs) if runs else np.array([], dtype=np.intp)


def roundrobin_owner(topics: Sequence[int], members: int) -> NDArray[np.intp]:
    """Kafka's RoundRobinAssignor: all partitions in order, dealt like cards.

    Examples
    --------
    >>> roundrobin_owner([3, 3], 2)
    array([0, 1, 0, 1, 0, 1])
    """
    _check(members)
    return np.arange(sum(topics), dtype=np.intp) % members


def sticky_owner(current: NDArray[np.intp], members: int) -> NDArray[np.intp]:
    """Kafka's sticky assignors (sticky, cooperative-sticky): even counts, each keeps what fits its quota.

    Every member ends with floor or ceil of partitions / members. A member keeps its first partitions up to its quota;
    the quota ceil is given to the members that own so many already, in order, as long as it is left. The rest is dealt
    in order to the members below their quota. From nothing this is round-robin.

    Parameters
    ----------
    current
        Shape (partitions,), present owner, -1 where there is none or it is gone (index >= members).
    members
        Members from now on, in the order of their ids.

    Examples
    --------
    >>> sticky_owner(np.array([0, 0, 0, 1]), 2)
    array([0, 0, 1, 1])
    """
    _check(members)
    owner = np.where((current >= 0) & (current < members), current, -1).astype(np.intp)
    short, extra = divmod(owner.size, members)
    quota = np.full(members, short)
    counts = np.bincount(owner[owner >= 0], minlength=members)
    for member in np.flatnonzero(counts > short)[:extra]:
        quota[member] += 1
        extra -= 1
    for member in np.flatnonzero(counts > quota):
        owner[np.flatnonzero(owner == member)[quota[member] :]] = -1
    counts = np.minimum(counts, quota)
    homeless = np.flatnonzero(owner < 0)
    open_members = np.flatnonzero(quota == short)
    quota[open_members[:extra]] += 1
    given = 0
    while given < homeless.size:
        for member in np.flatnonzero(counts < quota)[: homeless.size - given]:
            owner[homeless[given]] = member
            counts[member] += 1
            given += 1
    return owner


def uniform_owner(current: NDArray[np.intp], members: int) -> NDArray[np.intp]:
    """The uniform assignor of the newer protocol (KIP-848): even counts, sticky, filled member by member.

    The first (partitions mod members) members have the longer quota, whatever they own; each keeps its first
    partitions up to its quota; the rest fills the members one after the other, so that from nothing the members own
    consecutive runs over all topics.

    Examples
    --------
    >>> uniform_owner(np.array([-1, -1, -1, -1, -1]), 2)
    array([0, 0, 0, 1, 1])
    >>> uniform_owner(np.array([1, 1, 1, -1, -1]), 2)
    array([1, 1, 0, 0, 0])
    """
    _check(members)
    owner = np.where((current >= 0) & (current < members), current, -1).astype(np.intp)
    short, extra = divmod(owner.size, members)
    quota = np.where(np.arange(members) < extra, short + 1, short)
    full = np.flatnonzero(np.bincount(owner[owner >= 0], minlength=members) > quota)
    over = [np.flatnonzero(owner == member)[quota[member] :] for member in full]
    homeless = np.concatenate([np.flatnonzero(owner < 0), *over])
    owner[homeless] = -1
    missing = quota - np.bincount(owner[owner >= 0], minlength=members)
    owner[homeless] = np.repeat(np.arange(members, dtype=np.intp), missing)
    return owner


def owner_under(
    assignor: str, topics: Sequence[int], members: int, current: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Who owns what under one of Kafka's assignors.

    Raises
    ------
    ValueError
        If the assignor is not known, or there is no member.
    """
    kind = Assignor(assignor)
    if kind is Assignor.RANGE:
        return range_owner(topics, members)
    if kind is Assignor.ROUNDROBIN:
        return roundrobin_owner(topics, members)
    if kind is Assignor.PLANNED:
        raise ValueError("a planned assignment depends on loads: balancer.packing.members.pack")
    if current is None and kind is not Assignor.UNIFORM:
        return roundrobin_owner(topics, members)
    before = np.full(sum(topics), -1, dtype=np.intp) if current is None else current
    return uniform_owner(before, members) if kind is Assignor.UNIFORM else sticky_owner(before, members)


def busiest_shares(
    loads: NDArray[np.float64], max_members: int, assignor: str, topics: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Share of the load that the busiest member carries, for each size of the group.

    Parameters
    ----------
    loads
        Shape (partitions,), records/s (or any measure of weight), the topics one after the other.
    max_members
        Sizes 1 to this.
    assignor
        ``range``, ``roundrobin``, ``sticky``, ``cooperative-sticky``, ``uniform``: dealt from nothing;
        ``planned``: by load, biggest first.
    topics
        Partitions of each topic; None is one topic.

    Returns
    -------
    ndarray
        Shape (max_members,); element n-1 belongs to n members. Idle topics count every partition alike.

    Examples
    --------
    Four partitions, one with half of the load: range puts it beside another one until there are four members.

    >>> busiest_shares(np.array([3.0, 1.0, 1.0, 1.0]), 4, "range").round(2).tolist()
    [1.0, 0.67, 0.67, 0.5]
    >>> busiest_shares(np.array([3.0, 1.0, 1.0, 1.0]), 4, "planned").round(2).tolist()
    [1.0, 0.5, 0.5, 0.5]
    """
    _check(max_members)
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError("loads must be finite and not negative")
    if not loads.size:
        return 1.0 / np.arange(1, max_members + 1)
    total = float(loads.sum())
    share = loads / total if total > 0 else np.full(loads.size, 1.0 / loads.size)
    sizes = min(max_members, loads.size)
    out = np.empty(max_members)
    planned = Assignor(assignor) is Assignor.PLANNED
    falling = np.sort(share)[::-1]
    for n in range(1, sizes + 1):
        if planned:
            out[n - 1] = _busiest_when_planned(falling, n)
        else:
            owner = owner_under(assignor, topics or [loads.size], n)
            out[n - 1] = np.bincount(owner, share, n).max()
    if planned:
        out[:sizes] = np.minimum.accumulate(out[:sizes])
    out[sizes:] = out[sizes - 1] if planned or len(topics or [0]) == 1 else _beyond(share, topics, assignor, sizes)
    return out


def useful_sizes(shares: NDArray[np.float64], least_gain: float = 0.01) -> tuple[int, ...]:
    """Sizes that really help: each lowers the busiest member's share below that of every smaller size.

    Parameters
    ----------
    shares
        As :func:`busiest_shares` gives them.
    least_gain
        By what share of itself it must be lower to count.

    Examples
    --------
    Twelve equal partitions divide evenly among these:

    >>> useful_sizes(busiest_shares(np.ones(12), 16, "range"))
    (1, 2, 3, 4, 6, 12)
    """
    sizes, best = [], np.inf
    for n, share in enumerate(shares.tolist(), start=1):
        if share < best * (1 - least_gain):
            sizes.append(n)
            best = share
    return tuple(sizes)


def sizes_for(
    demand: NDArray[np.float64], capacity: float, shares: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Fewest members whose busiest one carries its share of each demand.

    Parameters
    ----------
    demand
        Records/s, any shape.
    capacity
        Records/s planned onto one member.
    shares
        As :func:`busiest_shares` gives them.

    Returns
    -------
    members
        Shape of ``demand``. Where no size suffices: the smallest of those that help most.
    suffices
        Shape of ``demand``; False where even that size is too slow, bound by a partition.

    Examples
    --------
    >>> shares = busiest_shares(np.array([3.0, 1, 1, 1]), 8, "range")
    >>> members, suffices = sizes_for(np.array([90.0, 300.0]), 100.0, shares)
    >>> members.tolist(), suffices.tolist()
    ([1, 4], [True, False])
    """
    if not 0 < capacity < np.inf:
        raise ValueError(f"capacity={capacity} must be a positive number of records/s")
    sizes = np.array(useful_sizes(shares), dtype=np.intp)
    carried = capacity / shares[sizes - 1] * (1 + 1e-9)
    at = np.searchsorted(carried, demand, side="left")
    suffices = at < sizes.size
    return sizes[np.minimum(at, sizes.size - 1)], suffices


def _busiest_when_planned(falling: NDArray[np.float64], members: int) -> float:
    """Biggest first onto the least loaded; beyond 100,000 steps its well-known bound instead of the packing."""
    floor = max(float(falling[0]), 1.0 / members)
    if falling.size > members:
        floor = max(floor, float(falling[members - 1] + falling[members]))
    if members == 1 or members >= falling.size:
        return max(floor, 1.0 / members) if members > 1 else 1.0
    if falling.size > 2_000:
        return min(1.0, max(floor, 1.0 / members + float(np.median(falling))))
    heap = [0.0] * members
    for share in falling.tolist():
        heapq.heapreplace(heap, heap[0] + share)
    return max(heap)


def _beyond(
    share: NDArray[np.float64], topics: Sequence[int] | None, assignor: str, sizes: int
) -> NDArray[np.float64] | float:
    """With several topics range stops helping at the biggest topic, so what follows is flat as well."""
    owner = owner_under(assignor, topics or [share.size], sizes)
    return float(np.bincount(owner, share, sizes).max())


def _check(members: int) -> None:
    if members < 1:
        raise ValueError(f"members={members} must be 1 or more")
