"""A producer that routes by the slot table: confluent-kafka's habits, and per-key order through every split."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from balancer.routing.base import RouteStore, TableLog
from balancer.routing.errors import RouteStale, TableLogUnavailable
from balancer.routing.kafka import KafkaTableLog, client_properties, topic_id
from balancer.routing.keeper import Cluster, RouteKeeper, new_life
from balancer.routing.route import Route
from balancer.routing.settings import RouteSettings


class _Record(NamedTuple):
    """A record whose slot is held."""

    topic: str
    slot: int
    value: Any
    key: Any
    on_delivery: Any
    timestamp: int
    headers: Any


class RoutedProducer:
    """``confluent_kafka.Producer`` for topics whose partitions may be split.

    Keys of routed topics go where the slot table says; ``partition`` must be left out for them. Records without a key
    (with crc32 an empty one too) are spread over the first partitions, and other topics pass through.

    With transactions (the default) call ``init_transactions`` first, as ever; a change of the table takes effect at
    the next ``begin_transaction``. While a slot is held, its records wait here, and ``commit_transaction`` waits for
    them; a full buffer raises ``BufferError``: poll and try again. Without transactions a change takes effect at once:
    delivery callbacks may then run in the producer's own thread.

    Parameters
    ----------
    settings
        What to route, and where the tables are announced.
    store, tables
        For tests; made from the settings by default.

    Examples
    --------
    ::

        settings = RouteSettings(name="checkout-1", topics=("orders",), bootstrap_servers="127.0.0.1:9092")
        with RoutedProducer(settings) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("orders", b"paid", key=b"customer-17")
            producer.commit_transaction()
    """

    def __init__(
        self, settings: RouteSettings, *, store: RouteStore | None = None, tables: TableLog | None = None
    ) -> None:
        self.settings = settings
        self._client: Any = ck.Producer(producer_properties(settings))
        self._append = self._client.produce
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._used: dict[str, Route] = {}
        self._newest: dict[str, Route] = {}
        self._held: deque[_Record] = deque()
        self._in_transaction = False
        self._outstanding: dict[str, int] = {}
        self._turn = 0
        self._until_sample = settings.sample_every
        if store is None:
            from balancer.routing.redis import RedisRouteStore

            store = RedisRouteStore(settings.store_url, settings.cluster)
        if tables is None:
            tables = KafkaTableLog(settings.bootstrap_servers, settings.properties, name=settings.table_topic)
        self._store, self._tables = store, tables
        self._keeper = RouteKeeper(
            new_life(settings.name, settings.topics, settings.transactional_id),
            settings.ttl,
            store,
            tables,
            Cluster(self._topic_id, self._partitions),
            self._learned,
            lambda: dict(self._outstanding),
        )
        self._records = self._keeper.records
        self._samples = self._keeper.samples
        self._started = False
        self.produce: Callable[..., None] = self._produce if settings.transactional else self._produce_plain

    # -- life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Register and read the tables; called by ``init_transactions``, and by the first record in plain mode.

        Raises
        ------
        NotRouted, RouteStoreUnavailable, TableLogUnavailable, TableRefused
            If it cannot be known how to route.
        """
        if not self._started:
            self._keeper.start()
            self._started = True

    def close(self, timeout: float = 30.0) -> None:
        """Send what is left, leave, and give up connections."""
        left = self.flush(timeout) if self._started and not self._in_transaction else 0
        self._keeper.stop(leave=self._started and not left and not self._in_transaction)
        self._tables.close()
        self._store.close()

    def __enter__(self) -> RoutedProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._client) + len(self._held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)  # list_topics, purge, set_sasl_credentials and the like

    @property
    def epochs(self) -> Mapping[str, int]:
        """Topic → epoch of the table in use."""
        return {topic: route.epoch for topic, route in self._used.items()}

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why tables were not taken; flow went on by the older one."""
        return tuple(self._keeper.refusals)

    # -- records ------------------------------------------------------------------------------------------------
    def _produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
        callback: Any = None,
    ) -> None:
        """Send one record, as ``confluent_kafka.Producer.produce`` does.

        Raises
        ------
        BufferError
            If the queue is full, a held slot's buffer is full, or the table may be old: poll and try again.
        ValueError
            If a partition is named for a routed topic.
        """
        route = self._used.get(topic)
        if route is None or not key:
            self._spread(route, topic, value, key, partition, on_delivery or callback, timestamp, headers)
            return
        place = route.known.get(key)
        if place is None:
            place = route.place_of(key)
        if place < 0 or partition != -1:
            raw = key if isinstance(key, bytes) else key.encode()
            self._exceptional(route, raw, partition, topic, value, key, on_delivery or callback, timestamp, headers)
            return
        headers = route.headers if headers is None else with_epoch(headers, route)
        self._append(topic, value, key, place, on_delivery or callback, None, timestamp, headers)
        self._until_sample -= 1
        if not self._until_sample:
            self._sample(topic, key if isinstance(key, bytes) else key.encode())

    def _produce_plain(self, *arguments: Any, **named: Any) -> None:
        """Send one record without a transaction: only while the registration certainly holds."""
        if not self._started:
            self.start()
        if time.monotonic() >= self._keeper.deadline:
            raise RouteStale(
                f"the route store has not answered for {self.settings.ttl}: the table may be old, so nothing is sent; "
                "poll and try again"
            )
        with self._lock:
            self._produce(*arguments, **named)

    def _sample(self, topic: str, raw: bytes) -> None:
        self._until_sample = self.settings.sample_every
        self._records[topic] += self.settings.sample_every
        self._samples[topic].offer(raw)

    def _spread(
        self,
        route: Route | None,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        done: Any,
        timestamp: int,
        headers: Any,
    ) -> None:
        if route is None:
            if not self._started and topic in self.settings.topics:
                raise RouteStale(f"topic {topic} is routed: call init_transactions() first")
            self._client.produce(topic, value, key, partition, done, None, timestamp, headers or [])
            return
        if key is not None and not route.spread:  # an empty key has a murmur2, and so a slot
            raw = b""
            place = route.places[route.slot_of(raw)]
            if place < 0 or partition != -1:
                self._exceptional(route, raw, partition, topic, value, key, done, timestamp, headers)
                return
        else:
            self._turn += 1
            place = (self._turn >> 4) % route.table.partitions  # sixteen in a row, so that batches stay large
        headers = route.headers if headers is None else with_epoch(headers, route)
        self._client.produce(topic, value, key, place, done, None, timestamp, headers)

    def _exceptional(
        self,
        route: Route,
        raw: bytes,
        partition: int,
        topic: str,
        value: Any,
        key: Any,
        done: Any,
        timestamp: int,
        headers: Any,
    ) -> None:
        """A named partition, or a held slot: by the newest table it may be free again, else the record waits."""
        if partition != -1:
            raise ValueError(f"topic {topic} is routed: its slot table chooses the partition; leave partition out")
        record = _Record(topic, route.slot_of(raw), value, key, done, timestamp, headers)
        with self._lock:
            newest = self._newest[topic]
            if newest.places[record.slot] >= 0:
                self._send_held()
                self._send(record, newest)
            elif len(self._held) >= self.settings.held_records:
                raise RouteStale(f"{len(self._held)} records wait for held slots of {topic}; poll and try again")
            else:
                self._held.append(record)

    def _send(self, r: _Record, route: Route) -> None:
        headers = route.headers if r.headers is None else with_epoch(r.headers, route)
        self._client.produce(r.topic, r.value, r.key, route.places[r.slot], r.on_delivery, None, r.timestamp, headers)

    def _send_held(self) -> bool:
        """Send what waits for slots that are free by now; return whether nothing waits any more."""
        kept: deque[_Record] = deque()
        while self._held:
            record = self._held.popleft()
            newest = self._newest[record.topic]
            if newest.places[record.slot] < 0:
                kept.append(record)
                continue
            try:
                self._send(record, newest)
            except BufferError:
                self._held.appendleft(record)
                self._held.extendleft(reversed(kept))
                return False
        self._held = kept
        return not kept

    # -- tables -------------------------------------------------------------------------------------------------
    def _learned(self, topic: str, route: Route) -> None:
        """Take a new table in: at once between transactions, else at the next one. In the keeper's thread."""
        with self._lock:
            self._newest[topic] = route
            if self._in_transaction:
                self._news.notify_all()
                return
            self._used[topic] = route
            if not self.settings.transactional:
                self._send_held()
            self._news.notify_all()
        if not self.settings.transactional and route.stops() and not self._drained():
            return
        self._outstanding[topic] = route.epoch

    def _drained(self) -> bool:
        """Plain mode: wait until everything that was sent by an older table is delivered or given up."""
        patient = time.monotonic() + 0.05
        while len(self._client) and time.monotonic() < patient:
            self._client.poll(0.005)
        if not len(self._client):
            return True
        with self._lock:  # under steady load the queue is never empty: let it run dry
            return bool(self._client.flush(self.settings.message_timeout.total_seconds()) == 0)

    def _topic_id(self, topic: str) -> str | None:
        return topic_id(AdminClient(client_properties(self.settings.bootstrap_servers, self._admin_properties)), topic)

    @property
    def _admin_properties(self) -> dict[str, Any]:
        names = ("security.", "sasl.", "ssl.")
        return {k: v for k, v in self.settings.properties.items() if k.startswith(names)}

    def _partitions(self, topic: str) -> int:
        try:
            return len(self._client.list_topics(topic, timeout=5).topics[topic].partitions)
        except ck.KafkaException as failure:
            raise TableLogUnavailable(f"metadata of {topic}: {failure.args[0].name()}") from failure

    # -- transactions, flush, poll ------------------------------------------------------------------------------
    def init_transactions(self, timeout: float = 30.0) -> None:
        """Fence every earlier life of this name, register, and read the tables."""
        self._client.init_transactions(timeout)
        self.start()

    def begin_transaction(self) -> None:
        """Begin; from here on the newest table is used."""
        with self._lock:
            self._client.begin_transaction()
            self._used.update(self._newest)
            self._in_transaction = True

    def commit_transaction(self, timeout: float = 60.0) -> None:
        """Commit, once no record of this transaction waits for a held slot.

        Raises
        ------
        confluent_kafka.KafkaException
            As the client does. If slots are still held at the timeout it is ``_TIMED_OUT``, retriable: call again.
        """
        end = time.monotonic() + timeout
        with self._news:
            while self._held and not self._send_held():
                left = end - time.monotonic()
                if left <= 0:
                    raise ck.KafkaException(
                        ck.KafkaError(
                            ck.KafkaError._TIMED_OUT, f"{len(self._held)} records wait for held slots", retriable=True
                        )
                    )
                self._news.wait(min(left, 0.05))
                self._client.poll(0)
        self._client.commit_transaction(max(0.1, end - time.monotonic()))
        self._ended()

    def abort_transaction(self, timeout: float = 60.0) -> None:
        """Abort; what waited for held slots is dropped, and its callbacks are told so."""
        dropped, self._held = self._held, deque()
        self._client.abort_transaction(timeout)
        purged = ck.KafkaError(ck.KafkaError._PURGE_QUEUE)
        for r in dropped:
            if r.on_delivery is not None:
                r.on_delivery(purged, ck.Message(topic=r.topic, key=r.key, value=r.value, error=purged))
        self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._in_transaction = False
            self._used.update(self._newest)
            answers = [t for t, r in self._used.items() if r.stops() and self._outstanding.get(t) != r.epoch]
            self._outstanding = {topic: route.epoch for topic, route in self._used.items()}
        if answers:
            self._keeper.say()

    def flush(self, timeout: float = -1) -> int:
        """Wait until everything is delivered, held records too; return how many are left."""
        end = None if timeout < 0 else time.monotonic() + timeout
        with self._news:
            while self._held and not self._send_held() and (end is None or time.monotonic() < end):
                self._news.wait(0.02)
                self._client.poll(0)
        left = -1 if end is None else max(0.0, end - time.monotonic())
        return int(self._client.flush(left)) + len(self._held)

    def poll(self, timeout: float = 0.0) -> int:
        """Serve callbacks; see ``confluent_kafka.Producer.poll``."""
        return int(self._client.poll(timeout))


def with_epoch(headers: Any, route: Route) -> list[tuple[str, Any]]:
    """Return a user's headers with the epoch behind them."""
    rows = headers.items() if isinstance(headers, Mapping) else headers
    return [*rows, *route.headers]


def producer_properties(settings: RouteSettings) -> dict[str, Any]:
    """Return the client's properties: the user's, and those on which the promises rest."""
    own: dict[str, Any] = {"enable.idempotence": True}
    if settings.transactional_id is not None:
        own["transactional.id"] = settings.transactional_id
        own["transaction.timeout.ms"] = round(settings.transaction_timeout.total_seconds() * 1000)
    else:
        own["message.timeout.ms"] = round(settings.message_timeout.total_seconds() * 1000)
    with contextlib.suppress(KeyError):
        # what is not routed keeps the user's partitioner; Java's default otherwise
        own["partitioner"] = settings.properties["partitioner"]
    return {
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        **client_properties(settings.bootstrap_servers, settings.properties),
        **own,
    }
