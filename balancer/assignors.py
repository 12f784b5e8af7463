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


def paces(
    loads: NDArray[np.float64], max_members: int, assignor: str, topics: Sequence[int] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the busiest member carries, and what the busiest carries of those that own several partitions.

    A member that owns one partition alone is as far relieved as members can relieve it, however busy it is.

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
    busiest, shared : ndarray
        Each of shape (max_members,), shares of the whole load; element n-1 belongs to n members. Idle topics count
        every partition alike; ``shared`` is 0 where nobody owns two partitions that are not idle.

    Examples
    --------
    Four partitions, one with half of the load: range puts it beside another one until there are four members.

    >>> paces(np.array([3.0, 1.0, 1.0, 1.0]), 4, "range")[0].round(2).tolist()
    [1.0, 0.67, 0.67, 0.5]
    >>> busiest, shared = paces(np.array([3.0, 1.0, 1.0, 1.0]), 4, "planned")
    >>> busiest.round(2).tolist(), shared.round(2).tolist()
    ([1.0, 0.5, 0.5, 0.5], [1.0, 0.5, 0.33, 0.0])
    """
    _check(max_members)
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError("loads must be finite and not negative")
    if not loads.size:
        even = 1.0 / np.arange(1, max_members + 1)
        return even, even
    total = float(loads.sum())
    share = loads / total if total > 0 else np.full(loads.size, 1.0 / loads.size)
    sizes = min(max_members, loads.size)
    planned = Assignor(assignor) is Assignor.PLANNED
    falling = np.sort(share)[::-1]
    out = np.empty((2, max_members))
    for n in range(1, sizes + 1):
        if planned:
            out[:, n - 1] = _paces_when_planned(falling, n)
        else:
            out[:, n - 1] = _paces_of(owner_under(assignor, topics or [loads.size], n), share, n)
    if planned:
        out[:, :sizes] = np.minimum.accumulate(out[:, :sizes], axis=1)
    out[:, sizes:] = out[:, sizes - 1 : sizes]
    return out[0], out[1]


def _paces_when_planned(falling: NDArray[np.float64], members: int) -> tuple[float, float]:
    """Biggest first onto the least loaded; beyond 2,000 partitions its well-known bound instead of the packing."""
    if members == 1 or members >= falling.size:
        shared = 1.0 if np.count_nonzero(falling) > 1 and members == 1 else 0.0
        return (1.0, shared) if members == 1 else (float(falling[0]), shared)
    if falling.size > 2_000:
        left = 1.0 - np.concatenate([[0.0], np.cumsum(falling[: members - 1])])  # the biggest ones alone
        alone = int(np.argmax(falling[:members] <= left / np.arange(members, 0, -1)))
        shared = min(1.0, float(left[alone]) / (members - alone) + float(np.median(falling)))
        return max(float(falling[0]), shared), shared
    heap = [(0.0, member) for member in range(members)]
    count = [0] * members
    for share in falling.tolist():
        carried, member = heap[0]
        heapq.heapreplace(heap, (carried + share, member))
        count[member] += share > 0
    shared = max((carried for carried, member in heap if count[member] > 1), default=0.0)
    return max(heap)[0], shared


def _paces_of(owner: NDArray[np.intp], share: NDArray[np.float64], members: int) -> tuple[float, float]:
    carried = np.bincount(owner, share, members)
    several = np.bincount(owner, share > 0, members) > 1
    return float(carried.max()), float(carried.max(where=several, initial=0.0))


def _check(members: int) -> None:
    if members < 1:
        raise ValueError(f"members={members} must be 1 or more")
