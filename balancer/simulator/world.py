"""The world of a simulation, and one run of a policy that decides from what it sees, or of a fixed path."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from balancer.rivals.fixed import WEEK_MINUTES
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.batch import SLOT_S, BatchPolicy, Floats, Integers, Seen, Setting
from balancer.simulator.group import SimulatedGroup
from balancer.simulator.outcome import Outcome, conclude
from forecaster.topics import GroupId

SIMULATED = GroupId("simulated")


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What every policy of a comparison meets.

    Parameters
    ----------
    trace
        Arrivals, history included; only what lies before ``start`` is known to a policy when it begins.
    start, end
        The run, whole minutes.
    capacity
        Records/s of one member.
    start_s, pause_s, slo_s
        Seconds from request to work; stall at a change; latency beyond which a record is late.
    max_replicas
        Upper limit for every policy (partitions cap it too).
    pause_moved_only
        True stalls moved partitions only.
    min_replicas
        Lower limit for every policy; 0 lets Headway's group sleep, the rules keep one.

    Raises
    ------
    ValueError
        If the run does not lie in the trace, or a number cannot be meant.
    """

    trace: ArrivalTrace
    start: datetime
    end: datetime
    capacity: float
    start_s: float = 120.0
    pause_s: float = 6.0
    slo_s: float = 60.0
    max_replicas: int = 64
    pause_moved_only: bool = False
    min_replicas: int = 1
    minutes: Floats = field(init=False, repr=False)
    """Records per minute of the whole trace, all queues together."""

    def __post_init__(self) -> None:
        if not 0 < self.capacity < math.inf:
            raise ValueError(f"capacity={self.capacity} must be a positive number of records/s")
        if self.max_replicas < 1:
            raise ValueError(f"max_replicas={self.max_replicas} must be 1 or more")
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(f"min_replicas={self.min_replicas} must be within 0 and max_replicas={self.max_replicas}")
        if self.start_s < 0 or self.pause_s < 0 or self.slo_s <= 0:
            raise ValueError("start time and pause must not be negative, and the SLO must be longer than zero")
        if not self.trace.start <= self.start < self.end <= self.trace.end:
            raise ValueError(
                f"the run {self.start.isoformat()} … {self.end.isoformat()} must lie within the trace "
                f"{self.trace.start.isoformat()} … {self.trace.end.isoformat()}"
            )
        if (self.start - self.trace.start) % timedelta(minutes=1) or (self.end - self.start) % timedelta(minutes=1):
            raise ValueError("the run must begin and end on whole minutes of the trace")
        object.__setattr__(self, "minutes", self.trace.minutes().sum(axis=0))

    @property
    def first_minute(self) -> int:
        """Minutes of the trace before the run."""
        return int((self.start - self.trace.start).total_seconds() // 60)

    @property
    def run_minutes(self) -> int:
        """Minutes of the run."""
        return int((self.end - self.start).total_seconds() // 60)

    @property
    def limit_replicas(self) -> int:
        """Upper limit after the partition cap."""
        return min(self.max_replicas, self.trace.queues) if self.trace.partitioned else self.max_replicas

    @property
    def history(self) -> Floats:
        """Records per minute before the run."""
        return self.minutes[: self.first_minute]

    @property
    def shares(self) -> Floats:
        """Share of each queue in the records of the last week before the run, shape (queues,); even where none came."""
        queues = self.trace.queues
        total = self.trace.minutes()[:, max(0, self.first_minute - WEEK_MINUTES) : max(self.first_minute, 1)].sum(
            axis=1
        )
        return total / total.sum() if total.sum() > 0 else np.full(queues, 1 / queues)

    @property
    def arrivals(self) -> Floats:
        """Records per minute of the run."""
        return self.minutes[self.first_minute : self.first_minute + self.run_minutes]

    def within(self, wanted: int) -> int:
        """Return a wish as the limits let it be."""
        return min(max(wanted, self.min_replicas), self.limit_replicas)

    def setting(self, rows: Floats, before: Floats) -> Setting:
        """Return this world for batch runs over the given rows of history."""
        return Setting(rows, before, self.capacity, self.start_s, self.pause_s, self.slo_s, None, self.min_replicas)

    def group(self, *, start_s: float | None = None, working: int | None = None) -> SimulatedGroup:
        """Return a fresh simulated group at the run's start."""
        return SimulatedGroup(
            SIMULATED,
            self.trace,
            capacity=self.capacity,
            start_s=self.start_s if start_s is None else start_s,
            pause_s=self.pause_s,
            at=self.start,
            working=working,
            pause_moved_only=self.pause_moved_only,
        )


def run_rule(world: World, policy: BatchPolicy, notes: tuple[str, ...] = ()) -> Outcome:
    """Run a rule that looks every 15 s at lag and at the rate of the last complete minute."""
    group = world.group()
    fleet, first = group.fleet, group.fleet.requested
    first_minute = world.first_minute
    rates = world.minutes / 60
    for slot in range(world.run_minutes * 60 // SLOT_S):
        at_s = float(slot * SLOT_S)
        group.advance_to(at_s)
        minute = first_minute + int(at_s // 60)
        rate = rates[minute - 1] if minute else 0.0
        wanted = policy.decide(
            Seen(
                at_s,
                np.array([group.queues.backlog.sum()]),
                np.array([rate]),
                np.array([fleet.requested]),
                np.array([fleet.working]),
            )
        )
        replicas = world.within(int(wanted[0]))
        if replicas != fleet.requested:
            group.scale(SIMULATED, replicas, group.now)
    group.advance_to(world.run_minutes * 60.0)
    return conclude(group, world.start, first, world.slo_s, notes)


def run_path(world: World, path: Integers, *, clairvoyant: bool = False, notes: tuple[str, ...] = ()) -> Outcome:
    """Run a known path of replicas, one entry a minute.

    A clairvoyant path names *working* members: its starts cost nothing, it is the limit that others are held against.
    """
    first = int(path[0]) if clairvoyant else None
    group = world.group(start_s=0.0 if clairvoyant else None, working=first)
    begin = group.fleet.requested
    edges = np.concatenate([[0], np.flatnonzero(np.diff(path)) + 1])
    for minute in edges.tolist():
        group.advance_to(minute * 60.0)
        group.scale(SIMULATED, world.within(int(path[minute])), group.now)
    group.advance_to(world.run_minutes * 60.0)
    return conclude(group, world.start, begin, world.slo_s, notes)
