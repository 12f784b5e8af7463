"""A consumer group of simulated members behind the same ports as a real one: observer and actuator in one."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.actuators.base import Actuation, ActuationState
from balancer.errors import TargetRefused
from balancer.group import Assignment, GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.fleet import Fleet
from balancer.simulator.queues import FluidQueues
from forecaster.topics import GroupId, TopicPartition

Owners = NDArray[np.int64]
"""Ordinal of the member that owns each queue, −1 where nobody does; shape (queues,)."""

Sharing = Callable[[int, Owners], Owners]
"""How partitions are shared: (working members, owners until now) → owners."""


def range_sharing(working: int, owners: Owners) -> Owners:
    """Share partitions as Kafka's range assignor does for one topic: even, contiguous, blind to load.

    Examples
    --------
    >>> range_sharing(2, np.zeros(5, dtype=np.int64)).tolist()
    [0, 0, 0, 1, 1]
    """
    if working <= 0:
        return np.full(owners.size, -1, dtype=np.int64)
    size, rest = divmod(owners.size, working)
    sizes = np.full(working, size)
    sizes[:rest] += 1
    return np.repeat(np.arange(working, dtype=np.int64), sizes)


class SimulatedGroup:
    """One group over simulated members, arrivals and time; ``advance`` is the only clock.

    Implements :class:`balancer.observers.base.GroupObserver` and :class:`balancer.actuators.base.Actuator`, so the
    real control tick runs on it unchanged. Members are ordinals: ``m-0`` is the oldest; the newest leave first.

    Parameters
    ----------
    group
        Name that ports are asked for.
    trace
        What arrives. One queue without partitions is one pool that any number of members shares.
    capacity
        Records/s of one member, deterministic.
    start_s
        Seconds from request to work.
    pause_s
        Seconds that a change of the working set stalls the group (or what moved).
    at
        Start of the run; must lie in the trace.
    working
        Members that work at the start; None is ``ceil(rate / (0.8 * capacity))`` of the first minute.
    sharing
        How partitions are shared among the working members; range by default.
    pause_moved_only
        True stalls moved partitions only, as Headway's own hand-over does.
    downstream
        Records/s that all members together can pass on, however many they are; None for no limit.

    Examples
    --------
    >>> from datetime import UTC
    >>> trace = ArrivalTrace(datetime(2026, 1, 5, tzinfo=UTC), 60, np.full((1, 60), 600.0))
    >>> group = SimulatedGroup(GroupId("orders"), trace, capacity=5.0, start_s=120, pause_s=6, at=trace.start)
    >>> group.current(GroupId("orders"))
    3
    >>> group.scale(GroupId("orders"), 4, group.now).state.value
    'pending'
    >>> group.advance(trace.start + timedelta(minutes=5))
    >>> group.observe(GroupId("orders")).working
    4
    """

    def __init__(
        self,
        group: GroupId,
        trace: ArrivalTrace,
        *,
        capacity: float,
        start_s: float,
        pause_s: float,
        at: datetime,
        working: int | None = None,
        sharing: Sharing = range_sharing,
        pause_moved_only: bool = False,
        downstream: float | None = None,
    ) -> None:
        self.group = group
        self.trace = trace
        self.capacity = capacity
        self.sharing = sharing
        self.pause_moved_only = pause_moved_only
        self.downstream = math.inf if downstream is None else downstream
        self._began = at
        self._offset_s = (at - trace.start).total_seconds()
        self._quiet_s = float(min(trace.step_s, 60))
        self._slot_s = min(self._quiet_s, 15.0) if trace.partitioned else self._quiet_s
        self._base = trace.arrived_by(self._offset_s)
        if working is None:
            first_minute = float((trace.arrived_by(self._offset_s + 60) - self._base).sum()) / 60
            working = max(1, math.ceil(first_minute / (0.8 * capacity) - 1e-9))
        self.fleet = Fleet(working, start_s, pause_s)
        self.queues = FluidQueues(trace.queues)
        self.owners: Owners = np.full(trace.queues, -1, dtype=np.int64)
        self._each = np.zeros(1)
        self._stalled_until = np.full(trace.queues, -math.inf)
        self.moved_load_s: list[float] = []
        """Per change of owners: records/s of the partitions that somebody had to stop, over one member's capacity."""
        nothing: list[float | None] = [None] * trace.queues
        self._served: tuple[float, NDArray[np.float64], list[float | None]] = (0.0, np.zeros(trace.queues), nothing)
        self._seen_members: tuple[Member, ...] = ()
        self._seen_with: tuple[Owners | None, int, int] = (None, 0, 0)
        self._partitions = tuple(TopicPartition(str(group), p) for p in range(trace.queues))
        if trace.partitioned:
            self._share()
            self._stalled_until[:] = -math.inf
            self.moved_load_s.clear()

    @property
    def now(self) -> datetime:
        """The simulated instant."""
        return self._began + timedelta(seconds=self.fleet.at_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run's start."""
        return self.fleet.at_s

    def arrived_by(self, at_s: float) -> NDArray[np.float64]:
        """Return records that arrived in each queue between the run's start and ``at_s`` seconds later."""
        return self.trace.arrived_by(self._offset_s + at_s) - self._base

    def advance(self, now: datetime) -> None:
        """Let arrivals, service, starts and stalls happen until ``now``."""
        self.advance_to((now - self._began).total_seconds())

    def advance_to(self, until_s: float) -> None:
        """Let time go on to ``until_s`` seconds after the run's start.

        Stops at every edge between arrival rates, and where something waits every 15 s: members share by work, whose
        proportions then change. While nothing waits they are those of the arrivals.
        """
        fleet = self.fleet
        while fleet.at_s < until_s:
            length = self._slot_s if self.queues.backlog.any() else self._quiet_s
            slot = (math.floor(fleet.at_s / length + 1e-9) + 1) * length
            edge = min(until_s, slot, fleet.next_event_s(), self._next_queue_event_s())
            self._pass(edge)
            if fleet.move_to(edge):
                self._working_changed()

    def _next_queue_event_s(self) -> float:
        if not self.pause_moved_only:
            return math.inf
        ahead = self._stalled_until[self._stalled_until > self.fleet.at_s]
        return float(ahead.min()) if ahead.size else math.inf

    def _pass(self, until_s: float) -> None:
        fleet = self.fleet
        arrived = self.arrived_by(until_s)
        if not self.trace.partitioned:
            able = 0.0 if fleet.stalled_until_s > fleet.at_s else min(fleet.working * self.capacity, self.downstream)
            self.queues.pass_slot(until_s, arrived, able)
            return
        each = min(self.capacity, self.downstream / max(fleet.working, 1))
        if self.pause_moved_only:
            serving = self._stalled_until <= fleet.at_s
        else:
            serving = None
            each = 0.0 if fleet.stalled_until_s > fleet.at_s else each
        self.queues.pass_slot(
            until_s,
            arrived,
            self._capacities(max(fleet.working, 1), each),
            self.owners,
            None if serving is None or serving.all() else serving,
        )

    def _capacities(self, members: int, each: float) -> NDArray[np.float64]:
        """Return what each member serves; the same array until something changes."""
        if self._each.size != members or self._each[0] != each:
            self._each = np.full(members, each)
        return self._each

    def _working_changed(self) -> None:
        if self.trace.partitioned:
            self._share()

    def _share(self) -> None:
        self.own(self.sharing(self.fleet.working, self.owners))

    def own(self, owners: Owners) -> None:
        """Give partitions to members; those that change their owner stall (all do, when the pause is the group's)."""
        moved = owners != self.owners
        if not moved.any():
            return
        stopped = moved & (self.owners >= 0)
        if stopped.any():
            rates = self.arrived_by(self.fleet.at_s) - self.arrived_by(max(0.0, self.fleet.at_s - 60))
            self.moved_load_s.append(float(rates[stopped].sum()) / 60 / self.capacity)
            until = self.fleet.at_s + self.fleet.pause_s
            self._stalled_until[moved] = until
            if not self.pause_moved_only:
                self.fleet.stalled_until_s = max(self.fleet.stalled_until_s, until)
        self.owners = owners

    # -- GroupObserver -------------------------------------------------------------------------------------------

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return what can be seen now; rates are those of the last complete minute."""
        fleet = self.fleet
        minute = math.floor(fleet.at_s / 60) * 60.0
        now, before = self._offset_s + minute, self._offset_s + max(minute - 60, -self._offset_s)
        rates = (self.trace.arrived_by(now) - self.trace.arrived_by(before)) / max(now - before, 1.0)
        lags = np.rint(self.queues.backlog).astype(np.int64).tolist()
        consumed = self._consumed()
        return GroupSnapshot(
            group=group,
            at=self.now,
            replicas=fleet.requested,
            members=self._members(),
            partitions=dict(zip(self._partitions, map(PartitionState, lags, rates.tolist(), consumed), strict=True)),
            protocol=GroupProtocol.CLASSIC,
            generation=len(fleet.changes),
        )

    def _consumed(self) -> list[float | None]:
        """Return records/s served in the last minute, where somebody looked when it began; else that is not known."""
        since, before, rates = self._served
        elapsed = self.fleet.at_s - since
        if elapsed < 60:
            return rates if elapsed == 0 else [None] * self.trace.queues
        rates = ((self.queues.served - before) / 60).tolist() if elapsed == 60 else [None] * self.trace.queues
        self._served = (self.fleet.at_s, self.queues.served, rates)
        return rates

    def _members(self) -> tuple[Member, ...]:
        """Return the members as they are; the same ones until owners or members change."""
        working, count = self.fleet.working, self.fleet.working + self.fleet.pending
        owners, *counts = self._seen_with
        if owners is self.owners and counts == [working, count]:
            return self._seen_members
        owned: list[list[TopicPartition]] = [[] for _ in range(count)]
        if self.trace.partitioned:
            for partition, owner in zip(self._partitions, self.owners.tolist(), strict=True):
                if 0 <= owner < count:
                    owned[owner].append(partition)
        elif count:
            owned[0] += self._partitions  # one pool that everybody shares
        self._seen_with = (self.owners, working, count)
        self._seen_members = tuple(Member(f"m-{i}", tuple(p), ready=i < working) for i, p in enumerate(owned))
        return self._seen_members

    # -- Actuator ------------------------------------------------------------------------------------------------

    def current(self, group: GroupId) -> int | None:
        """Return what is requested now."""
        return self.fleet.requested

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Request so many members at the simulated instant.

        Raises
        ------
        TargetRefused
            If ``replicas`` is negative.
        """
        if replicas < 0:
            raise TargetRefused(f"{group}: cannot have {replicas} members; ask for 0 or more")
        previous = self.fleet.requested
        if self.fleet.request(replicas):
            self._working_changed()
        state = ActuationState.UNCHANGED if replicas == previous else ActuationState.PENDING
        return Actuation(group, now, replicas, previous, state)

    def follow(self, assignment: Assignment) -> None:
        """Own partitions as a published assignment says; members that do not work yet get theirs later."""
        owners = self.owners.copy()
        for member, partitions in assignment.items():
            ordinal = int(member.rpartition("-")[2])
            if ordinal < self.fleet.working:
                for partition in partitions:
                    owners[partition.partition] = ordinal
        self.own(owners)

    def close(self) -> None:
        """Nothing to give up."""
