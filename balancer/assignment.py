"""Who owns what: the weighted sticky assignment of a group's partitions to given members.

The objective, in this order: no member above its usable capacity; nothing moves without a reason; the cheapest load
moves that cures the reason; the busiest member within the skew limit of the mean; members of the partition's rack.
:mod:`balancer.packing.members` does it on arrays; this file speaks of members and partitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.group import Assignment, Member
from balancer.movement import difference
from balancer.packing.bounds import fewest_members
from balancer.packing.exact import pack_exactly
from balancer.packing.members import pack
from balancer.plan import Move
from forecaster.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """An assignment with its price and its bound.

    Parameters
    ----------
    assignment
        Member id → partitions, sorted; every member that was given appears, owner of something or not.
    moves
        What changes its owner against ``current``; ``source`` None where nobody owned it.
    rscore
        Load that must stop, over the capacity of one member; None when the capacity is unknown.
    lower_bound
        Fewest of the given members that could carry the loads (L2, by volume when capacities differ); None when the
        capacity is unknown or all of them cannot.
    utilization
        Member id → load over usable capacity, known loads alone; empty when the capacity is unknown.
    hot
        Partitions above the capacity of the fastest member: no assignment serves them.
    reasons
        Why something moved, or why nothing could.
    hold
        True when something needed is unknown, and what is owned therefore stays.
    """

    assignment: Assignment
    moves: tuple[Move, ...]
    rscore: float | None
    lower_bound: int | None
    utilization: Mapping[str, float]
    hot: tuple[TopicPartition, ...]
    reasons: tuple[str, ...] = ()
    hold: bool = False

    @property
    def skew(self) -> float | None:
        """Busiest member over the mean; None when it is unknown or nothing flows."""
        values = list(self.utilization.values())
        mean = sum(values) / len(values) if values else 0.0
        return max(values) / mean if mean > 0 else None


def assign(
    loads: Mapping[TopicPartition, float | None],
    members: Sequence[Member],
    *,
    capacity: float | None,
    current: Assignment | None = None,
    skew_limit: float = 1.25,
    move_budget: int | None = None,
    racks: Mapping[TopicPartition, str] | None = None,
    exact: bool = False,
    explain: bool = True,
) -> AssignmentResult:
    """Assign every partition to exactly one member that is not draining.

    Parameters
    ----------
    loads
        Records/s of each partition: its forecast peak until the next planned move. None is "not known": such a
        partition stays where it is, and counts as much as the mean of the known ones where it must be placed.
    members
        Who may own partitions. A draining member gives everything away.
    capacity
        Records/s that may be planned onto one member that does not say its own; None if unknown: then what is owned
        stays, and only what has no owner is placed.
    current
        Who owns what now; None takes it from the members. Owners that are not among the members are gone.
    skew_limit
        Busiest member over the mean that is tolerated before anything moves for balance alone.
    move_budget
        Partitions that may change owner where nothing forces them; None for no limit.
    racks
        Rack of each partition's leader: a wish, never a reason to move or to overload.
    exact
        Solve small cases (up to 4,000 pairs of partition and member) to the optimum with HiGHS.
    explain
        False leaves out price, bound, utilization, hot partitions and reasons: the assignment and its moves alone.

    Raises
    ------
    ValueError
        If a load is negative or not finite, a capacity is zero or negative, two members share an id, two members own
        one partition, or nobody is left who may own anything.

    Examples
    --------
    >>> p = [TopicPartition("orders", n) for n in range(4)]
    >>> team = [Member("a", (p[0], p[1], p[2])), Member("b", (p[3],))]
    >>> result = assign({p[0]: 66.0, p[1]: 20.0, p[2]: 30.0, p[3]: 45.0}, team, capacity=100.0)
    >>> [(str(m.partition), m.source, m.target) for m in result.moves]
    [('orders:1', 'a', 'b')]
    >>> result.rscore, result.lower_bound, result.reasons
    (0.2, 2, ('a would carry 116 % of its capacity',))
    """
    before = {m.id: m.partitions for m in members} if current is None else current
    order = sorted(members, key=lambda m: m.id)
    ids = [m.id for m in order]
    if len(set(ids)) != len(ids):
        raise ValueError("two members share an id")
    if not any(not m.draining for m in order):
        raise ValueError("nobody may own a partition: every member is draining or there is none")
    partitions = sorted(loads)
    owner = _owner(before, ids, partitions)
    known = np.array([loads[p] is not None for p in partitions], dtype=bool)
    load = np.array([_load(p, loads[p]) for p in partitions])
    if not known.all():
        load[~known] = load[known].mean() if known.any() else 1.0
    room, reasons = _room(order, capacity)
    unknown_capacity = room is None
    if not known.all():
        names = ", ".join(str(p) for p, k in zip(partitions, known, strict=True) if not k)
        reasons.append(f"the load of {names} is not known: they stay where they are")

    relative = np.array([0.0 if m.draining else 1.0 for m in order]) if room is None else room
    if room is None:  # sizes relative to the mean alone: enough to place what has no owner, never to move
        relative = relative * max(float(load.sum()), 1.0)
    pinned = np.ones(load.size, bool) if unknown_capacity else ~known
    near = _near(order, partitions, racks)
    solver = pack_exactly if exact and len(partitions) * len(order) <= 4_000 else pack
    packing = solver(
        load,
        relative,
        owner,
        skew_limit=skew_limit,
        budget=move_budget,
        pinned=pinned if pinned.any() else None,
        preferred=near,
    )
    owned: list[list[TopicPartition]] = [[] for _ in ids]
    for p, at in zip(partitions, packing.owner.tolist(), strict=True):
        owned[at].append(p)
    after = {m: tuple(own) for m, own in zip(ids, owned, strict=True)}
    moves = difference(before, after)
    if not explain:
        return AssignmentResult(after, moves, None, None, {}, (), hold=unknown_capacity)
    stopped = sum(loads[m.partition] or 0.0 for m in moves if m.source is not None)
    reasons = _why(moves, order, load, owner, room, skew_limit) + reasons
    if room is None:
        return AssignmentResult(after, moves, None, None, {}, (), tuple(reasons), hold=True)
    final = np.bincount(packing.owner, load, len(ids)) / np.where(room > 0, room, np.inf)
    hot = tuple(p for p, s, k in zip(partitions, load, known, strict=True) if k and s > room.max())
    unit = capacity if capacity is not None else float(room.max())
    return AssignmentResult(
        after,
        moves,
        stopped / unit,
        fewest_members(load, room),
        {m: float(u) for m, u, r in zip(ids, final, room, strict=True) if r > 0},
        hot,
        tuple(reasons),
    )


def _owner(before: Assignment, ids: Sequence[str], partitions: Sequence[TopicPartition]) -> NDArray[np.intp]:
    index = {m: at for at, m in enumerate(ids)}
    owners: dict[TopicPartition, str] = {}
    for member, owned in before.items():
        for p in owned:
            if p in owners:
                raise ValueError(f"{p} is owned by {owners[p]} and by {member}")
            owners[p] = member
    return np.array([index.get(owners.get(p, ""), -1) for p in partitions], dtype=np.intp)


def _load(partition: TopicPartition, value: float | None) -> float:
    if value is None:
        return 0.0
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"the load of {partition} is {value}; it must be finite and not negative, None if unknown")
    return value


def _room(order: Sequence[Member], capacity: float | None) -> tuple[NDArray[np.float64] | None, list[str]]:
    values = [m.capacity if m.capacity is not None else capacity for m in order]
    for m, value in zip(order, values, strict=True):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"the capacity of {m.id} is {value}; it must be a positive number of records/s")
    missing = [m.id for m, value in zip(order, values, strict=True) if value is None and not m.draining]
    if missing:
        return None, [f"the capacity of {missing[0]} is not known: hold what is owned"]
    return np.array([0.0 if m.draining else value or 0.0 for m, value in zip(order, values, strict=True)]), []


def _near(
    order: Sequence[Member], partitions: Sequence[TopicPartition], racks: Mapping[TopicPartition, str] | None
) -> NDArray[np.bool_] | None:
    if not racks or not any(m.rack for m in order):
        return None
    own = [racks.get(p) for p in partitions]
    return np.array([[rack is not None and m.rack == rack for m in order] for rack in own], dtype=bool)


def _why(
    moves: Sequence[Move],
    order: Sequence[Member],
    load: NDArray[np.float64],
    owner: NDArray[np.intp],
    room: NDArray[np.float64] | None,
    skew_limit: float,
) -> list[str]:
    """One line for each reason that something moved."""
    out: list[str] = []
    if not moves:
        return out
    placed = sum(m.source is None for m in moves)
    if placed:
        out.append(f"{placed} partitions had no owner")
    present = {m.id: m for m in order}
    sources = sorted({m.source for m in moves if m.source is not None})
    gone = [s for s in sources if s not in present]
    if gone:
        out.append(f"{', '.join(gone)} left")
    draining = [s for s in sources if s in present and present[s].draining]
    if draining:
        out.append(f"{', '.join(draining)} gives everything away")
    if room is None:
        return out
    held = np.bincount(owner[owner >= 0], load[owner >= 0], len(order)) / np.where(room > 0, room, np.inf)
    busy = [(m.id, u) for m, u in zip(order, held.tolist(), strict=True) if m.id in sources and not m.draining]
    over = [(m, u) for m, u in busy if u > 1]
    out += [f"{m} would carry {u:.0%} of its capacity".replace("%", " %") for m, u in over]
    if busy and not over:
        out.append(f"the busiest member was above {skew_limit:g} times the mean")
    return out
