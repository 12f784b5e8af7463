"""Table log and route store in memory: for tests, and for what runs in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from balancer.routing.base import ProducerState, Registration, SplitRequest
from balancer.routing.errors import LeaderSuperseded, RegistrationRefused, RouteStoreUnavailable
from balancer.routing.table import SlotTable, decode, encode


class MemoryTableLog:
    """A log of tables; each writer that takes a topic supersedes the one before.

    ``shared`` is another log whose records this one reads and writes, as another process would.
    """

    def __init__(self, shared: MemoryTableLog | None = None) -> None:
        self.records: list[bytes] = shared.records if shared else []
        self._writers: dict[str, int] = shared._writers if shared else {}
        self._mine: dict[str, int] = {}

    def read(self, topic: str) -> SlotTable | None:
        """See :meth:`balancer.routing.base.TableLog.read`."""
        tables = (decode(record) for record in reversed(self.records))
        return next((table for table in tables if table.topic == topic), None)

    def take(self, topic: str) -> SlotTable | None:
        """See :meth:`balancer.routing.base.TableLog.take`."""
        self._mine[topic] = self._writers[topic] = self._writers.get(topic, 0) + 1
        return self.read(topic)

    def append(self, table: SlotTable) -> None:
        """See :meth:`balancer.routing.base.TableLog.append`."""
        if self._writers.get(table.topic) != self._mine.get(table.topic, -1):
            raise LeaderSuperseded(f"somebody else leads {table.topic} now")
        self.records.append(encode(table))

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class _Row:
    who: Registration
    deadline: float
    acks: dict[str, int] = field(default_factory=dict)
    sample: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)


class MemoryRouteStore:
    """A route store that several threads of one process share.

    Parameters
    ----------
    clock
        Seconds; deadlines are judged by it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._versions = {"producers": 0, "planner": 0}
        self._seen: dict[tuple[int, str], int] = {}
        self._rows: dict[str, _Row] = {}
        self._tables: dict[str, SlotTable] = {}
        self._leads: dict[str, tuple[str, float]] = {}
        self._gates: dict[str, dict[str, int]] = {}
        self._requests: dict[str, dict[str, SplitRequest]] = {}
        self.away = False
        """Whether nobody answers at present (tests)."""

    def lose(self) -> None:
        """Forget everything, as a store does that was emptied."""
        with self._changed:
            for kept in (self._rows, self._tables, self._leads, self._gates, self._requests):
                kept.clear()

    def _answer(self) -> None:
        if self.away:
            raise RouteStoreUnavailable("the route store does not answer")

    def _wake(self, *names: str) -> None:
        for name in names:
            self._versions[name] += 1
        self._changed.notify_all()

    def register(self, who: Registration, ttl: timedelta) -> None:
        """See :meth:`balancer.routing.base.RouteStore.register`."""
        self._answer()
        with self._changed:
            self._rows[who.name] = _Row(who, self._clock() + ttl.total_seconds())

    def renew(
        self,
        who: Registration,
        ttl: timedelta,
        acks: Mapping[str, int],
        sample: Mapping[str, Sequence[str]],
        rates: Mapping[str, float],
    ) -> dict[str, int]:
        """See :meth:`balancer.routing.base.RouteStore.renew`."""
        self._answer()
        with self._changed:
            row = self._rows.get(who.name)
            if row is None:
                row = self._rows[who.name] = _Row(who, 0.0)
            elif row.who.nonce != who.nonce:
                raise RegistrationRefused(f"another producer named {who.name} has registered")
            row.who, row.deadline = who, self._clock() + ttl.total_seconds()
            row.sample, row.rates = {t: tuple(k) for t, k in sample.items()}, dict(rates)
            if dict(acks) != row.acks:
                row.acks = dict(acks)
                self._wake("planner")
            return {t: self._tables[t].epoch for t in who.topics if t in self._tables}

    def leave(self, who: Registration) -> None:
        """See :meth:`balancer.routing.base.RouteStore.leave`."""
        self.forget(who)

    def table(self, topic: str) -> bytes | None:
        """See :meth:`balancer.routing.base.RouteStore.table`."""
        self._answer()
        table = self._tables.get(topic)
        return None if table is None else encode(table)

    def wait(self, name: str, timeout: timedelta) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.wait`."""
        me = (threading.get_ident(), name)
        with self._changed:
            seen = self._seen.get(me, 0)
            told = self._changed.wait_for(lambda: self._versions[name] > seen, timeout.total_seconds())
            self._seen[me] = self._versions[name]
            return told

    def lead(self, topic: str, holder: str, ttl: timedelta) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.lead`."""
        self._answer()
        with self._changed:
            now = self._clock()
            other, until = self._leads.get(topic, (holder, 0.0))
            if other != holder and until > now:
                return False
            self._leads[topic] = (holder, now + ttl.total_seconds())
            return True

    def resign(self, topic: str, holder: str) -> None:
        """See :meth:`balancer.routing.base.RouteStore.resign`."""
        self._answer()
        with self._changed:
            if self._leads.get(topic, ("", 0.0))[0] == holder:
                del self._leads[topic]

    def publish(self, table: SlotTable) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.publish`."""
        self._answer()
        with self._changed:
            have = self._tables.get(table.topic)
            if have is not None and have.topic_id == table.topic_id and have.epoch >= table.epoch:
                return False
            self._tables[table.topic] = table
            self._wake("producers", "planner")
            return True

    def producers(self) -> tuple[ProducerState, ...]:
        """See :meth:`balancer.routing.base.RouteStore.producers`."""
        self._answer()
        with self._changed:
            now = self._clock()
            rows = sorted(self._rows.values(), key=lambda row: row.who.name)
            return tuple(ProducerState(r.who, r.deadline > now, dict(r.acks), dict(r.sample), r.rates) for r in rows)

    def forget(self, who: Registration) -> None:
        """See :meth:`balancer.routing.base.RouteStore.forget`."""
        self._answer()
        with self._changed:
            row = self._rows.get(who.name)
            if row is not None and row.who.nonce == who.nonce:
                del self._rows[who.name]
                self._wake("planner")

    def close_gates(self, topic: str, group: str, epoch: int) -> None:
        """See :meth:`balancer.routing.base.RouteStore.close_gates`."""
        self._answer()
        with self._changed:
            gates = self._gates.setdefault(topic, {})
            gates[group] = max(epoch, gates.get(group, 0))
            self._wake("planner")

    def gates(self, topic: str) -> dict[str, int]:
        """See :meth:`balancer.routing.base.RouteStore.gates`."""
        self._answer()
        return dict(self._gates.get(topic, {}))

    def request(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.request`."""
        self.settle(request)

    def requests(self, topic: str) -> tuple[SplitRequest, ...]:
        """See :meth:`balancer.routing.base.RouteStore.requests`."""
        self._answer()
        return tuple(self._requests.get(topic, {}).values())

    def settle(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.settle`."""
        self._answer()
        with self._changed:
            self._requests.setdefault(request.topic, {})[request.id] = request
            self._wake("planner")

    def drop(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.drop`."""
        self._answer()
        with self._changed:
            self._requests.get(request.topic, {}).pop(request.id, None)

    def close(self) -> None:
        """Nothing is held."""
