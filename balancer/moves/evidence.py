"""What a step of a transition requires of the world: gates closed, producers silent, groups drained. Asked, not kept.

While slots are held every millisecond is somebody's wait. So the brokers are asked for routed ids in the background
from the STOP write on, while producers still answer; ids that nobody registered are fenced before STOP already; and
what has been fenced once, and has not begun a new life since, is not fenced again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from balancer.moves.routed_topic import LONGEST_TRANSACTION_S, LogEnd, TopicWorld, unexplained
from balancer.routing.base import RouteStore
from balancer.routing.table import Fence, Kind, Phase, SlotTable, Transition

log = logging.getLogger("headway.splitting")

Life = tuple[int, int]
"""Producer id and epoch of a transactional id: the next life has a higher epoch, or another id."""

LOOK_AT_ENDS_S = 0.5


@dataclass(slots=True)
class Watch:
    """What a leader remembers of a transition: all of it can be asked again."""

    phase: Phase
    since: float
    epoch: int
    fence: Fence | None = None
    """A merge's F and G, measured and not written yet: it is written when the lane is drained, with START."""
    visible_end: int | None = None
    open_since: float | None = None
    """When a transaction was first seen open below F; None before."""
    end: LogEnd | None = None
    looked: float = 0.0
    tidied: bool = False
    said: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Routed ids that the brokers knew after some point, with the lives of those that nobody had registered."""

    ids: frozenset[str]
    lives: Mapping[str, Life]


class Evidence:
    """Asks brokers and store what a leader must know before a step.

    Parameters
    ----------
    world, store
        The topic as the brokers have it; registrations and gates.
    merge_lag
        A merge stops its slots only when the lane has fewer unread records in every group.
    alarm
        Told what people should look at.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        world: TopicWorld,
        store: RouteStore,
        merge_lag: int,
        alarm: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world, self._store, self._merge_lag = world, store, merge_lag
        self._alarm, self._clock = alarm, clock
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="headway-evidence")
        self._listing: tuple[int, Future[Listing]] | None = None
        self._fenced: dict[str, Life] = {}
        self._cleared: dict[int, set[str | None]] = {}

    def close(self) -> None:
        """End what runs in the background."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- before STOP --------------------------------------------------------------------------------------------
    def is_prepared(self, table: SlotTable, t: Transition, watch: Watch) -> bool:
        """Whether every gate is closed and the lane empty (split), or the lane all but read (merge)."""
        if not watch.tidied:
            self._tidy()
            watch.tidied = True
        if t.kind is Kind.MERGE:
            return self._lag(table, t.source) <= self._merge_lag
        gates = self._store.gates(table.topic)
        if any(gates.get(group, 0) < t.number for group in table.groups):
            return False
        end = self._world.ends([t.target])[t.target]
        if end.end == end.start:
            return True
        visible = self._world.visible_end(t.target, end.end)
        return visible is not None and all(
            self._world.committed(g, [t.target]).get(t.target, end.start) >= visible for g in table.groups
        )

    def _lag(self, table: SlotTable, partition: int) -> int:
        end = self._world.ends([partition])[partition]
        lags = (
            end.end - self._world.committed(g, [partition]).get(partition, end.start) for g in table.groups
        )  # markers count too: they are read at once
        return max(lags, default=0)

    def _tidy(self) -> None:
        """Fence ids that nobody has registered while nothing is held yet; STOP looks again."""
        listing = self._list()
        self._fence(self._strays(listing, self._registered()), listing.lives)

    # -- STOP ---------------------------------------------------------------------------------------------------
    def stopped(self, epoch: int) -> None:
        """STOP is written as this epoch: ask the brokers for routed ids, beside whatever else happens."""
        self._listing = (epoch, self._pool.submit(self._list))
        self._cleared = {}

    def unanswered(self, topic: str, epoch: int) -> list[str]:
        """Return producers that have not answered STOP; dead and unexplained ones are fenced on the way.

        Registrations are read after the brokers' list is in, and the list was asked for after the STOP write: whoever
        is in neither registers later, and reads STOP.
        """
        if self._listing is None or self._listing[0] < epoch:
            self.stopped(epoch)
        assert self._listing is not None
        listed = self._listing[1]
        if not listed.done() and (waiting := self._live_and_silent(topic, epoch)):
            return waiting
        try:
            listing = listed.result()
        except BaseException:
            self._listing = None  # asked again at the next look
            raise
        everyone = self._store.producers()
        mine = [p for p in everyone if topic in p.registration.topics]
        silent = [p for p in mine if p.acks.get(topic, 0) < epoch]
        lost = {i for p in silent if not p.live and (i := p.registration.transactional_id) is not None}
        # who has answered, or was fenced, may lose its registration afterwards
        cleared = self._cleared.setdefault(epoch, set())
        cleared |= {p.registration.transactional_id for p in mine if p not in silent}
        explained = {p.registration.transactional_id for p in everyone} | cleared
        ids = sorted({*self._strays(listing, explained), *lost})
        self._fence(ids, listing.lives)
        cleared |= set(ids)
        for p in silent:
            if not p.live:  # plain ones have stopped by themselves at their deadline
                self._store.forget(p.registration)
        return [p.registration.name for p in silent if p.live]

    def _live_and_silent(self, topic: str, epoch: int) -> list[str]:
        return [
            p.registration.name
            for p in self._store.producers()
            if p.live and topic in p.registration.topics and p.acks.get(topic, 0) < epoch
        ]

    def fence_of(self, t: Transition, watch: Watch) -> Fence:
        """Measure F and G, once nobody writes to the slots any more."""
        ends = self._world.ends([t.source, t.target])
        source, target = ends[t.source], ends[t.target]
        watch.end, watch.looked = source, self._clock()
        return Fence(source.end, source.leader_epoch, target.end, target.leader_epoch)

    def _registered(self) -> set[str]:
        return {i for p in self._store.producers() if (i := p.registration.transactional_id) is not None}

    def _list(self) -> Listing:
        ids = self._world.route_ids()
        strays = unexplained(ids, self._registered())
        return Listing(ids, self._world.lives(strays) if strays else {})

    def _strays(self, listing: Listing, registered: Collection[str | None]) -> list[str]:
        """Return unexplained ids, without those that were fenced before and have not begun a new life since."""
        return [
            i for i in unexplained(listing.ids, registered)
            if i not in self._fenced or listing.lives.get(i) != self._fenced[i]
        ]  # fmt: skip

    def _fence(self, ids: list[str], before: Mapping[str, Life]) -> None:
        if not ids:
            return
        log.warning("%s: fencing %s", self._world.topic, ", ".join(ids))
        list(self._pool.map(self._world.fence, ids))
        known = [i for i in ids if i in before]
        if not known:
            return
        for i, (number, epoch) in self._world.lives(known).items():
            # one step further is our own fence; two, and somebody else has been there
            if (number, epoch) == (before[i][0], before[i][1] + 1):
                self._fenced[i] = (number, epoch)

    # -- DRAIN --------------------------------------------------------------------------------------------------
    def drained(self, table: SlotTable, t: Transition, fence: Fence, watch: Watch) -> list[str]:
        """Return groups that have processed and committed the source up to F, and were not known to have."""
        left = [g for g in table.groups if g not in t.drained]
        if not left:
            return []
        now = self._clock()
        if watch.end is None or now - watch.looked >= LOOK_AT_ENDS_S:
            watch.end, watch.looked = self._world.ends([t.source])[t.source], now
        end, cut = watch.end, fence.source_end
        where = f"{table.topic}:{t.source}"
        if watch.visible_end is None:
            watch.visible_end = self._world.visible_end(t.source, min(cut, end.end), end.start)
            if watch.visible_end is None:
                watch.open_since = now if watch.open_since is None else watch.open_since
                if now - watch.open_since > LONGEST_TRANSACTION_S:
                    self._alarm(
                        f"a transaction below {cut} on {where} hangs: open for over {LONGEST_TRANSACTION_S:g} s, and "
                        "no group drains past it. Find it with kafka-transactions.sh find-hanging, end it with abort"
                    )
        done = self._committed(left, t.source, end.start)
        if end.end < cut:
            self._alarm(f"{where} was cut back from {cut} to {end.end}: records are lost")
            visible = self._world.visible_end(t.source, end.end)
            return [g for g in left if done[g] >= (visible or end.end)]
        if end.start >= cut > 0:
            if any(offset < cut for offset in done.values()):
                self._alarm(f"retention has passed {cut} on {where} before it was drained")
            return left
        return [g for g in left if watch.visible_end is not None and done[g] >= watch.visible_end]

    def _committed(self, groups: Iterable[str], partition: int, start: int) -> dict[str, int]:
        return {g: self._world.committed(g, [partition]).get(partition, start) for g in groups}
