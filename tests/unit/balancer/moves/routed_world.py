"""A routed topic in memory: logs with transactions, producers that follow tables, groups with gates.

The leader, the tables, the route store and the table log are the product's own; the world around them is modelled, so
that thousands of schedules run in seconds, without a clock that passes by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from balancer.moves.routed_topic import LogEnd
from balancer.moves.splitting import SplitLimits, TopicLeader
from balancer.routing.base import ROUTE_PREFIX, Registration, SplitRequest
from balancer.routing.errors import RouteStoreUnavailable, RoutingError, SplitRefused
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from balancer.routing.route import Route
from balancer.routing.table import SlotTable, decode

TTL = timedelta(seconds=2)


@dataclass
class Entry:
    """One record, or (``producer`` None) a transaction's marker."""

    producer: str | None
    key: bytes = b""
    seq: int = 0
    state: str = "committed"


@dataclass
class MemoryWorld:
    """See :class:`balancer.moves.routed_topic.TopicWorld`."""

    topic: str = "orders"
    count: int = 2
    most: int = 64
    id: str = "id-1"
    logs: list[list[Entry]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    wrong: str | None = None
    others: frozenset[str] = frozenset()
    fences: int = 0
    starts: dict[int, int] = field(default_factory=dict)
    """Partition → first offset that retention has left."""

    def __post_init__(self) -> None:
        self.logs = [[] for _ in range(self.count)]

    def topic_id(self) -> str | None:
        return self.id

    def partitions(self) -> int:
        return len(self.logs)

    def grow(self, partitions: int) -> None:
        if partitions > self.most:
            raise SplitRefused(f"the broker refuses {partitions} partitions")
        while len(self.logs) < partitions:
            self.logs.append([])

    def ends(self, partitions: Iterable[int]) -> dict[int, LogEnd]:
        return {p: LogEnd(len(self.logs[p]), 0, self.starts.get(p, 0)) for p in partitions}

    def route_ids(self) -> frozenset[str]:
        return frozenset(self.epochs)

    def lives(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        return {i: (1, self.epochs[i]) for i in transactional_ids if i in self.epochs}

    def strangers(self, partition: int, plain: int) -> tuple[str, ...]:
        return self.foreign

    def init(self, transactional_id: str) -> int:
        """What ``init_transactions`` does: a new epoch; what the old one left open is aborted."""
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        self.settle(transactional_id, "aborted")
        return self.epochs[transactional_id]

    def fence(self, transactional_id: str) -> None:
        self.fences += 1
        self.init(transactional_id)

    def settle(self, transactional_id: str, state: str) -> None:
        """End a transaction: its records get their state, and each partition that it touched a marker."""
        for log in self.logs:
            mine = [e for e in log if e.producer == transactional_id and e.state == "open"]
            for entry in mine:
                entry.state = state
            if mine:
                log.append(Entry(None))

    def visible_end(self, partition: int, below: int, start: int | None = None) -> int | None:
        log = self.logs[partition][:below]
        if any(e.state == "open" for e in log):
            return None
        return max((i + 1 for i, e in enumerate(log) if e.producer and e.state == "committed"), default=0)

    def committed(self, group: str, partitions: Iterable[int]) -> dict[int, int]:
        known = self.offsets.get(group, {})
        return {p: known[p] for p in partitions if p in known}

    def misplaced(self, table: SlotTable, partition: int) -> str | None:
        return self.wrong

    def late(self, table: SlotTable, partition: int, slots: Iterable[int], start: int, epoch: int) -> int:
        moved = set(slots)
        rows = [e for e in self.logs[partition][start:] if e.producer and e.state == "committed"]
        return sum(table.slot_of_key(e.key) in moved for e in rows)

    def readers(self) -> frozenset[str]:
        return self.others


class Fenced(Exception):
    """This producer's epoch is not the broker's any more."""


class Producer:
    """A transactional producer as :class:`balancer.routing.producer.RoutedProducer` behaves."""

    def __init__(self, name: str, world: MemoryWorld, store: MemoryRouteStore, tables: MemoryTableLog) -> None:
        self.id = ROUTE_PREFIX + name
        self.world, self.store = world, store
        self.who = Registration(name, f"n{world.epochs.get(self.id, 0)}", (world.topic,), self.id)
        self.epoch = world.init(self.id)
        self.store.register(self.who, TTL)
        table = tables.read(world.topic)
        assert table is not None
        self.newest = self.used = Route(table)
        self.in_transaction = False
        self.held: list[tuple[bytes, int]] = []
        self.wrote: dict[bytes, int] = {}
        self.next_seq: dict[bytes, int] = {}
        for log in world.logs:
            for e in log:
                if e.producer == self.id and e.state == "committed":
                    self.next_seq[e.key] = max(self.next_seq.get(e.key, 0), e.seq + 1)

    def hear(self) -> None:
        """Renew, answer, and learn of a newer table."""
        acks = {self.world.topic: (self.used.epoch if not self.in_transaction else self.answered)}
        try:
            epochs = self.store.renew(self.who, TTL, acks, {}, {})
            data = self.store.table(self.world.topic)
        except RouteStoreUnavailable:
            return
        if data is not None and epochs.get(self.world.topic, 0) > self.newest.epoch:
            self.newest = Route(decode(data))
            if not self.in_transaction:
                self.used = self.newest
                self.store.renew(self.who, TTL, {self.world.topic: self.used.epoch}, {}, {})

    def send(self, key: bytes) -> None:
        if not self.in_transaction:
            self.in_transaction, self.used, self.answered = True, self.newest, self.newest.epoch
            self.wrote = dict(self.next_seq)
        seq = self.wrote.get(key, 0)
        self.wrote[key] = seq + 1
        place = self.used.places[self.used.slot_of(key)]
        if place < 0:
            self.held.append((key, seq))
            self.release()
        else:
            self._append(place, key, seq)

    def release(self) -> bool:
        kept = []
        for key, seq in self.held:
            place = self.newest.places[self.newest.slot_of(key)]
            if place < 0:
                kept.append((key, seq))
            else:
                self._append(place, key, seq)
        self.held = kept
        return not kept

    def _append(self, place: int, key: bytes, seq: int) -> None:
        if self.world.epochs[self.id] == self.epoch:
            self.world.logs[place].append(Entry(self.id, key, seq, "open"))

    def commit(self) -> bool:
        """Commit, unless records are still held; raise Fenced as the broker would."""
        if not self.in_transaction or not self.release():
            return False
        if self.world.epochs[self.id] != self.epoch:
            raise Fenced
        self.world.settle(self.id, "committed")
        self.next_seq, self.in_transaction = self.wrote, False
        self.used = self.newest
        return True

    answered = 0


class Group:
    """A planned group: one reader a partition, gated as its mover gates."""

    def __init__(self, name: str, world: MemoryWorld, store: MemoryRouteStore, tables: MemoryTableLog) -> None:
        self.name, self.world, self.store, self.tables = name, world, store, tables
        self.table: SlotTable | None = None
        self.seen: dict[tuple[str, bytes], int] = {}
        self.faults: list[str] = []
        self.handled = 0

    def look(self) -> None:
        """Take the newest table in, and close its gates."""
        try:
            data = self.store.table(self.world.topic)
        except RouteStoreUnavailable:
            return
        table = decode(data) if data else self.tables.read(self.world.topic)
        if table is not None and (self.table is None or table.epoch > self.table.epoch):
            self.table = table
            if table.transitions:
                self.store.close_gates(self.world.topic, self.name, table.epoch)

    def read_all(self) -> None:
        """Read what there is, as far as the gates let."""
        for partition in range(len(self.world.logs)):
            self.read(partition, 100)

    def read(self, partition: int, most: int) -> None:
        if self.table is None:
            return
        used = set(self.table.moved.values())
        if partition >= self.table.partitions and (partition not in used or partition in self.table.gated(self.name)):
            return
        mine = self.world.offsets.setdefault(self.name, {})
        at, log = max(mine.get(partition, 0), self.world.starts.get(partition, 0)), self.world.logs[partition]
        while most and at < len(log) and log[at].state != "open":
            entry = log[at]
            at += 1
            if entry.producer is None or entry.state == "aborted":
                continue
            most -= 1
            self.handled += 1
            who = (entry.producer, entry.key)
            expected = self.seen.get(who, -1) + 1
            if entry.seq != expected:
                self.faults.append(f"{self.name}: {who} {entry.seq} instead of {expected} at {partition}@{at - 1}")
            self.seen[who] = max(entry.seq, expected)
            mine[partition] = at  # markers are passed, but not committed, as with real clients


class Play:
    """One random schedule: everything that may happen, in an order drawn by the seed."""

    def __init__(self, seed: int, groups: int = 1) -> None:
        self.rnd = Random(seed)
        self.now = 1000.0
        self.world = MemoryWorld()
        self.store = MemoryRouteStore(clock=lambda: self.now)
        self.log = MemoryTableLog()
        self.names = [f"g{i}" for i in range(groups)]
        self.leaders = [self._leader(i) for i in range(2)]
        self.step_leader(0)
        self.groups = [Group(n, self.world, self.store, self.log) for n in self.names]
        self.producers = [self._producer(i) for i in range(3)]
        self.frozen: dict[int, int] = {}

    def _leader(self, i: int) -> TopicLeader:
        limits = SplitLimits(max_partitions=6, prepare=timedelta(seconds=8))
        return TopicLeader(
            self.world, MemoryTableLog(self.log), self.store, self.names, limits=limits, clock=lambda: self.now
        )

    def _producer(self, i: int) -> Producer:
        return Producer(f"p{i}", self.world, self.store, self.log)

    def step_leader(self, i: int) -> None:
        with contextlib.suppress(RoutingError):
            self.leaders[i].step()

    def turn(self) -> None:
        rnd = self.rnd
        self.now += rnd.choice((0.0, 0.01, 0.05, 0.3))
        i = rnd.randrange(len(self.producers))
        what = rnd.random()
        if what < 0.30:
            if self.frozen.get(i, 0) == 0:
                self.producers[i].send(b"k%d" % rnd.randrange(6))
        elif what < 0.50:
            if self.frozen.get(i, 0) == 0:
                try:
                    self.producers[i].commit()
                    self.producers[i].hear()
                except Fenced:
                    self.reborn(i)
        elif what < 0.62:
            if self.frozen.get(i, 0) == 0:
                self.producers[i].hear()
        elif what < 0.80:
            group = rnd.choice(self.groups)
            group.look()
            group.read(rnd.randrange(len(self.world.logs)), rnd.randrange(1, 5))
        elif what < 0.95:
            self.step_leader(0 if rnd.random() < 0.9 else 1)
        elif what < 0.965:
            kind = rnd.choice(("split", "merge"))
            if not self.store.away:
                id = f"r{rnd.random()}"
                self.store.request(SplitRequest(id, "orders", rnd.randrange(2), kind, rnd.choice((2, 3))))
        elif what < 0.973:
            self.reborn(i)
        elif what < 0.98:
            self.frozen[i] = 0 if self.frozen.get(i) else 1
        elif what < 0.985:
            self.leaders[rnd.randrange(2)] = self._leader(0)
        elif what < 0.99:
            self.store.lose()
        else:
            self.store.away = not self.store.away

    def reborn(self, i: int) -> None:
        """A crash and a new life under the same name: what was open is aborted."""
        away, self.store.away = self.store.away, False
        self.producers[i] = self._producer(i)
        self.store.away, self.frozen[i] = away, 0

    def finish(self) -> None:
        """Let everybody come to rest."""
        self.store.away, self.frozen = False, {}
        for _ in range(150):
            self.now += 0.1
            self.step_leader(0)
            table = self.leaders[0].table
            idle = table is not None and not table.transitions and not any(p.held for p in self.producers)
            if idle and all(g.handled >= self.truth() for g in self.groups):
                break
            for i, p in enumerate(self.producers):
                p.hear()
                try:
                    p.commit()
                except Fenced:
                    self.reborn(i)
            for group in self.groups:
                group.look()
                for partition in range(len(self.world.logs)):
                    group.read(partition, 1000)

    def truth(self) -> int:
        """Return how many records are committed."""
        return sum(e.producer is not None and e.state == "committed" for log in self.world.logs for e in log)
