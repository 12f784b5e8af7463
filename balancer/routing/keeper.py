"""Keeps a producer registered and its tables fresh: a thread beside the producer, woken at each change."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex

from balancer.routing.base import Registration, RouteStore, TableLog
from balancer.routing.errors import NotRouted, RegistrationRefused, RouteStoreUnavailable, RoutingError
from balancer.routing.native import slot_function
from balancer.routing.route import Route
from balancer.routing.sampling import KeySample
from balancer.routing.table import SlotTable, TableRefused, decode, newer

log = logging.getLogger("headway.routing")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a keeper asks of the brokers, through the producer's own client."""

    topic_id: Callable[[str], str | None]
    """Topic → its id now; None if it is gone."""
    partitions: Callable[[str], int]
    """Topic → partitions that the producer's own client knows, freshly asked."""


class RouteKeeper:
    """Registration, tables and answers of one producer.

    A table from the store is used only if it is for the topic as it is, whole, and not older than the one in use; else
    it is refused, with the reason in ``refusals``, and flow continues on the old one. An answer (ack) for an epoch is
    given only when ``used`` says that nothing older is outstanding and the client knows every target partition.

    Parameters
    ----------
    who, ttl
        What is registered, and for how long between renewals.
    store, tables
        Where changes are announced; where tables are committed.
    cluster
        What the producer's client knows.
    changed
        Called with (topic, route) in the keeper's thread at each new table.
    used
        Topic → the epoch by which everything outstanding was routed.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        who: Registration,
        ttl: timedelta,
        store: RouteStore,
        tables: TableLog,
        cluster: Cluster,
        changed: Callable[[str, Route], None],
        used: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.who = who
        self._ttl, self._store, self._tables, self._cluster = ttl, store, tables, cluster
        self._changed, self._used, self._clock = changed, used, clock
        self._ids: dict[str, str] = {}
        self._known: dict[str, int] = {}
        self._stopped = threading.Event()
        self._saying = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="headway-route", daemon=True)
        self._rated = (clock(), dict.fromkeys(who.topics, 0))
        self._rates: dict[str, float] = {}
        self.routes: dict[str, Route] = {}
        self.deadline = 0.0
        """Monotonic seconds until which the registration certainly holds."""
        self.holds: deque[float] = deque(maxlen=1000)
        """Seconds for which slots were held here, switch by switch."""
        self._held_since: dict[str, float] = {}
        self.refusals: list[str] = []
        """Why tables were not taken; the last hundred."""
        self.superseded: str | None = None
        """Why this life is over, once another one of the same name has registered."""
        self.samples = {topic: KeySample() for topic in who.topics}
        self.records = dict.fromkeys(who.topics, 0)

    def start(self) -> None:
        """Register, then read every table from its log up to the end, then follow.

        Raises
        ------
        NotRouted
            If a topic has no table, or there is no such topic.
        RouteStoreUnavailable, TableLogUnavailable, TableRefused
            If it cannot be known how to route.
        """
        began = self._clock()
        self._store.register(self.who, self._ttl)
        self.deadline = began + self._ttl.total_seconds()
        for topic in self.who.topics:
            table = self._tables.read(topic)
            here = self._cluster.topic_id(topic)
            if table is None or here is None:
                what = "there is no such topic" if here is None else "it has no slot table: headway route adopts it"
                raise NotRouted(f"topic {topic} is not routed: {what}")
            self._ids[topic] = here
            self._take(topic, newer(None, table, here))
        self.say()
        self._thread.start()

    def stop(self, *, leave: bool = True) -> None:
        """End the thread, and the registration if nothing is outstanding."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2 * self._ttl.total_seconds())
        if leave:
            with contextlib.suppress(RouteStoreUnavailable):
                self._store.leave(self.who)

    def say(self, *, told: bool = False) -> None:
        """Renew, answer what can be answered, and learn of newer tables; errors of the store are logged.

        ``told``: a table has changed, so tables are looked at first, and the first renewal answers already.
        """
        with self._saying:
            if told:
                for topic in self.who.topics:
                    self._learn(topic)
            for _ in range(3):
                acks = {t: e for t, e in self._used().items() if self._knows_targets(t)}
                began = self._clock()
                try:
                    epochs = self._store.renew(self.who, self._ttl, acks, self._sampled(), self._rates)
                except RegistrationRefused as refused:
                    if self.superseded is None:
                        log.error("%s", refused)
                    self.superseded = str(refused)
                    return
                except RouteStoreUnavailable as away:
                    log.debug("%s", away)
                    self._ask_the_log()
                    return
                self.deadline = began + self._ttl.total_seconds()
                behind = [t for t, epoch in epochs.items() if epoch != self.routes[t].epoch]
                learned = [self._learn(topic) for topic in behind]
                if not any(learned):
                    return

    def _ask_the_log(self) -> None:
        """While the store is silent and slots are held: the table topic knows whether the hold has ended."""
        for topic, route in list(self.routes.items()):
            if route.table.held_slots():
                with contextlib.suppress(RoutingError, TableRefused):
                    table = self._tables.read(topic)
                    if table is not None and table.topic_id == self._ids[topic] and table.epoch > route.epoch:
                        self._take(topic, table)

    def _sampled(self) -> dict[str, tuple[str, ...]]:
        """Return key samples, and note rates; a sample is taken once a second at most."""
        now = self._clock()
        then, counted = self._rated
        if now - then < 1.0:
            return self._last_sample
        counts = dict(self.records)
        self._rates = {t: round((counts[t] - counted[t]) / (now - then), 2) for t in counts}
        self._rated = (now, counts)
        self._last_sample = {topic: sample.take() for topic, sample in self.samples.items()}
        return self._last_sample

    _last_sample: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - replaced, never changed

    def _learn(self, topic: str) -> bool:
        """Take the cached table if it may be used; return whether it was."""
        try:
            data = self._store.table(topic)
            if data is None:
                return False
            table = decode(data)
            if table.topic_id != self._ids[topic]:
                self._ids[topic] = self._cluster.topic_id(topic) or self._ids[topic]
            table = newer(self.routes[topic].table, table, self._ids[topic])
        except RouteStoreUnavailable:
            return False
        except (TableRefused, RoutingError) as refused:
            if str(refused) not in self.refusals[-1:]:
                log.error("%s: %s", topic, refused)
                self.refusals = [*self.refusals[-99:], str(refused)]
            return False
        if table.epoch == self.routes[topic].epoch and table == self.routes[topic].table:
            return False
        self._take(topic, table)
        return True

    def _take(self, topic: str, table: SlotTable) -> None:
        route = self.routes[topic] = Route(table, slot_function(table.hash, table.slots))
        self._knows_targets(topic)
        if table.held_slots():
            self._held_since.setdefault(topic, self._clock())
        self._changed(topic, route)
        if not table.held_slots() and topic in self._held_since:
            self.holds.append(self._clock() - self._held_since.pop(topic))

    def _knows_targets(self, topic: str) -> bool:
        """Make sure that the client knows the partitions that are coming; it refuses records for others."""
        route = self.routes.get(topic)
        if route is None:
            return False
        most = max(route.targets() | set(route.table.moved.values()), default=-1)
        if most >= self._known.get(topic, 0):
            try:
                self._known[topic] = self._cluster.partitions(topic)
            except RoutingError as error:
                log.warning("%s", error)
        return most < self._known.get(topic, 0)

    def _keep(self) -> None:
        third = self._ttl.total_seconds() / 3
        due = self._clock()
        while not self._stopped.is_set() and self.superseded is None:
            left = min(0.25, max(0.001, due - self._clock()))
            try:
                woken = self._store.wait("producers", timedelta(seconds=left))
            except RouteStoreUnavailable:
                woken = False
                self._stopped.wait(min(0.1, left))
            pending = any(r.stops() and self._used().get(t) != r.epoch for t, r in list(self.routes.items()))
            if woken or pending or self._clock() >= due:
                self.say(told=woken)
                due = self._clock() + third


def new_life(name: str, topics: tuple[str, ...], transactional_id: str | None) -> Registration:
    """Return a registration for a life that begins now."""
    return Registration(name, token_hex(4), topics, transactional_id)
