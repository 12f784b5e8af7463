"""Leases in this process's memory: the twin for tests and simulations, under the same contract suite as Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from secrets import token_hex
from typing import Any

from balancer.leases.base import (
    PROTOCOL_VERSION,
    GroupView,
    Heartbeat,
    Lease,
    LeaseStoreLost,
    MoveRequest,
    Owner,
    StartRule,
    WorkerProfile,
    WorkerView,
)
from balancer.leases.rules import Books
from balancer.plans.base import LeaderToken
from forecaster.topics import GroupId, TopicPartition


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


class MemoryLeaseStore:
    """One group's leases under a lock.

    Parameters
    ----------
    group
        The consumer group.
    clock
        Seconds, monotonic; tests pass their own.

    Examples
    --------
    >>> store = MemoryLeaseStore(GroupId("orders"))
    >>> token = store.lead("planner-1", timedelta(seconds=5))
    >>> store.found(token, epoch_floor=0)
    >>> store.add(token, [TopicPartition("orders", 0)], StartRule.POLICY)
    1
    """

    def __init__(self, group: GroupId, clock: Callable[[], float] = time.monotonic) -> None:
        self._books = Books(group)
        self._clock = clock
        self._changed = threading.Condition()
        self._nonce = token_hex(4)

    @property
    def group(self) -> GroupId:
        """The group whose leases these are."""
        return self._books.group

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _tell(self) -> None:
        if self._books.woken:
            self._changed.notify_all()

    # -- worker side --------------------------------------------------------------------------------------------
    def claim(self, instance: int | None, nonce: str, ttl: timedelta, profile: WorkerProfile) -> Owner:
        """See :meth:`balancer.leases.base.LeaseStore.claim`."""
        with self._changed:
            owner = self._books.claim(self._now(), instance, nonce, _ms(ttl), profile)
            self._tell()
            return owner

    def renew(self, owner: Owner, ttl: timedelta, heartbeat: Heartbeat) -> WorkerView:
        """See :meth:`balancer.leases.base.LeaseStore.renew`."""
        with self._changed:
            view = self._books.renew(self._now(), owner, _ms(ttl), heartbeat)
            self._tell()
            return view

    def take(self, owner: Owner, partition: TopicPartition) -> Lease:
        """See :meth:`balancer.leases.base.LeaseStore.take`."""
        with self._changed:
            lease = self._books.take(self._now(), owner, partition)
            self._tell()
            return lease

    def release(
        self,
        owner: Owner,
        partition: TopicPartition,
        epoch: int,
        offset: int | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.release`."""
        with self._changed:
            self._books.release(self._now(), owner, partition, epoch, offset, leader_epoch)
            self._tell()

    def leave(self, owner: Owner) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.leave`."""
        with self._changed:
            self._books.leave(self._now(), owner)
            self._tell()

    def wait(self, name: str, timeout: timedelta) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.wait`."""
        with self._changed:
            woken = self._changed.wait_for(lambda: name in self._books.woken, timeout.total_seconds())
            self._books.woken.discard(name)
            return woken

    # -- planner side -------------------------------------------------------------------------------------------
    def lead(self, holder: str, ttl: timedelta) -> LeaderToken | None:
        """See :meth:`balancer.leases.base.LeaseStore.lead`."""
        with self._changed:
            return self._books.lead(self._now(), holder, f"{holder}.{self._nonce}", _ms(ttl))

    def resign(self, token: LeaderToken) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.resign`."""
        with self._changed:
            self._books.resign(self._now(), token)

    def view(self) -> GroupView:
        """See :meth:`balancer.leases.base.LeaseStore.view`."""
        with self._changed:
            return self._books.view(self._now())

    def is_lost(self) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.is_lost`."""
        with self._changed:
            return not self._books.founded

    def found(
        self,
        token: LeaderToken,
        *,
        epoch_floor: int,
        plan_epoch: int = 0,
        protocols: tuple[int, int] = (PROTOCOL_VERSION, PROTOCOL_VERSION),
    ) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.found`."""
        with self._changed:
            self._books.found(self._now(), token, epoch_floor, plan_epoch, protocols)
            self._tell()

    def lose(self) -> None:
        """Forget everything, as a store does that was emptied (for tests and simulations)."""
        with self._changed:
            leader = self._books.leader, self._books.leader_number, self._books.leader_deadline
            self._books = Books(self._books.group)
            self._books.leader, self._books.leader_number, self._books.leader_deadline = leader

    def add(
        self, token: LeaderToken, partitions: Iterable[TopicPartition], start: StartRule, topic_id: str | None = None
    ) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.add`."""
        with self._changed:
            added = self._books.add(self._now(), token, partitions, start, topic_id)
            self._tell()
            return added

    def drop(self, token: LeaderToken, partitions: Iterable[TopicPartition]) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.drop`."""
        with self._changed:
            dropped = self._books.drop(self._now(), token, partitions)
            self._tell()
            return dropped

    def void(self, token: LeaderToken, partitions: Iterable[TopicPartition], topic_id: str) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.void`."""
        with self._changed:
            voided = self._books.void(self._now(), token, partitions, topic_id)
            self._tell()
            return voided

    def grant(self, token: LeaderToken, partition: TopicPartition, instance: int) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.grant`."""
        with self._changed:
            granted = self._books.grant(self._now(), token, partition, instance)
            self._tell()
            return granted

    def withdraw(self, token: LeaderToken, partition: TopicPartition) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.withdraw`."""
        with self._changed:
            withdrawn = self._books.withdraw(self._now(), token, partition)
            self._tell()
            return withdrawn

    def drain(self, token: LeaderToken, instance: int) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.drain`."""
        with self._changed:
            asked = self._books.drain(self._now(), token, instance)
            self._tell()
            return asked

    def begin_fence(self, token: LeaderToken, instance: int) -> tuple[int, tuple[TopicPartition, ...]]:
        """See :meth:`balancer.leases.base.LeaseStore.begin_fence`."""
        with self._changed:
            fenced = self._books.begin_fence(self._now(), token, instance)
            self._tell()
            return fenced

    def end_fence(self, token: LeaderToken, instance: int, number: int) -> tuple[TopicPartition, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.end_fence`."""
        with self._changed:
            freed = self._books.end_fence(self._now(), token, instance, number)
            self._tell()
            return freed

    def supersede(self, token: LeaderToken, instance: int) -> tuple[TopicPartition, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.supersede`."""
        with self._changed:
            freed = self._books.supersede(self._now(), token, instance)
            self._tell()
            return freed

    def publish(self, token: LeaderToken, plan: Mapping[str, Any]) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.publish`."""
        with self._changed:
            return self._books.publish(self._now(), token, plan)

    def plan(self) -> tuple[int, Mapping[str, Any]] | None:
        """See :meth:`balancer.leases.base.LeaseStore.plan`."""
        with self._changed:
            if not self._books.founded:
                raise LeaseStoreLost(f"leases of {self.group} are not founded")
            return (self._books.plan_epoch, self._books.plan) if self._books.plan is not None else None

    # -- anybody ------------------------------------------------------------------------------------------------
    def request(self, request: MoveRequest) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.request`."""
        with self._changed:
            self._books.request(request)
            self._tell()

    def set_released(self, released: bool) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.set_released`."""
        with self._changed:
            self._books.set_released(released)
            self._tell()

    def settle(self, token: LeaderToken, request: MoveRequest) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.settle`."""
        with self._changed:
            self._books.settle(self._now(), token, request)

    def moves(self) -> tuple[MoveRequest, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.moves`."""
        with self._changed:
            if not self._books.founded:
                raise LeaseStoreLost(f"leases of {self.group} are not founded")
            return tuple(self._books.moves.values())

    def close(self) -> None:
        """Nothing to give up."""
