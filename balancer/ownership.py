"""Who owns what until the next planned step: the load of each partition, and the first step's assignment. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter

import numpy as np

from balancer.assignment import AssignmentResult, assign
from balancer.demand import CELLS
from balancer.group import Assignment, GroupSnapshot, Member
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.movement import worth_moving
from balancer.packing.bounds import l2_bound
from balancer.packing.members import is_settled
from balancer.plan import PlannedStep
from balancer.policy import ScalingPolicy
from balancer.stabilization import moved, moves_left
from forecaster.forecast import Forecast
from forecaster.topics import TopicPartition

_NAME = attrgetter("topic", "partition")


def loads_of(
    snapshot: GroupSnapshot, forecast: Forecast | None, knobs: Knobs, steps: Sequence[PlannedStep], now: datetime
) -> dict[TopicPartition, float | None]:
    """Return each partition's peak until the next planned step, or what is seen of it; None if neither is known."""
    if forecast is None:
        return {tp: p.arrival_rate for tp, p in snapshot.partitions.items()}
    until = steps[1].start if len(steps) > 1 else forecast.origin + forecast.horizon
    first = max(0, int((now - forecast.origin) / forecast.step))
    last = max(first + 1, math.ceil((until - forecast.origin) / forecast.step))
    level = forecast.nearest_level(knobs.near_level)
    peaks = forecast.peaks(level, min(first, forecast.steps - 1), last)
    ahead = dict(zip(forecast.rows, peaks.tolist(), strict=True))
    seen = ((tp, ahead.get(tp), p.arrival_rate) for tp, p in snapshot.partitions.items())
    return {tp: max((v for v in (peak, rate) if v is not None), default=None) for tp, peak, rate in seen}


def lower_bound(loads: Iterable[float | None], capacity: float, *, is_pooled: bool) -> int:
    """Return L2; where work is pooled, or no load is above half a member, it is L1, which costs nothing."""
    known = np.array([v for v in loads if v is not None])
    if is_pooled or not known.size or known.max() <= capacity / 2:
        return math.ceil(float(known.sum()) / capacity - 1e-9)
    return l2_bound(known, capacity)


_ORDINAL = re.compile(r"-(\d+)$")


def leavers(members: Sequence[Member], replicas: int) -> tuple[Member, ...]:
    """Return the members that go when so many stay: the highest ordinals of their pods, else the highest instances.

    A StatefulSet takes its highest ordinals whatever anybody says, so they are the ones to be drained; of everything
    else the choice is ours, and one that does not change from tick to tick drains nobody in vain.

    Examples
    --------
    >>> [m.id for m in leavers([Member("1#4.a"), Member("2#9.b"), Member("3#1.c")], 2)]
    ['3#1.c']
    >>> ring = [Member("1#1.a", pod="ring-2"), Member("2#1.b", pod="ring-0"), Member("3#1.c", pod="ring-1")]
    >>> [m.id for m in leavers(ring, 1)]
    ['3#1.c', '1#1.a']
    """
    live = [m for m in members if not m.draining]
    if len(live) <= replicas:
        return ()
    pods = [_ORDINAL.search(m.pod) if m.pod else None for m in live]
    if all(pods):
        places = [int(found[1]) for found in pods if found]
    else:
        places = [int(number) if (number := m.id.partition("#")[0]).isdecimal() else -1 for m in live]
    order = sorted(zip(places, live, strict=True), key=lambda pair: (pair[0], pair[1].id))
    return tuple(m for _, m in order[replicas:])


def with_owners(
    steps: list[PlannedStep],
    snapshot: GroupSnapshot,
    loads: dict[TopicPartition, float | None],
    policy: ScalingPolicy,
    memory: PlannerMemory,
    capacity: float,
    now: datetime,
    price_h: float,
    *,
    explain: bool = True,
) -> tuple[list[PlannedStep], PlannerMemory, list[str]]:
    """Give the members that work and stay (or all, if none does) their partitions; say why, if ``explain``.

    ``price_h`` is what a change of the whole group is worth avoiding for, in member-hours; 0 moves whatever betters it.
    """
    going = leavers(snapshot.members, steps[0].replicas)
    members = [m for m in snapshot.members if m.ready and not m.draining and m not in going] or list(snapshot.members)
    if not members or not loads:
        return steps, memory, ["nobody is there to own partitions yet"]
    slow = [
        f"{m.id} is slow: {m.capacity:.0f} of {capacity:.0f} records/s are planned onto it"
        for m in members
        if m.capacity is not None and m.capacity < capacity / 2
    ]
    if _is_settled(members, snapshot, loads, policy, capacity):
        owned = {m.id: tuple(sorted(m.partitions, key=_NAME)) for m in members}
        return [replace(steps[0], assignment=owned), *steps[1:]], memory, slow
    result = assign(
        loads,
        members,
        capacity=capacity,
        skew_limit=policy.skew_limit,
        move_budget=moves_left(memory.history, now, policy),
        racks=snapshot.racks,
        explain=explain,
    )
    until = (steps[1].start - now) if len(steps) > 1 else timedelta(seconds=CELLS.horizon_s)
    if why := _not_worth_it(result, members, loads, policy, capacity, until, price_h):
        owned = {m.id: tuple(sorted(m.partitions, key=_NAME)) for m in members}
        return [replace(steps[0], assignment=owned), *steps[1:]], memory, [*slow, why]
    first = replace(steps[0], assignment=result.assignment, moves=result.moves)
    stopped = sum(m.source is not None for m in result.moves)
    history = moved(memory.history, now, stopped) if stopped else memory.history
    return [first, *steps[1:]], replace(memory, history=history), [*slow, *result.reasons]


def _is_settled(
    members: Sequence[Member],
    snapshot: GroupSnapshot,
    loads: dict[TopicPartition, float | None],
    policy: ScalingPolicy,
    capacity: float,
) -> bool:
    """Whether every partition has an owner that works, and nobody's load can be bettered: then nothing may move."""
    if len(members) != len(snapshot.members):
        return False
    ownerless, carried, owner = dict(loads), [], []
    for at, m in enumerate(members):
        for p in m.partitions:
            own = ownerless.pop(p, None)
            if own is None:  # unknown, or owned twice
                return False
            carried.append(own)
            owner.append(at)
    if ownerless or not carried:
        return False
    room = np.array([m.capacity or capacity for m in members])
    return is_settled(np.array(carried), room, np.array(owner), policy.skew_limit)


def _not_worth_it(
    result: AssignmentResult,
    members: Sequence[Member],
    loads: dict[TopicPartition, float | None],
    policy: ScalingPolicy,
    capacity: float,
    until: timedelta,
    price_h: float,
) -> str | None:
    """Return why partitions stay, where moves that nothing forces would cost more than they gain until the next change.

    Forced is what cures a member above its capacity, gives work to one that has none, or has no owner that stays. All
    else levels the load: until the next change of size it is worth the members that a group as uneven as before would
    need more. It costs ``price_h`` where a move stalls the group, else the part of it that the moved partitions are.
    """
    owners = {m.id for m in members}
    given_work = any(not m.partitions and result.assignment[m.id] for m in members)
    if not result.moves or given_work or any(m.source not in owners for m in result.moves):
        return None
    known = [load for load in loads.values() if load is not None]
    usual = sum(known) / len(known) if known else 1.0  # what is not known counts as it does in the assignment
    weights = {p: usual if load is None else load for p, load in loads.items()}
    before = _busiest({m.id: m.partitions for m in members}, members, weights, capacity)
    after = _busiest(result.assignment, members, weights, capacity)
    if before > 1 or after <= 0:
        return None
    saved = len(members) * (1 - after / before)
    stops = len(result.moves)
    each, once = (0.0, price_h) if policy.moves_stall_group else (price_h / len(loads), 0.0)
    if worth_moving(saved, until, stops, each, once):
        return None
    gain, cost = saved * (until / timedelta(hours=1)), stops * each + once
    what = f"to move them costs {cost:.2g} member-hours and gains {gain:.2g} until the next change"
    return f"{stops} partitions stay: {what}"


def _busiest(
    assignment: Assignment, members: Sequence[Member], loads: dict[TopicPartition, float], capacity: float
) -> float:
    """Return the busiest member's load over its capacity."""
    return max(sum(loads.get(p, 0.0) for p in assignment[m.id]) / (m.capacity or capacity) for m in members)
