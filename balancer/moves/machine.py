"""One move as a state machine: where it stands, what to do next, and how it ends (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from balancer.leases.base import GroupView, Lease, LeaseState
from forecaster.topics import TopicPartition


class MoveState(StrEnum):
    """Where a move stands; the last five are ends."""

    REQUESTED = "requested"
    """Waits until the target is warm: a partition leaves its owner only then."""
    RELEASING = "releasing"
    """The owner was told to hand over."""
    TAKING = "taking"
    """Free, and granted to the target."""
    DONE = "done"
    WITHDRAWN = "withdrawn"
    """The owner lives and did not release in time; it keeps the partition."""
    REFUSED = "refused"
    """There is no such partition, or no such worker came up in time."""
    FAILED = "failed"
    """The target died or did not take; the partition goes to somebody else."""
    SUPERSEDED = "superseded"
    """A later move of the same partition took its place."""


ENDS = frozenset({MoveState.DONE, MoveState.WITHDRAWN, MoveState.REFUSED, MoveState.FAILED, MoveState.SUPERSEDED})


class Order(StrEnum):
    """What the mover should do for a move now."""

    GRANT = "grant"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """After how long a move ends by itself."""

    target: timedelta = timedelta(seconds=60)
    """For the target to be warm."""
    release: timedelta = timedelta(seconds=15)
    """For a live owner to release."""
    take: timedelta = timedelta(seconds=10)
    """For the target to take what is free."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One move on its way: partition to instance. Instants are seconds of one monotonic clock."""

    id: str
    partition: TopicPartition
    target: int
    began: float
    state: MoveState = MoveState.REQUESTED
    since: float = 0.0
    detail: str = ""
    epoch: int | None = None
    source: int | None = None
    """Instance that held the partition when the move began; None where nobody did."""
    at: str | None = None
    """When it began, ISO 8601."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDS

    def seconds(self, now: float) -> float:
        """How long it has taken so far, or took."""
        return (self.since if self.is_over else now) - self.began


def advance(move: Transfer, view: GroupView, now: float, limits: MoveLimits) -> tuple[Transfer, Order | None]:
    """Return where a move stands after looking at the group, and what to do.

    Examples
    --------
    >>> from balancer.leases.base import GroupView
    >>> empty = GroupView(0, 0, {}, {}, {})
    >>> move = Transfer("m", TopicPartition("orders", 99), 2, began=0.0)
    >>> advance(move, empty, 1.0, MoveLimits())[0].detail
    'orders:99 is not a partition of this group'
    """
    if move.is_over:
        return move, None
    lease = view.leases.get(move.partition)
    if lease is None:
        return _to(move, MoveState.REFUSED, now, f"{move.partition} is not a partition of this group"), None
    if _is_held_by(lease, move.target):
        return replace(_to(move, MoveState.DONE, now), epoch=lease.epoch), None
    if move.state is MoveState.REQUESTED:
        return _requested(move, lease, view, now, limits)
    return _under_way(move, lease, view, now, limits)


def _requested(
    move: Transfer, lease: Lease, view: GroupView, now: float, limits: MoveLimits
) -> tuple[Transfer, Order | None]:
    worker = view.workers.get(move.target)
    if worker is not None and worker.may_receive and lease.state is not LeaseState.FENCING:
        return _to(move, MoveState.RELEASING, now), Order.GRANT
    if now - move.began > limits.target.total_seconds():
        why = "does not exist" if worker is None else "drains" if worker.draining else "is not ready"
        return _to(move, MoveState.REFUSED, now, f"instance {move.target} {why}"), None
    return move, None


def _under_way(
    move: Transfer, lease: Lease, view: GroupView, now: float, limits: MoveLimits
) -> tuple[Transfer, Order | None]:
    worker = view.workers.get(move.target)
    granted = lease.next is not None and lease.next.instance == move.target
    if lease.state is LeaseState.FENCING:
        return move, None  # the owner died on the way: free after the fence
    if not granted or worker is None or lease.next != worker.owner:
        if worker is not None and worker.may_receive:
            return move, Order.GRANT  # written on a lease that has been freed by a fence since, or to an earlier life
        return _to(move, MoveState.FAILED, now, f"instance {move.target} is gone"), None
    if lease.state is LeaseState.HELD:
        if now - move.since > limits.release.total_seconds():
            text = f"{lease.owner} did not release within {limits.release.total_seconds():g} s and keeps it"
            return _to(move, MoveState.WITHDRAWN, now, text), Order.WITHDRAW
        return move, None
    if move.state is MoveState.RELEASING:
        return _to(move, MoveState.TAKING, now), None
    if now - move.since > limits.take.total_seconds():
        text = f"instance {move.target} did not take it within {limits.take.total_seconds():g} s"
        return _to(move, MoveState.FAILED, now, text), Order.WITHDRAW
    return move, None


def _is_held_by(lease: Lease, instance: int) -> bool:
    held = lease.state is LeaseState.HELD and lease.owner is not None and lease.owner.instance == instance
    return held and lease.next is None


def _to(move: Transfer, state: MoveState, now: float, detail: str = "") -> Transfer:
    return replace(move, state=state, since=now, detail=detail)
