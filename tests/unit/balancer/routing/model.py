"""A small world in which the real protocol runs: every interleaving of it is explored by the tests beside this file.

One moving slot, a source and a target partition, transactional producers, groups, of which some may register at any
point, leaders that may be replaced at any point, a store that may lose registrations. The table and its steps are the
product's own code; the world around it (logs, transactions, fences, acknowledgements) is modelled.

A *rule* may be switched off to see that the exploration finds what it is there for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from balancer.routing import protocol
from balancer.routing.table import Fence, Kind, Phase, SlotTable, TableRefused

SLOT, SOURCE, TARGET = 0, 0, 1


class Record(NamedTuple):
    producer: int
    number: int
    state: str  # open, committed, aborted


class Route(NamedTuple):
    """All that a table means to a producer."""

    partition: int
    held: bool


class Producer(NamedTuple):
    known: Route | None  # by the newest table it has seen; None: not registered
    used: Route | None  # what it routes by: changes only between transactions
    written: int  # records written in this life, the committed ones of earlier lives included
    committed: int
    in_transaction: bool
    fenced: bool  # the broker refuses it; it learns so at its next commit
    heard: bool  # it has seen the STOP that is under way
    acked: bool  # it has answered that STOP


class Group(NamedTuple):
    at_source: int
    at_target: int
    granted: bool
    seen: tuple[int, ...]  # last record processed of each producer


class World(NamedTuple):
    table: int  # index of the durable table
    logs: tuple[tuple[Record, ...], tuple[Record, ...]]
    producers: tuple[Producer, ...]
    groups: tuple[Group, ...]
    registered: frozenset[int]  # what the store says
    listed: frozenset[int]  # what the brokers list: ids that have initialised transactions
    measured: tuple[int, int] | None  # F and G in a leader's memory, not written yet
    takeovers: int
    losses: int
    aborts: int
    crashes: int


class Violation(AssertionError):
    """An invariant does not hold; the message names it."""


@dataclass
class Model:
    """Rules and sizes of one exploration.

    ``records`` per producer; ``groups`` that are registered from the first and ``joins`` that register later;
    ``takeovers`` of the leader, ``losses`` of the store, ``aborts`` and producer ``crashes`` that may happen, each at
    any point.
    """

    kind: Kind = Kind.SPLIT
    records: tuple[int, ...] = (2, 1)
    groups: int = 2
    joins: int = 1
    takeovers: int = 1
    losses: int = 1
    aborts: int = 1
    crashes: int = 1
    wait_for_acks: bool = True
    ask_the_brokers: bool = True
    drain_before_open: bool = True
    hold_while_stopped: bool = True
    tables: list[SlotTable] = field(default_factory=list)
    _index: dict[tuple[object, ...], int] = field(default_factory=dict)

    def first(self) -> World:
        """Return the world before the move."""
        table = protocol.adopt("orders", "id", 1, "murmur2", [f"g{i}" for i in range(self.groups)])
        if self.kind is Kind.MERGE:  # the slot lives in the lane; the source of the merge is the lane
            table = _moved_to_lane(table)
        producers = tuple(Producer(None, None, 0, 0, False, False, False, False) for _ in self.records)
        group = Group(0, 0, self.kind is Kind.MERGE, (0,) * len(self.records))
        groups = (group,) * (self.groups + self.joins)
        nobody: frozenset[int] = frozenset()
        return World(self.intern(table), ((), ()), producers, groups, nobody, nobody, None, 0, 0, 0, 0)

    def intern(self, table: SlotTable) -> int:
        """Return the table's index: equal tables share one."""
        key = (table.epoch, table.transitions, table.partition_of_slot(SLOT), table.groups, table.kept)
        if key not in self._index:
            self._index[key] = len(self.tables)
            self.tables.append(table)
        return self._index[key]

    # the two partitions by their role in this move
    @property
    def source(self) -> int:
        return SOURCE if self.kind is Kind.SPLIT else TARGET

    @property
    def target(self) -> int:
        return TARGET if self.kind is Kind.SPLIT else SOURCE

    def successors(self, w: World) -> Iterator[tuple[str, World]]:
        """Yield every step that the world can take next."""
        yield from self._producers(w)
        yield from self._groups(w)
        yield from self._leader(w)
        yield from self._faults(w)

    def _producers(self, w: World) -> Iterator[tuple[str, World]]:
        durable = self.tables[w.table]
        route = Route(durable.partition_of_slot(SLOT), SLOT in durable.held_slots())
        stopping = any(t.phase is Phase.STOPPING for t in durable.transitions)
        for i, p in enumerate(w.producers):
            if p.known is None:
                # init_transactions lists its id, then it registers, then it reads the table topic to the end
                fresh = p._replace(known=route, used=route, heard=stopping, acked=stopping)
                world = self._with(w, i, fresh)
                yield f"P{i} registers", world._replace(registered=w.registered | {i}, listed=w.listed | {i})
                continue
            if p.known != route or (stopping and not p.heard):
                seen = p._replace(known=route, heard=p.heard or stopping)
                yield f"P{i} sees epoch {durable.epoch}", self._with(w, i, self._settle(seen))
            assert p.used is not None
            if p.written < self.records[i] and not (p.used.held and self.hold_while_stopped):
                sent = p._replace(written=p.written + 1, in_transaction=True)
                if p.fenced:  # it succeeds locally, the broker appends nothing
                    yield f"P{i} sends into the void", self._with(w, i, sent)
                else:
                    where = p.used.partition
                    logs = list(w.logs)
                    logs[where] = (*logs[where], Record(i, sent.written, "open"))
                    yield f"P{i} sends to {where}", self._with(w, i, sent)._replace(logs=tuple(logs))
            if p.in_transaction:
                if p.fenced:  # _FENCED: a new life begins behind what was committed
                    dead = _new_life(p)
                    yield f"P{i} is told it was fenced", self._with(w, i, dead)
                else:
                    done = self._settle(p._replace(in_transaction=False, committed=p.written))
                    yield f"P{i} commits", self._with(w, i, done)._replace(logs=_settled(w.logs, i, "committed"))

    def _settle(self, p: Producer) -> Producer:
        """Between transactions a producer routes by the newest table it knows, and acknowledges it."""
        if p.in_transaction or p.known is None:
            return p
        return p._replace(used=p.known, acked=p.heard)

    def _groups(self, w: World) -> Iterator[tuple[str, World]]:
        durable = self.tables[w.table]
        for j, g in enumerate(w.groups):
            name = f"g{j}"
            if name not in durable.groups:
                # with what is kept, order is promised to it from the last F on only: it is warned, and not modelled
                if not durable.kept:
                    with suppress(TableRefused):  # a transition is open
                        yield f"{name} registers", self._write(w, protocol.register(durable, name))
                continue
            partition_of = ((SOURCE, g.at_source), (TARGET, g.at_target))
            for partition, position in partition_of:
                if partition == TARGET and not g.granted:
                    continue
                log = w.logs[partition]
                if position < len(log) and log[position].state != "open":
                    moved = self._process(g, log[position], name)
                    moved = moved._replace(**{("at_source", "at_target")[partition]: position + 1})
                    yield f"{name} reads {partition}@{position}", self._with_group(w, j, moved)
            gated = self.drain_before_open and TARGET in durable.gated(name)
            if not g.granted and not gated and durable.partition_of_slot(SLOT) == TARGET:
                yield f"{name} is granted the lane", self._with_group(w, j, g._replace(granted=True))

    def _process(self, g: Group, record: Record, name: str) -> Group:
        if record.state == "aborted":
            return g
        expected = g.seen[record.producer] + 1
        if record.number != expected:
            what = "again" if record.number < expected else "out of order"
            raise Violation(f"I4/I5: {name} gets record {record.number} of producer {record.producer} {what}")
        seen = list(g.seen)
        seen[record.producer] = record.number
        return g._replace(seen=tuple(seen))

    def _leader(self, w: World) -> Iterator[tuple[str, World]]:
        table = self.tables[w.table]
        if not table.transitions:
            moved = table.partition_of_slot(SLOT) == self.target
            if not moved:
                yield "PREPARE", self._write(w, protocol.prepare(table, self.kind, [SLOT], self.source, self.target))
            return
        (t,) = table.transitions
        for kind, source, target in ((Kind.SPLIT, SOURCE, TARGET), (Kind.MERGE, TARGET, SOURCE)):
            with suppress(TableRefused):  # somebody asks meanwhile
                yield f"PREPARE {kind} too", self._write(w, protocol.prepare(table, kind, [SLOT], source, target))
        if t.phase is Phase.PREPARED:
            deaf = tuple(p._replace(heard=False, acked=False) for p in w.producers)
            yield "STOP", self._write(w, protocol.stop(table, t.number))._replace(producers=deaf)
        if t.phase is Phase.STOPPING:
            yield from self._fencing(w, table, t.number)
        if t.phase is Phase.FENCED:
            with suppress(TableRefused):  # a merge that is not drained yet
                yield "START", self._write(w, protocol.start(table, t.number))
        for j, name in self._registered(w, table):
            if name not in t.drained and t.fence is not None:
                position = (w.groups[j].at_source, w.groups[j].at_target)[t.source]
                if position >= t.fence.source_end:
                    with suppress(TableRefused):  # not at the point where it drains
                        yield f"{name} DRAINED", self._write(w, protocol.drained(table, t.number, name))
            if name not in t.opened:
                with suppress(TableRefused):  # a merge, or not drained yet
                    yield f"OPEN {name}", self._write(w, protocol.open_(table, t.number, name))
        with suppress(TableRefused):  # a group has not passed it yet
            yield "DONE", self._write(w, protocol.done(table, t.number))
        if w.aborts < self.aborts and t.phase is not Phase.STARTED:
            yield "ABORT", self._write(w, protocol.abort(table, t.number))._replace(aborts=w.aborts + 1, measured=None)

    def _fencing(self, w: World, table: SlotTable, number: int) -> Iterator[tuple[str, World]]:
        enumerated = w.registered | (w.listed if self.ask_the_brokers else frozenset())
        waiting = [
            i for i in sorted(enumerated)
            if not w.producers[i].fenced and w.producers[i].known is not None and not w.producers[i].acked
        ]  # fmt: skip
        for i in waiting:  # its lease expires, or nothing explains its id: fence it
            p = w.producers[i]._replace(fenced=True)
            world = self._with(w, i, p if p.in_transaction else _new_life(p))
            yield f"P{i} is fenced", world._replace(logs=_settled(w.logs, i, "aborted"))
        if (not waiting or not self.wait_for_acks) and w.measured is None:
            yield "ends are measured", w._replace(measured=(len(w.logs[self.source]), len(w.logs[self.target])))
        if w.measured is not None:
            ends = Fence(w.measured[0], 1, w.measured[1], 1)
            fenced = protocol.fence(table, number, ends)
            yield "FENCE", self._write(w, fenced)._replace(measured=None)
            here = self._registered(w, table)
            if self.kind is Kind.MERGE and all(w.groups[j].at_target >= ends.source_end for j, _ in here):
                # what the leader does: F stays in its memory until the lane is drained, then it is all one record
                for _, name in here:
                    fenced = protocol.drained(fenced, number, name)
                whole = protocol.done(protocol.start(fenced, number), number)
                yield "FENCE to DONE", self._write(w, whole)._replace(measured=None)

    def _faults(self, w: World) -> Iterator[tuple[str, World]]:
        if w.takeovers < self.takeovers and self.tables[w.table].transitions:
            # the new leader initialises the table's transactional id first: a late write of the old one is refused
            yield "another leader takes over", w._replace(takeovers=w.takeovers + 1, measured=None)
        if w.losses < self.losses and w.registered:
            yield "the store loses its registrations", w._replace(registered=frozenset(), losses=w.losses + 1)
        if w.crashes < self.crashes:
            for i, p in enumerate(w.producers):
                if p.known is not None and not p.fenced:
                    # restart under the same id: init_transactions aborts what was open
                    dead = _new_life(p)
                    world = self._with(w, i, dead)._replace(crashes=w.crashes + 1)
                    yield f"P{i} crashes", world._replace(logs=_settled(w.logs, i, "aborted"))

    def check(self, w: World) -> None:
        """Raise :class:`Violation` if an invariant on tables, gates or logs does not hold."""
        table = self.tables[w.table]
        under_way = [(t.slots, t.target) for t in table.transitions]
        if sum(SLOT in slots for slots, _ in under_way) > 1 or len({gate for _, gate in under_way}) < len(under_way):
            raise Violation("I7: two open transitions move one slot, or to one partition")
        here = self._registered(w, table)
        for j, name in here:
            if w.groups[j].granted and TARGET in table.gated(name):
                raise Violation(f"I6: {name} was granted a lane that the table gates")
        for f, g in self._fences(table):
            for what, log in (("beyond F", w.logs[self.source][f:]), ("below G", w.logs[self.target][:g])):
                for r in log:
                    if r.state != "aborted":
                        raise Violation(f"I3: record {r.number} of producer {r.producer} lies {what}")
            if self.kind is Kind.MERGE and any(r.state != "aborted" for r in w.logs[self.target][g:]):
                for j, name in here:
                    if w.groups[j].at_target < f:
                        raise Violation(f"I8: a shared partition holds what {name} must not read yet")

    def _fences(self, table: SlotTable) -> list[tuple[int, int]]:
        """Return F and G of what is under way, and of what is done."""
        fences = [t.fence for t in table.transitions if t.fence is not None]
        return [(f.source_end, f.target_end) for f in fences] + [(k.source_end, k.target_end) for k in table.kept]

    @staticmethod
    def _registered(w: World, table: SlotTable) -> list[tuple[int, str]]:
        return [(j, name) for j in range(len(w.groups)) if (name := f"g{j}") in table.groups]

    def is_finished(self, w: World) -> bool:
        """Whether the move is done and every record is processed everywhere."""
        table = self.tables[w.table]
        at_rest = not table.transitions and table.partition_of_slot(SLOT) == self.target
        sent = all(p.committed == n for p, n in zip(w.producers, self.records, strict=True))
        return at_rest and sent and all(w.groups[j].seen == self.records for j, _ in self._registered(w, table))

    def _write(self, w: World, table: SlotTable) -> World:
        return w._replace(table=self.intern(table))

    def _with(self, w: World, i: int, p: Producer) -> World:
        return w._replace(producers=(*w.producers[:i], p, *w.producers[i + 1 :]))

    def _with_group(self, w: World, j: int, g: Group) -> World:
        return w._replace(groups=(*w.groups[:j], g, *w.groups[j + 1 :]))


def _moved_to_lane(table: SlotTable) -> SlotTable:
    return replace(table, epoch=2, moved={SLOT: TARGET})


def _new_life(p: Producer) -> Producer:
    return Producer(None, None, p.committed, p.committed, False, False, False, False)


def _settled(logs: tuple[tuple[Record, ...], ...], producer: int, state: str) -> tuple[tuple[Record, ...], ...]:
    return tuple(
        tuple(r._replace(state=state) if r.producer == producer and r.state == "open" else r for r in log)
        for log in logs
    )


@dataclass(frozen=True)
class Explored:
    """What an exploration saw."""

    worlds: int
    finished: int
    stuck: tuple[str, ...] | None
    violation: str | None
    path: tuple[str, ...] = ()


def explore(model: Model, limit: int = 2_000_000) -> Explored:
    """Visit every reachable world, breadth first; stop at the first violation, with the shortest path to it."""
    first = model.first()
    came: dict[World, tuple[World, str] | None] = {first: None}
    frontier, finished, stuck = [first], 0, None

    def path(w: World) -> tuple[str, ...]:
        steps = []
        while came[w] is not None:
            w, step = came[w]  # type: ignore[misc]
            steps.append(step)
        return tuple(reversed(steps))

    while frontier:
        following = []
        for w in frontier:
            moved = False
            try:
                model.check(w)
                for step, then in model.successors(w):
                    moved = True
                    if then not in came:
                        came[then] = (w, step)
                        following.append(then)
            except Violation as found:
                return Explored(len(came), finished, None, str(found), path(w))
            if model.is_finished(w):
                finished += 1
            elif not moved and stuck is None:
                stuck = path(w)
            if len(came) > limit:
                raise RuntimeError(f"more than {limit} worlds: choose smaller sizes")
        frontier = following
    return Explored(len(came), finished, stuck, None)
