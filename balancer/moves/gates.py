"""Lanes that a planned group must not read yet: withheld by its mover until the topic's leader has opened them.

A lane is withheld while it serves no slots, and while the table gates it for the group. Its lease is then FREE without
a grant, so nobody polls it; the gate is the table's, so whoever leads the group next loads it before any grant.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from balancer.leases.base import GroupView, LeaderToken, LeaseState, LeaseStore, StartRule
from balancer.routing.base import RouteStore, TableLog
from balancer.routing.errors import RouteStoreUnavailable, RoutingError
from balancer.routing.table import SlotTable, TableRefused, decode
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")


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
        return tp.partition not in self._in_use[tp.topic] or tp.partition in table.gated(self._group)

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
        self._in_use[topic] = frozenset(table.moved.values())

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
