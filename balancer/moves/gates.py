"""Lanes that a planned group must not read yet: withheld by its mover until the topic's leader has opened them.

A lane is withheld while it serves no slots, and while the table gates it for the group. Its lease is then FREE without
a grant, so nobody polls it; the gate is the table's, so whoever leads the group next loads it before any grant.

A lane that is being merged has to be drained while its slots are held, and its owner would commit the last records
only when its commit interval is over. So it is asked to hand the lane over as soon as every producer has answered:
who gives a partition up commits at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from balancer.leases.base import GroupView, LeaderToken, Lease, LeaseState, LeaseStore, StartRule
from balancer.routing.base import RouteStore, TableLog
from balancer.routing.errors import RouteStoreUnavailable, RoutingError
from balancer.routing.table import Kind, Phase, SlotTable, TableRefused, Transition, decode
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")

ANSWERS_WITHIN_S = 1.0
"""For so long the answers to a merge's STOP are watched closely; then the lane drains at its owner's own pace."""

LINGER_S = 15.0
"""A merged lane is read for so long where a producer has no transactions: its last records may land late."""

LAST_RECORDS_S = 0.005
"""From the last answer until the owner has handled what was written before it, where nothing is behind."""


class LaneGates:
    """The gates of one group's routed topics, and what is withheld because of them.

    Parameters
    ----------
    group, topics
        Which group, and which of its topics are routed.
    leases
        The group's leases.
    routes, tables
        Where tables are announced, and where they are committed; those are read first.
    woken
        Called when a table has changed.
    every_s
        How often the cache is looked at without being woken.
    """

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        leases: LeaseStore,
        routes: RouteStore,
        tables: TableLog,
        woken: Callable[[], None] = lambda: None,
        every_s: float = 1.0,
    ) -> None:
        self._group, self._leases, self._routes, self._log = group, leases, routes, tables
        self._woken, self._every_s = woken, every_s
        self._tables: dict[str, SlotTable | None] = {}
        self._topics = frozenset(topics)
        self._in_use: dict[str, frozenset[int]] = {}
        self._told: dict[str, int] = {}
        self._stale = threading.Event()
        self._stale.set()
        self._looked = 0.0
        self._lingers: dict[TopicPartition, float] = {}
        self._answered: set[tuple[str, int]] = set()
        self._stopped = threading.Event()
        self._ear: threading.Thread | None = None

    def listen(self) -> None:
        """Be woken by the store from here on, in a thread."""
        self._ear = threading.Thread(target=self._listen, name="headway-gates", daemon=True)
        self._ear.start()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                told = self._routes.wait("producers", timedelta(seconds=0.5))  # new tables alone, not each answer
            except RouteStoreUnavailable:
                told = self._stopped.wait(0.2)
            if told:
                self._stale.set()
                self._woken()
                with contextlib.suppress(RouteStoreUnavailable, TableRefused):
                    self._await_answers()

    def _await_answers(self) -> None:
        """While a merge stops its slots: wake the mover again when every producer has answered."""
        end = time.monotonic() + ANSWERS_WITHIN_S
        while not self._stopped.is_set() and time.monotonic() < end:
            open_ = {
                (topic, t.number): table.epoch
                for topic in self._topics
                if (data := self._routes.table(topic)) is not None
                for table in [decode(data)]
                for t in table.transitions
                if _drains_now(t) and (topic, t.number) not in self._answered
            }
            if not open_:
                return
            producers = self._routes.producers()
            known = {
                (topic, number)
                for (topic, number), epoch in open_.items()
                if all(p.acks.get(topic, 0) >= epoch for p in producers if topic in p.registration.topics)
            }
            if known:
                self._stopped.wait(LAST_RECORDS_S)
                self._answered |= known
                self._woken()
            else:
                self._routes.wait("planner", timedelta(milliseconds=10))

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def __contains__(self, tp: object) -> bool:
        """Whether a partition must stay free; all of a topic while its table is not known."""
        if not isinstance(tp, TopicPartition) or tp.topic not in self._topics:
            return False
        if tp.topic not in self._tables:
            return True
        table = self._tables[tp.topic]
        if table is None or tp.partition < table.partitions:
            return False
        if tp.partition in table.gated(self._group):
            return True
        return tp.partition not in self._in_use[tp.topic] and time.monotonic() >= self._lingers.get(tp, 0.0)

    def tick(self, token: LeaderToken, view: GroupView) -> bool:
        """Take new tables in, keep closed what must be closed, and say so; return whether leases were changed."""
        now = time.monotonic()
        if self._stale.is_set() or now - self._looked > self._every_s:
            self._stale.clear()
            self._looked = now
            for topic in sorted(self._topics):
                self._refresh(topic)
        changed = False
        for topic, table in self._tables.items():
            if table is not None:
                changed |= self._close(token, view, topic, table)
                changed |= self._drain(token, view, topic, table)
        return changed

    def _drain(self, token: LeaderToken, view: GroupView, topic: str, table: SlotTable) -> bool:
        """Have the owner of a lane that is being merged commit now, by handing the lane over."""
        changed = False
        for t in table.transitions:
            if not _drains_now(t) or (topic, t.number) not in self._answered:
                continue
            lease = view.leases.get(TopicPartition(topic, t.source))
            if lease is None or lease.state is not LeaseState.HELD or lease.next is not None or lease.void:
                continue
            self._answered = {a for a in self._answered if a[0] != topic}  # once: nothing is gained by a second time
            heir = _heir(view, lease, TopicPartition(topic, t.target))
            if heir is not None:
                changed |= self._leases.grant(token, lease.partition, heir)
        return changed

    def _refresh(self, topic: str) -> None:
        try:
            have = self._tables.get(topic)
            if have is None:
                table = self._log.read(topic)  # the commit point first: a cache may be old
                if table is None:
                    self._tables[topic] = None
                    return
            else:
                data = self._routes.table(topic)
                if data is None:
                    return
                table = decode(data)
                if table.topic_id == have.topic_id and table.epoch <= have.epoch:
                    return
        except (RoutingError, TableRefused) as error:
            log.warning("gates of %s: %s", topic, error)
            return
        self._tables[topic] = table
        before, self._in_use[topic] = self._in_use.get(topic, frozenset()), frozenset(table.moved.values())
        merged = before - self._in_use[topic]
        if merged and self._is_plain(topic):
            self._lingers |= {TopicPartition(topic, p): time.monotonic() + LINGER_S for p in merged}

    def _is_plain(self, topic: str) -> bool:
        """Whether a producer of the topic writes without transactions, so that nobody can fence it."""
        try:
            who = [p.registration for p in self._routes.producers()]
        except RouteStoreUnavailable:
            return True
        return any(w.transactional_id is None and topic in w.topics for w in who)

    def _close(self, token: LeaderToken, view: GroupView, topic: str, table: SlotTable) -> bool:
        changed, closed = False, True
        targets = table.gated(self._group)
        lanes = {tp.partition for tp in view.leases if tp.topic == topic and tp.partition >= table.partitions}
        for partition in sorted(lanes | targets):
            tp = TopicPartition(topic, partition)
            if tp not in self:
                continue
            lease = view.leases.get(tp)
            if lease is None:
                changed |= bool(self._leases.add(token, [tp], StartRule.BEGINNING, table.topic_id))
            elif lease.state is LeaseState.HELD and not lease.void:
                # Everything that it ever held is committed (a merge drains before it starts): nothing to lose.
                changed |= bool(self._leases.void(token, [tp], table.topic_id))
            elif lease.state is LeaseState.FREE and lease.next is not None:
                changed |= self._leases.withdraw(token, tp)
            elif lease.state is LeaseState.FREE:
                continue
            if partition in targets:
                closed = False
        if closed and targets and self._told.get(topic, 0) < table.epoch:
            try:
                self._routes.close_gates(topic, self._group, table.epoch)
                self._told[topic] = table.epoch
            except RouteStoreUnavailable as away:
                log.info("%s", away)
        return changed


def _drains_now(t: Transition) -> bool:
    return t.kind is Kind.MERGE and t.phase is Phase.STOPPING


def _heir(view: GroupView, lease: Lease, parent: TopicPartition) -> int | None:
    """Return who takes a lane that is being merged: the parent's owner, or anybody else who may; None if nobody."""
    mine = lease.owner.instance if lease.owner is not None else None
    others = sorted(i for i, worker in view.workers.items() if worker.may_receive and i != mine)
    held = view.leases.get(parent)
    first = held.owner.instance if held is not None and held.owner is not None else None
    return first if first in others else next(iter(others), None)
