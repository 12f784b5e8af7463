"""Leases of planned consumers: the values, and the port through which they are kept.

One *instance* is a worker's numbered place; one *incarnation* is one life of it: a counter plus a random nonce, since
counters can come back after a store fail-over. Only the worker has a deadline, judged by the store's own clock. A
lease is valid while its owner's incarnation is live.

Invariants that every implementation keeps (the contract suite checks them):

* L1 at most one unfenced owner per partition;
* L4 epochs only grow, never come back;
* L5 nothing is granted while a lease is FENCING.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from balancer.errors import BalancerError
from balancer.plans.base import LeaderToken as LeaderToken  # the token is the same; the rules take it from here
from forecaster.topics import GroupId, TopicPartition

PROTOCOL_VERSION = 1
"""Version of what workers and planner say to each other through the store."""

KEPT_MOVES = 200
"""Moves that a store remembers."""

KEPT_ANSWERS = 50
"""Requests that a store remembers after they were answered."""

EPOCH_LEAP = 1 << 20
"""How far epochs jump when a store that may have lost its tail is founded again."""


class LeaseStoreError(BalancerError):
    """The lease store could not do what was asked."""


class LeaseStoreUnavailable(LeaseStoreError):
    """Nobody answered. Nothing can be granted meanwhile, so whoever works may go on working."""


class LeaseStoreLost(LeaseStoreError):
    """The store may have lost its tail (restart, fail-over, emptied); nobody takes anything until it is founded."""


class InstanceTaken(LeaseStoreError):
    """Somebody alive has that instance number."""


class ProtocolRefused(LeaseStoreError):
    """Worker library and planner do not speak the same protocol version; upgrade the older one."""


class GroupReleased(LeaseStoreError):
    """The group has been given back to its ordinary protocol; ``headway adopt`` puts it under the plan again."""


class LeaseRefused(LeaseStoreError):
    """The store says no: the incarnation is superseded or expired, or the lease is not what the caller believes."""


class LeaseState(StrEnum):
    """Where a lease stands."""

    HELD = "HELD"
    FREE = "FREE"
    FENCING = "FENCING"


class StartRule(StrEnum):
    """Where to start a partition that has no committed offset."""

    POLICY = "policy"
    """What the user chose: the partition is as old as the group."""
    BEGINNING = "beginning"
    """Log start: the partition is younger than the group, so nothing of it may be skipped."""


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """One incarnation of one instance.

    Examples
    --------
    >>> Owner.parse("3#7.ab12")
    Owner(instance=3, number=7, nonce='ab12')
    >>> str(Owner(3, 7, "ab12"))
    '3#7.ab12'
    """

    instance: int
    number: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.instance}#{self.number}.{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Read ``instance#number.nonce``.

        Raises
        ------
        ValueError
            If the text has another form.
        """
        instance, _, incarnation = text.partition("#")
        number, dot, nonce = incarnation.partition(".")
        if not (instance.isdecimal() and number.isdecimal() and dot and nonce):
            raise ValueError(f"{text!r} is not instance#number.nonce")
        return cls(int(instance), int(number), nonce)


@dataclass(frozen=True, slots=True)
class Lease:
    """One partition's lease.

    ``next`` is the grant: on a FREE lease who may take it, on a HELD one to whom its owner should hand over.
    ``offset`` and ``leader_epoch`` are what an orderly release handed over. ``void`` tells the owner to drop the
    partition without a commit, because its topic was created again.
    """

    partition: TopicPartition
    state: LeaseState
    owner: Owner | None
    epoch: int
    next: Owner | None = None
    offset: int | None = None
    leader_epoch: int | None = None
    topic_id: str | None = None
    start: StartRule = StartRule.POLICY
    void: bool = False


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """What a worker says of itself when it claims an instance."""

    mode: str = "transactional"
    """``membership`` is fenced by the group; every other mode by its producer epoch."""
    pod: str = ""
    rack: str = ""
    """Where it runs, as its ``client.rack`` says; empty if it does not."""
    protocol: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker says with each renewal. Flags are only ever raised, never lowered."""

    initialised: bool = False
    """``init_transactions()`` has returned: every earlier incarnation is fenced."""
    ready: bool = False
    """Warm: metadata, coordinator and one fetch are behind it."""
    draining: bool = False
    capacity: float | None = None
    """Records/s that it could handle, from the time that it spent handling."""
    rate: float | None = None
    """Records/s that it handled lately."""
    busy: float | None = None
    """Share of wall time spent in the handler and in commits, within [0, 1]."""
    cpu: float | None = None
    """Share of one core that the process used lately."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic → a few keys of late, hexadecimal."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker as the store sees it."""

    owner: Owner
    live: bool
    expires_in: timedelta
    """Until its deadline; negative when it has passed."""
    initialised: bool
    ready: bool
    draining: bool
    profile: WorkerProfile
    heartbeat: Mapping[str, Any] = field(default_factory=dict)

    @property
    def may_receive(self) -> bool:
        """Whether partitions may be granted to it."""
        return self.live and self.initialised and self.ready and not self.draining


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What concerns one worker: leases that it holds or may take, and whether it should drain."""

    plan_epoch: int
    draining: bool
    leases: Mapping[TopicPartition, Lease]
    released: bool = False
    """The group is given back: give up everything, in order."""


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A partition goes to an instance; ``state`` and ``detail`` say how that stands or ended.

    ``seconds`` is how long it took, known once it has ended; ``source`` the instance that held the partition when it
    began, ``at`` when that was (ISO 8601).
    """

    id: str
    partition: TopicPartition
    target: int
    state: str = "requested"
    detail: str = ""
    seconds: float | None = None
    epoch: int | None = None
    source: int | None = None
    at: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.seconds is not None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A whole group as its planner sees it."""

    version: int
    plan_epoch: int
    workers: Mapping[int, WorkerState]
    leases: Mapping[TopicPartition, Lease]
    requests: Mapping[str, MoveRequest]
    released: bool = False
    """Given back to the ordinary protocol: whoever is left drains, nobody begins or receives."""

    def owned(self, instance: int) -> tuple[TopicPartition, ...]:
        """Return the partitions that any incarnation of ``instance`` holds or is being fenced from, sorted."""
        return tuple(
            sorted(
                lease.partition
                for lease in self.leases.values()
                if lease.owner is not None and lease.owner.instance == instance and lease.state is not LeaseState.FREE
            )
        )


class LeaseStore(Protocol):
    """Leases, workers and plan of one group.

    Every method raises :class:`LeaseStoreUnavailable` when nobody answers, and all but ``lead``, ``resign`` and
    ``found`` raise :class:`LeaseStoreLost` when the store may have lost its tail. Methods that take a token raise
    :class:`balancer.errors.StaleLeader` for an old one.
    """

    @property
    def group(self) -> GroupId:
        """The group whose leases these are."""
        ...

    # -- worker side --------------------------------------------------------------------------------------------
    def claim(self, instance: int | None, nonce: str, ttl: timedelta, profile: WorkerProfile) -> Owner:
        """Begin a life: on ``instance``, or on the lowest free one.

        Raises
        ------
        InstanceTaken
            While that instance's current incarnation is live.
        ProtocolRefused
            If the planner does not speak the profile's protocol version.
        GroupReleased
            While the group is given back to its ordinary protocol.
        """
        ...

    def renew(self, owner: Owner, ttl: timedelta, heartbeat: Heartbeat) -> WorkerView:
        """Put the deadline off by compare-and-set, and see what is to be done.

        Raises
        ------
        LeaseRefused
            If the incarnation is superseded or its deadline has passed: an expired lease never revives.
        """
        ...

    def take(self, owner: Owner, partition: TopicPartition) -> Lease:
        """Turn a grant into a held lease with the next epoch; the answer carries the offset handed over, if any.

        Raises
        ------
        LeaseRefused
            If the lease is not granted to this incarnation, or the incarnation is not live.
        """
        ...

    def release(
        self,
        owner: Owner,
        partition: TopicPartition,
        epoch: int,
        offset: int | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """Give a held lease up after the last commit; a grant written on it stays.

        Raises
        ------
        LeaseRefused
            If the lease is no longer this incarnation's at that epoch.
        """
        ...

    def leave(self, owner: Owner) -> None:
        """End a life in order.

        Raises
        ------
        LeaseRefused
            If it still holds leases, or is superseded.
        """
        ...

    def wait(self, name: str, timeout: timedelta) -> bool:
        """Wait until something changed for ``name`` (an instance number, or ``planner``); False at the timeout."""
        ...

    # -- planner side -------------------------------------------------------------------------------------------
    def lead(self, holder: str, ttl: timedelta) -> LeaderToken | None:
        """Take or renew the right to change leases; None while another holder is live."""
        ...

    def resign(self, token: LeaderToken) -> None:
        """Give that right back, if it is still ours."""
        ...

    def view(self) -> GroupView:
        """Return everything known of the group."""
        ...

    def is_lost(self) -> bool:
        """Whether the store must be founded (again) before anybody takes anything."""
        ...

    def found(
        self,
        token: LeaderToken,
        *,
        epoch_floor: int,
        plan_epoch: int = 0,
        protocols: tuple[int, int] = (PROTOCOL_VERSION, PROTOCOL_VERSION),
    ) -> None:
        """Start the group's books anew, after every worker that might be alive has been fenced.

        Every later lease epoch is above ``epoch_floor``. All leases and lives that were known are forgotten.
        """
        ...

    def add(
        self, token: LeaderToken, partitions: Iterable[TopicPartition], start: StartRule, topic_id: str | None = None
    ) -> int:
        """Create FREE leases for partitions that have none; return how many were created."""
        ...

    def drop(self, token: LeaderToken, partitions: Iterable[TopicPartition]) -> int:
        """Forget leases of partitions that are gone; held ones too, whose owners then drop them."""
        ...

    def void(self, token: LeaderToken, partitions: Iterable[TopicPartition], topic_id: str) -> int:
        """Tell owners to drop partitions without a commit (their topic was created again); return how many."""
        ...

    def grant(self, token: LeaderToken, partition: TopicPartition, instance: int) -> bool:
        """Write the next owner on a lease; False if the instance may not receive, already holds it, or L5 forbids."""
        ...

    def withdraw(self, token: LeaderToken, partition: TopicPartition) -> bool:
        """Take a grant back; False if there was none."""
        ...

    def drain(self, token: LeaderToken, instance: int) -> bool:
        """Ask a worker to drain; False if it is not live."""
        ...

    def begin_fence(self, token: LeaderToken, instance: int) -> tuple[int, tuple[TopicPartition, ...]]:
        """Put the leases of an instance's lives that ended into FENCING.

        Returns the number of the incarnation to be fenced and its partitions (none: nothing to fence).
        """
        ...

    def end_fence(self, token: LeaderToken, instance: int, number: int) -> tuple[TopicPartition, ...]:
        """Free every FENCING lease of incarnations up to ``number``, all at once; only after the fence returned."""
        ...

    def supersede(self, token: LeaderToken, instance: int) -> tuple[TopicPartition, ...]:
        """Free leases of earlier lives of an instance whose current life has initialised (and so fenced them)."""
        ...

    def publish(self, token: LeaderToken, plan: Mapping[str, Any]) -> int:
        """Replace the readable plan atomically; return its epoch, which only grows."""
        ...

    def plan(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the readable plan and its epoch."""
        ...

    # -- anybody ------------------------------------------------------------------------------------------------
    def request(self, request: MoveRequest) -> None:
        """Ask whoever leads for a move."""
        ...

    def set_released(self, released: bool) -> None:
        """Give the group back to its ordinary protocol, or take it under the plan again."""
        ...

    def settle(self, token: LeaderToken, request: MoveRequest) -> None:
        """Record how a move stands or ended: for whoever asked for it, and among the moves."""
        ...

    def moves(self) -> tuple[MoveRequest, ...]:
        """Return the last moves under way or ended, in the order in which they began."""
        ...

    def close(self) -> None:
        """Give up connections; everything kept stays."""
        ...


def transactional_id(group: str, instance: int) -> str:
    """Return the transactional id of an instance; whoever initialises it fences the one before.

    Examples
    --------
    >>> transactional_id("orders", 3)
    'headway.orders.3'
    """
    return f"headway.{group}.{instance}"
