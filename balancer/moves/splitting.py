"""The leader of one routed topic: carries splits and merges through, step by durable step.

Every step is a table with a higher epoch in the table topic; the store's cache and the producers follow. A leader that
ends leaves a table from which another goes on: acknowledgements, drains and, before START, F and G are asked again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from secrets import token_hex

from balancer.errors import BalancerError
from balancer.moves.admission import SplitLimits as SplitLimits
from balancer.moves.admission import must_be_placed, must_be_splittable
from balancer.moves.evidence import Evidence, Watch
from balancer.moves.kafka import FenceFailed
from balancer.moves.lanes import chosen_moves, merge_order
from balancer.moves.routed_topic import TopicWorld, groups_below
from balancer.routing import protocol
from balancer.routing.base import RouteStore, SplitRequest, TableLog
from balancer.routing.errors import (
    LeaderSuperseded,
    RouteStoreUnavailable,
    RoutingError,
    SplitRefused,
    TableLogUnavailable,
)
from balancer.routing.table import Kept, Kind, Phase, SlotTable, TableRefused, Transition

log = logging.getLogger("headway.splitting")

LEAD_FOR = timedelta(seconds=3)

NEAR_S, PATIENCE = 0.3, 5.0
"""A merge stops its slots when each group has committed what its lane held so long ago; a second longer ago for each so
many seconds that it has waited, up to the hold limit: the hold lasts about as long as the lane's lag."""

LATE_AFTER_S = 12.0
"""So long after a switch it is counted what plain producers wrote behind it: they have given records up by then."""

FORGET_EVERY_S = 60.0
"""How often it is looked whether retention has passed the F of what is done."""

REQUESTS_KEPT = 50
"""Ended requests that stay for people to look at."""


class TopicLeader:
    """Leads one topic while the store and the table topic say so.

    Parameters
    ----------
    world
        The topic as the brokers have it.
    tables, store
        Where tables are committed; where they are announced.
    groups
        Registered groups: each drains and gates.
    hash_name
        Of the first table: how the topic's keys are placed at present.
    limits
        See :class:`SplitLimits`.
    holder
        Name of this process.
    clock, wall
        Monotonic seconds; seconds since 1970.
    """

    def __init__(
        self,
        world: TopicWorld,
        tables: TableLog,
        store: RouteStore,
        groups: Iterable[str],
        hash_name: str = "murmur2",
        limits: SplitLimits | None = None,
        holder: str = "planner",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.world, self._tables, self._store = world, tables, store
        self.topic = world.topic
        self._groups, self._hash = tuple(sorted(set(groups))), hash_name
        self.limits = limits or SplitLimits()
        self._holder = f"{holder}.{token_hex(3)}"
        self._clock, self._wall = clock, wall
        self._led_until = 0.0
        self._published = 0
        self._evidence = Evidence(world, store, self.limits.merge_lag, self._alarm, clock)
        self._watches: dict[int, Watch] = {}
        self._forgot = clock()
        self._began: dict[str, float] = {}
        self._holds: dict[int, list[tuple[str, float]]] = {}
        self._mark = (0, 0.0, 0, 0)  # of the merge that waits: number, when its lane was looked at, its end, its start
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.table: SlotTable | None = None
        """The table as committed last; None while this leader does not lead."""
        self._switched: deque[tuple[float, int, Kept, int]] = deque()
        self.late = 0
        """Records of producers without transactions that landed behind a switch."""
        self.alarms: list[str] = []
        """What people should look at: unregistered producers, data loss."""
        self.on_alarm: Callable[[str], None] = lambda text: None
        self.on_step: Callable[[SlotTable, SlotTable], None] = lambda before, after: None
        """Called with each table that was committed."""

    # -- leading ------------------------------------------------------------------------------------------------
    def step(self) -> SlotTable | None:
        """Look once and do what follows; None while somebody else leads.

        Raises
        ------
        RoutingError, TableRefused
            If the store or the brokers do not answer, or the topic must not be adopted; it is tried again.
        """
        now = self._clock()
        try:
            if now > self._led_until:
                if not self._store.lead(self.topic, self._holder, LEAD_FOR):
                    self.table = None
                    return None
                self._led_until = now + LEAD_FOR.total_seconds() / 3
                if self.table is not None and self._store.table(self.topic) is None:
                    self._published = 0  # the store was emptied: its cache comes from the table topic again
            if self.table is None:
                self._begin()
            self._announce()
            if not self._now.held_slots():  # nothing else while slots are held
                self._accept()
        except RouteStoreUnavailable:
            # No transition advances while the store is away, but a hold must end: go on to the limits.
            if self.table is None:
                raise
        try:
            self._advance()
            self._announce()
            if not self._now.held_slots():
                self._settle()
                self._count_late()
                self._forget()
        except (LeaderSuperseded, TableLogUnavailable):
            self.table = None  # whatever happened, only a fresh read knows
            raise
        return self.table

    def _begin(self) -> None:
        table = self._tables.take(self.topic)
        self._watches.clear()
        here = self.world.topic_id()
        if here is None:
            raise RoutingError(f"topic {self.topic} does not exist")
        if table is None:
            table = protocol.adopt(self.topic, here, self.world.partitions(), self._hash, self._groups)
            must_be_placed(table, self.world)
            self._tables.append(table)
            log.info("%s is routed from now on: %d partitions by %s", self.topic, table.partitions, table.hash)
        elif table.topic_id != here:
            fresh = protocol.adopt(self.topic, here, self.world.partitions(), self._hash, self._groups)
            self._alarm(f"{self.topic} was created again: {len(table.transitions)} transitions are void")
            table = replace(fresh, epoch=table.epoch + 1)
            self._tables.append(table)
        self.table, self._published = table, 0
        self._regroup()

    def _regroup(self) -> None:
        table = self._now
        if table.transitions or self._groups == table.groups:
            return
        after = table
        for group in sorted(set(self._groups) - set(table.groups)):
            after = protocol.register(after, group)
        for group in sorted(set(table.groups) - set(self._groups)):
            after = protocol.unregister(after, group)
        self._commit(after)

    @property
    def _now(self) -> SlotTable:
        if self.table is None:
            raise RoutingError(f"{self._holder} does not lead {self.topic}")
        return self.table

    def _commit(self, after: SlotTable) -> None:
        before = self._now
        if after.epoch == before.epoch:
            return
        self._tables.append(after)
        self.table = after
        if stopping := _stopping(after) - _stopping(before):
            self._evidence.stopped(after.epoch)
            self._holds |= {t.number: [(str(t.kind), self._clock())] for t in after.transitions if t.number in stopping}
        self._tell_holds(after)
        done = {(t.slots, t.source): t.number for t in before.transitions}
        for kept in after.kept[len(before.kept) :]:
            self._switched.append((self._clock() + LATE_AFTER_S, done[kept.slots, kept.source], kept, after.epoch))
        self.on_step(before, after)

    def _tell_holds(self, after: SlotTable) -> None:
        """Say of each hold that has ended how long it was, and what it was spent on."""
        for number in list(self._holds):
            now = after.transition(number)
            if now is not None and now.holds():
                continue
            marks = [*self._holds.pop(number), ("written", self._clock())]
            parts = ", ".join(f"{b[0]} {1e3 * (b[1] - a[1]):.0f}" for a, b in pairwise(marks))
            kind, since = marks[0]
            log.info("%s %d held its slots for %.0f ms: %s", kind, number, 1e3 * (marks[-1][1] - since), parts)

    def _mark_hold(self, number: int, what: str) -> None:
        if number in self._holds:  # not for one that an earlier leader has stopped
            self._holds[number].append((what, self._clock()))

    def _announce(self) -> None:
        table = self._now
        if self._published < table.epoch:
            self._store.publish(table)
            self._published = table.epoch

    def _alarm(self, text: str) -> None:
        if text not in self.alarms:
            log.error("%s", text)
            self.alarms = [*self.alarms[-99:], text]
            self.on_alarm(text)

    # -- what was asked for -------------------------------------------------------------------------------------
    def _accept(self) -> None:
        for request in self._store.requests(self.topic):
            if request.state != "requested":
                continue
            self._began.setdefault(request.id, self._clock())
            try:
                self._open(request)
            except (SplitRefused, TableRefused) as refused:
                self._end(request, "refused", str(refused))
            except RouteStoreUnavailable:
                raise
            except BalancerError as error:
                log.warning("%s: %s; tried again", self.topic, error)

    def _open(self, request: SplitRequest) -> None:
        """Open the transitions of a request, all of a split's at once, a merge's one after the other."""
        table = self._now
        self._regroup()
        if request.kind == "merge":
            order = merge_order(table, request.partition)
            if not order:
                raise SplitRefused(f"{self.topic}:{request.partition} has no lanes; there is nothing to merge")
            moves = [(order[0], request.partition, table.slots_of(order[0]))]
            kind = Kind.MERGE
        else:
            must_be_splittable(table, request, self.world, self._store.producers(), self.limits)
            moves = chosen_moves(table, request, self.world.partitions(), self.limits.max_partitions)
            kind = Kind.SPLIT
            self.world.grow(1 + max(target for _, target, _ in moves))
        for source, target, slots in moves:
            table = protocol.prepare(table, kind, slots, source, target)
        before = self._now.epoch
        self._commit(table)
        numbers = tuple(t.number for t in table.transitions if t.number > before)
        self._store.settle(replace(request, state="moving", numbers=numbers, epoch=table.epoch))

    def _settle(self) -> None:
        """End requests whose transitions are over; go on with merges of several lanes."""
        table = self._now
        asked = self._store.requests(self.topic)
        ended = sorted((r for r in asked if r.is_over), key=lambda r: r.epoch or 0)
        for old in ended[:-REQUESTS_KEPT]:
            self._store.drop(old)
        for request in asked:
            if request.state != "moving" or any(table.transition(n) for n in request.numbers):
                continue
            why = next((self._aborted[n] for n in request.numbers if n in self._aborted), None)
            if why is not None:
                self._end(request, "aborted", why)
            elif request.kind == "split" or not table.lanes_of(request.partition):
                self._end(request, "done", "")
            else:
                self._store.settle(replace(request, state="requested"))  # the next lane

    _aborted: dict[int, str] = {}  # noqa: RUF012 - replaced, never changed

    def _end(self, request: SplitRequest, state: str, detail: str) -> None:
        seconds = round(self._clock() - self._began.pop(request.id, self._clock()), 3)
        log.info("%s of %s:%d: %s %s", request.kind, self.topic, request.partition, state, detail)
        epoch, at = self._now.epoch, round(self._wall(), 3)
        done = replace(request, state=state, detail=detail, seconds=seconds, epoch=epoch, ended_at=at)
        self._store.settle(done)

    # -- transitions --------------------------------------------------------------------------------------------
    def _advance(self) -> None:
        """Take every open transition as far as the world permits, in one write."""
        table = self._now
        for transition in table.transitions:
            watch = self._watch(transition, self._now.epoch)
            try:
                table = self._next(table, transition, watch)
            except (RoutingError, FenceFailed) as away:  # a hold must end, whoever does not answer
                if str(away) != watch.said:
                    log.warning("%s: transition %d waits: %s", self.topic, transition.number, away)
                watch.said = str(away)
                table = self._too_long(table, transition, watch, str(away))
        for number in set(self._watches) - {t.number for t in table.transitions}:
            del self._watches[number]
        self._commit(table)

    def _watch(self, transition: Transition, epoch: int) -> Watch:
        watch = self._watches.get(transition.number)
        if watch is None or watch.phase is not transition.phase:
            watch = self._watches[transition.number] = Watch(transition.phase, self._clock(), epoch)
        return watch

    def _next(self, table: SlotTable, t: Transition, watch: Watch) -> SlotTable:
        if t.phase is Phase.PREPARED:
            if self._evidence.is_prepared(table, t, watch):
                if t.kind is Kind.SPLIT or self._is_near(table, t, watch):
                    return protocol.stop(table, t.number)
                return self._too_long(table, t, watch, f"partition {t.source} was never all but drained")
            return self._too_long(table, t, watch, "not every group has closed its gate")
        if t.phase is Phase.STOPPING and watch.fence is None:
            waiting = self._evidence.unanswered(table.topic, watch.epoch)
            if waiting:
                return self._too_long(table, t, watch, f"producer {waiting[0]} has not answered")
            self._mark_hold(t.number, "answered")
            watch.fence, watch.since = self._evidence.fence_of(t, watch), self._clock()
            self._mark_hold(t.number, "measured")
        fence = t.fence or watch.fence
        assert fence is not None
        if t.phase is not Phase.STARTED:
            fenced = protocol.fence(table, t.number, fence)
            if t.kind is Kind.SPLIT:
                return protocol.start(fenced, t.number)
            for group in self._evidence.drained(table, t, fence, watch):
                fenced = protocol.drained(fenced, t.number, group)
            if self._has_passed(fenced, t.number):
                self._mark_hold(t.number, "drained")
                # FENCE to DONE in one record: the slots are held no longer than it
                return protocol.done(protocol.start(fenced, t.number), t.number)
            return self._too_long(table, t, watch, "a group has not drained the lane")
        for group in self._evidence.drained(table, t, fence, watch):
            table = protocol.open_(protocol.drained(table, t.number, group), t.number, group)
        return protocol.done(table, t.number) if self._has_passed(table, t.number) else table

    def _is_near(self, table: SlotTable, t: Transition, watch: Watch) -> bool:
        """Whether a merge's lane is drained up to where it ended a moment ago, in every group."""
        now = self._clock()
        number, at, mark, start = self._mark
        near = min(NEAR_S + (now - watch.since) / PATIENCE, self.limits.hold.total_seconds())
        if number != t.number or now - at > near:
            end = self.world.ends([t.source])[t.source]
            # without an open transaction the last visible record is what groups commit; with one, more will come
            visible = self.world.visible_end(t.source, end.end, end.start)
            mark, start = end.end if visible is None else visible, end.start
            self._mark = (t.number, now, mark, start)
        return all(self.world.committed(g, [t.source]).get(t.source, start) >= mark for g in table.groups)

    @staticmethod
    def _has_passed(table: SlotTable, number: int) -> bool:
        now = table.transition(number)
        return now is not None and set(table.groups) <= set(now.drained)

    def _too_long(self, table: SlotTable, t: Transition, watch: Watch, why: str) -> SlotTable:
        """Abort what has waited for too long; a started transition only goes forward."""
        limit = {
            Phase.PREPARED: self.limits.prepare,
            Phase.STOPPING: self.limits.stop if watch.fence is None else self.limits.hold,
            Phase.FENCED: self.limits.hold,
        }.get(t.phase)
        if limit is None or self._clock() - watch.since <= limit.total_seconds():
            return table
        log.warning("%s: transition %d is aborted: %s within %s", self.topic, t.number, why, limit)
        self._aborted = {**self._aborted, t.number: f"{why} within {limit.total_seconds():g} s"}
        return protocol.abort(table, t.number)

    def _count_late(self) -> None:
        """Count what producers without transactions, whom nobody can fence, wrote behind a switch."""
        while self._switched and self._clock() >= self._switched[0][0]:
            _, number, kept, epoch = self._switched.popleft()
            writers = [p.registration for p in self._store.producers()]
            if not any(w.transactional_id is None and self.topic in w.topics for w in writers):
                continue
            if found := self.world.late(self._now, kept.source, kept.slots, kept.source_end, epoch):
                self.late += found
                said = f"{found} records landed in {self.topic}:{kept.source} behind the switch to {kept.target}"
                self._alarm(f"{said}: a producer without transactions was late; they may be handled out of order")
                for request in self._store.requests(self.topic):
                    if number in request.numbers:
                        self._store.settle(replace(request, detail=f"{said}, late"))

    def _forget(self) -> None:
        """Drop from the table what retention has passed, now and then, and warn groups that went back before it."""
        table = self._now
        if table.transitions or not table.kept or self._clock() - self._forgot < FORGET_EVERY_S:
            return
        self._forgot = self._clock()
        starts = {p: end.start for p, end in self.world.ends({k.source for k in table.kept}).items()}
        for text in groups_below(self.world, table, table.groups):
            self._alarm(text)
        self._commit(protocol.forget(table, starts))

    # -- a thread of its own ------------------------------------------------------------------------------------
    def run(self, period_s: float = 0.2) -> None:
        """Step at each change and at least every period, until ``stop``; errors are logged, and tried again."""
        said = ""
        while not self._stopped.is_set():
            try:
                self.step()
                said = ""
            except (BalancerError, FenceFailed) as error:
                if str(error) != said:
                    log.warning("%s: %s", self.topic, error)
                said = str(error)
                self._stopped.wait(period_s)
            except Exception:
                log.exception("a step of the leader of %s failed; it is tried again", self.topic)
                self._stopped.wait(period_s)
            table = self.table
            busy = table is not None and bool(table.transitions)
            pause = (0.005 if table is not None and table.held_slots() else 0.02) if busy else period_s
            try:
                self._store.wait("planner", timedelta(seconds=pause))
            except RouteStoreUnavailable:
                self._stopped.wait(0.05)

    def start(self) -> threading.Thread:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name=f"headway-split-{self.topic}", daemon=True)
        self._thread.start()
        return self._thread

    def stop(self) -> None:
        """End ``run`` and give the lead back; open transitions wait for the next leader."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(10)
        self._evidence.close()
        try:
            self._store.resign(self.topic, self._holder)
        except RouteStoreUnavailable as away:
            log.info("could not resign: %s", away)


def _stopping(table: SlotTable) -> set[int]:
    return {t.number for t in table.transitions if t.phase is Phase.STOPPING}
