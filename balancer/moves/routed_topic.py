"""A routed topic as the brokers have it: ends, transactions, who writes, what groups have committed, and its growth."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient

from balancer.moves.bulk_client import bulk_client
from balancer.moves.kafka import FenceFailed
from balancer.routing.base import ROUTE_PREFIX
from balancer.routing.errors import RoutingError, SplitRefused
from balancer.routing.kafka import client_properties
from balancer.routing.kafka import topic_id as id_of
from balancer.routing.route import EPOCH_HEADER
from balancer.routing.table import SlotTable

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

LONGEST_TRANSACTION_S = 900.0
"""The brokers' ``transaction.max.timeout.ms`` as it comes: they abort by themselves what stays open for longer."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Next offset to be written, aborted and open transactions included, and the leader epoch that says so."""

    end: int
    leader_epoch: int
    start: int = 0


class TopicWorld(Protocol):
    """What a topic's leader needs of the brokers; :class:`RoutedTopic` is one, the tests have one in memory."""

    topic: str

    def topic_id(self) -> str | None:
        """Return the id; None if there is no such topic."""
        ...

    def partitions(self) -> int:
        """Return how many partitions there are."""
        ...

    def grow(self, partitions: int) -> None:
        """Make partitions up to this number; raise SplitRefused with the broker's reason if it says no."""
        ...

    def ends(self, partitions: Iterable[int]) -> dict[int, LogEnd]:
        """Return both ends of some partitions, read uncommitted."""
        ...

    def route_ids(self) -> frozenset[str]:
        """Return the transactional ids of routed producers that any broker lists."""
        ...

    def lives(self, transactional_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return id → (producer id, epoch) of those that the brokers still know."""
        ...

    def strangers(self, partition: int, plain: int) -> tuple[str, ...]:
        """Return who writes to a partition and is no routed producer; so many plain routed ones are explained."""
        ...

    def fence(self, transactional_id: str) -> None:
        """Raise a producer's epoch, so that it commits no more."""
        ...

    def visible_end(self, partition: int, below: int, start: int | None = None) -> int | None:
        """Return the offset behind the last committed record below ``below``; None while a transaction is open.

        ``start``: the log's start, where it is known already.
        """
        ...

    def committed(self, group: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return what a group has committed; partitions without a commit are left out."""
        ...

    def misplaced(self, table: SlotTable, partition: int) -> str | None:
        """Return what is wrong with the last records of a partition, if anything."""
        ...

    def late(self, table: SlotTable, partition: int, slots: Collection[int], start: int, epoch: int) -> int:
        """Return how many records of slots lie in a partition from ``start`` on, routed by a table before ``epoch``."""
        ...

    def readers(self) -> frozenset[str]:
        """Return the groups that have committed offsets of the topic."""
        ...


class RoutedTopic:
    """One topic through Kafka's clients.

    Parameters
    ----------
    bootstrap_servers, topic, properties
        Where, and what.
    idle_after_s
        An unknown producer that has written nothing for this long is taken for gone.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        *,
        idle_after_s: float = LONGEST_TRANSACTION_S,
    ) -> None:
        self.topic = topic
        self._properties = client_properties(bootstrap_servers, properties)
        self._idle_after_s = idle_after_s
        self._admin = AdminClient(self._properties)
        self._bulk: KafkaAdminClient | None = None
        self._asking = threading.Lock()  # kafka-python's client serves one thread at a time
        self._reader: ck.Consumer | None = None
        self._committers: dict[str, ck.Consumer] = {}
        self._brokers: list[int] = []
        self._brokers_until = 0.0

    def topic_id(self) -> str | None:
        """See :meth:`TopicWorld.topic_id`."""
        return id_of(self._admin, self.topic)

    def partitions(self) -> int:
        """See :meth:`TopicWorld.partitions`."""
        return len(self._admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions)

    def grow(self, partitions: int) -> None:
        """See :meth:`TopicWorld.grow`."""
        have = self.partitions()
        if have >= partitions:
            return
        try:
            self._admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(20)
        except ck.KafkaException as failure:
            error = failure.args[0]
            raise SplitRefused(
                f"the broker refuses {partitions} partitions for {self.topic} ({error.name()}: {error.str()}); "
                f"{self.topic} stays at {have}"
            ) from failure
        end = time.monotonic() + 10
        while time.monotonic() < end:
            facts = self._admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            if len(facts) >= partitions and all(p.leader >= 0 for p in facts.values()):
                return
            time.sleep(0.01)
        raise SplitRefused(f"the new partitions of {self.topic} have no leader after 10 s; look at the brokers")

    def ends(self, partitions: Iterable[int]) -> dict[int, LogEnd]:
        """See :meth:`TopicWorld.ends`."""
        wanted = [ck.TopicPartition(self.topic, p) for p in partitions]
        isolation = ck.IsolationLevel.READ_UNCOMMITTED
        last = self._admin.list_offsets(dict.fromkeys(wanted, _LATEST), isolation_level=isolation, request_timeout=10)
        first = self._admin.list_offsets(
            dict.fromkeys(wanted, _EARLIEST), isolation_level=isolation, request_timeout=10
        )
        try:
            starts = {tp.partition: future.result().offset for tp, future in first.items()}
            return {
                tp.partition: LogEnd(
                    (info := future.result()).offset, getattr(info, "leader_epoch", None) or 0, starts[tp.partition]
                )
                for tp, future in last.items()
            }
        except ck.KafkaException as failure:
            raise RoutingError(f"the ends of {self.topic} cannot be read: {failure.args[0].name()}") from failure

    # -- who writes ---------------------------------------------------------------------------------------------
    def _bulk_admin(self) -> KafkaAdminClient:
        if self._bulk is None:
            self._bulk = bulk_client(self._properties, timedelta(seconds=30))
        return self._bulk

    def _transactions(self) -> list[Any]:
        """Return what every broker lists; a broker that does not answer may know of one more."""
        with self._asking:
            try:
                if time.monotonic() > self._brokers_until:
                    brokers = self._admin.list_topics(self.topic, timeout=10).brokers.values()
                    self._brokers, self._brokers_until = sorted(b.id for b in brokers), time.monotonic() + 30
                found = self._bulk_admin().list_transactions(broker_ids=self._brokers)
            except Exception as error:
                self._drop_bulk()
                raise RoutingError(f"not every broker says which transactions it knows: {error}") from error
        return [one for part in found.values() for one in part]

    def _drop_bulk(self) -> None:
        self._brokers_until = 0.0
        if self._bulk is not None:
            with contextlib.suppress(Exception):
                self._bulk.close()
            self._bulk = None

    def route_ids(self) -> frozenset[str]:
        """See :meth:`TopicWorld.route_ids`."""
        ids = (str(one.transactional_id) for one in self._transactions())
        return frozenset(i for i in ids if i.startswith(ROUTE_PREFIX))

    def lives(self, transactional_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """See :meth:`TopicWorld.lives`."""
        with self._asking:
            try:
                found = self._bulk_admin().describe_transactions(list(transactional_ids))
            except Exception as error:
                self._drop_bulk()
                raise RoutingError(f"the lives of routed producers cannot be described: {error}") from error
        return {i: (one.producer_id, one.producer_epoch) for i, one in found.items()}

    def strangers(self, partition: int, plain: int) -> tuple[str, ...]:
        """See :meth:`TopicWorld.strangers`."""
        names = {one.producer_id: str(one.transactional_id) for one in self._transactions()}
        tp = KafkaPartition(self.topic, partition)
        with self._asking:
            try:
                state = self._bulk_admin().describe_producers([tp])[tp]
            except Exception as error:
                self._drop_bulk()
                raise RoutingError(f"the producers of {self.topic}:{partition} cannot be listed: {error}") from error
        now, found = time.time(), []
        for one in state.active_producers if hasattr(state, "active_producers") else state.producers:
            if now - one.last_timestamp / 1000 > self._idle_after_s:
                continue
            name = names.get(one.producer_id)
            if name is None:
                plain -= 1
                if plain < 0:
                    found.append(f"producer id {one.producer_id}")
            elif not name.startswith(ROUTE_PREFIX):
                found.append(name)
        return tuple(found)

    def fence(self, transactional_id: str) -> None:
        """See :meth:`TopicWorld.fence`."""
        producer = ck.Producer({**self._properties, "transactional.id": transactional_id})
        end = time.monotonic() + 20
        while True:
            try:
                producer.init_transactions(5.0)
                return
            except ck.KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > end:
                    raise FenceFailed(f"fence of {transactional_id}: {error.name()}") from failure

    # -- records ------------------------------------------------------------------------------------------------
    def _tail(self, partition: int, start: int, below: int, within_s: float = 5.0) -> tuple[list[Any], bool]:
        """Return committed records in [start, below), and whether the reader has passed ``below``."""
        if self._reader is None:
            self._reader = ck.Consumer(
                {
                    "fetch.wait.max.ms": 10,
                    **self._properties,
                    "group.id": "headway.splitting",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                }
            )
        rows: list[Any] = []
        end = time.monotonic() + within_s
        self._reader.assign([ck.TopicPartition(self.topic, partition, start)])
        try:
            while time.monotonic() < end:
                # one poll that waits, then what is there: `consume` alone would sit out its time
                first = self._reader.poll(0.02)
                for message in [] if first is None else [first, *self._reader.consume(500, 0)]:
                    error = message.error()
                    if error is None:
                        if (message.offset() or 0) >= below:
                            return rows, True
                        rows.append(message)
                    elif error.code() == ck.KafkaError._PARTITION_EOF:
                        return rows, (message.offset() or 0) >= below
        finally:
            self._reader.unassign()
        return rows, False

    def visible_end(self, partition: int, below: int, start: int | None = None) -> int | None:
        """See :meth:`TopicWorld.visible_end`."""
        low = self.ends([partition])[partition].start if start is None else start
        window = 200
        while True:
            first = max(low, below - window)
            if first >= below:
                return below
            rows, passed = self._tail(partition, first, below)
            if not passed:
                return None
            if rows:
                return int(rows[-1].offset()) + 1
            if first == low:
                return low
            window *= 8

    def misplaced(self, table: SlotTable, partition: int) -> str | None:
        """See :meth:`TopicWorld.misplaced`.

        Before the first table the header is not asked for; a key must lie where the hash puts it. Later each record
        must name an epoch, and records of the present map must lie where that map puts them.
        """
        ends = self.ends([partition])[partition]
        rows, _ = self._tail(partition, max(ends.start, ends.end - 200), ends.end)
        keyed = [m for m in rows if m.key() and (time.time() - m.timestamp()[1] / 1000) < self._idle_after_s]
        if not keyed:
            return None
        where = f"{len(keyed)} late records of {self.topic}:{partition}"
        if table.epoch > 1:
            bare = [m for m in keyed if EPOCH_HEADER not in dict(m.headers() or [])]
            if bare:
                return f"{len(bare)} of {where} name no epoch: a producer of {self.topic} is not routed"
        lost = [
            m
            for m in keyed
            if m.key() is not None
            and table.partition_of_key(m.key()) != partition
            and (table.epoch == 1 or int(dict(m.headers() or [])[EPOCH_HEADER]) >= table.epoch)
        ]
        if lost:
            return (
                f"{len(lost)} of {where} are not where {table.hash} puts their keys: a producer has another partitioner"
            )
        return None

    def late(self, table: SlotTable, partition: int, slots: Collection[int], start: int, epoch: int) -> int:
        """See :meth:`TopicWorld.late`."""
        ends, moved = self.ends([partition])[partition], frozenset(slots)
        rows, _ = self._tail(partition, max(start, ends.start), ends.end)
        return sum(
            int(dict(m.headers() or []).get(EPOCH_HEADER, b"0")) < epoch and table.slot_of_key(m.key()) in moved
            for m in rows
            if m.key() is not None
        )

    # -- groups -------------------------------------------------------------------------------------------------
    def committed(self, group: str, partitions: Iterable[int]) -> dict[int, int]:
        """See :meth:`TopicWorld.committed`."""
        client = self._committers.get(group)
        if client is None:
            made = {**self._properties, "group.id": group, "enable.auto.commit": False}
            client = self._committers[group] = ck.Consumer(made)
        wanted = [ck.TopicPartition(self.topic, p) for p in partitions]
        try:
            rows = client.committed(wanted, timeout=2)
        except ck.KafkaException as failure:
            raise RoutingError(f"offsets of group {group}: {failure.args[0].name()}") from failure
        return {row.partition: row.offset for row in rows if row.error is None and row.offset >= 0}

    def readers(self) -> frozenset[str]:
        """See :meth:`TopicWorld.readers`."""
        listed = self._admin.list_consumer_groups(request_timeout=10).result()
        names = [g.group_id for g in listed.valid if not g.group_id.startswith("headway.")]
        wanted = [KafkaPartition(self.topic, p) for p in range(self.partitions())]
        with self._asking:
            try:
                found = self._bulk_admin().list_group_offsets(dict.fromkeys(names, wanted)) if names else {}
            except Exception as error:
                self._drop_bulk()
                raise RoutingError(f"the groups that read {self.topic} cannot be listed: {error}") from error
        return frozenset(g for g, rows in found.items() if any(row.offset >= 0 for row in rows.values()))

    def close(self) -> None:
        """Give up connections."""
        for client in [*self._committers.values(), *([self._reader] if self._reader else [])]:
            client.close()
        self._committers.clear()
        self._reader = None
        self._drop_bulk()


def unexplained(ids: Collection[str], registered: Collection[str | None]) -> list[str]:
    """Return ids of routed producers that nobody has registered: started and forgotten by the store, or long dead.

    Examples
    --------
    >>> unexplained({"headway.route.a", "headway.route.b"}, ["headway.route.a", None])
    ['headway.route.b']
    """
    return sorted(set(ids) - {r for r in registered if r is not None})


def groups_below(world: TopicWorld, table: SlotTable, groups: Iterable[str]) -> tuple[str, ...]:
    """Return one sentence for each group that goes on below an F of the table's past: started anew, or set back.

    What it has not read below F lies in one partition, what came after it in another, and no gate stands between them
    any more: order is promised to such a group from F on.
    """
    if not table.kept:
        return ()
    starts = {p: end.start for p, end in world.ends({k.source for k in table.kept}).items()}
    found = []
    for group in sorted(groups):
        committed = world.committed(group, sorted(starts))
        for kept in sorted(table.kept, key=lambda k: -k.source_end):
            at, start, fence = committed.get(kept.source, 0), starts[kept.source], kept.source_end
            if max(at, start) >= fence:
                continue
            visible = world.visible_end(kept.source, fence, start)  # markers end a log, and nobody commits those
            if visible is not None and max(at, start) < visible:
                found.append(
                    f"group {group} goes on before offset {fence} of {table.topic}:{kept.source}, where keys moved to "
                    f"partition {kept.target}: it may handle their newer records first; order is promised to it from "
                    f"{fence} on"
                )
                break
    return tuple(found)
