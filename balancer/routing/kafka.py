"""The Kafka edge of routing: slot tables in a compacted topic, written by one leader a topic at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from balancer.routing.base import TABLE_TOPIC, leader_id
from balancer.routing.errors import LeaderSuperseded, RoutingError, TableLogUnavailable
from balancer.routing.table import SlotTable, decode, encode

_FENCED = {
    ck.KafkaError._FENCED,
    ck.KafkaError.INVALID_PRODUCER_EPOCH,
    ck.KafkaError.PRODUCER_FENCED,
    ck.KafkaError.INVALID_PRODUCER_ID_MAPPING,
}


def client_properties(bootstrap_servers: str, properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what every client of routing has in common."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "retry.backoff.ms": 10,  # a commit pays one back-off for CONCURRENT_TRANSACTIONS
        "metadata.recovery.strategy": "none",  # else a commit may never return once all brokers were away
        "log_level": 2,
        **(properties or {}),
    }


def topic_id(admin: Any, topic: str) -> str | None:
    """Return a topic's id as the broker has it now; None if there is no such topic."""
    future = admin.describe_topics(ck.TopicCollection([topic]), request_timeout=10)[topic]
    try:
        facts = future.result()
    except ck.KafkaException as failure:
        if failure.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise TableLogUnavailable(f"topic {topic} cannot be described: {failure.args[0].name()}") from failure
    return str(facts.topic_id)


class KafkaTableLog:
    """Slot tables in a compacted topic with one partition, key = topic name; made when it is first needed.

    Parameters
    ----------
    bootstrap_servers, properties
        Where; further client properties (security, say).
    name
        Of the compacted topic.
    replication
        Of that topic when it is made; None takes three, or what there is of brokers.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, Any] | None = None,
        *,
        name: str = TABLE_TOPIC,
        replication: int | None = None,
    ) -> None:
        self._properties = client_properties(bootstrap_servers, properties)
        self._name, self._replication = name, replication
        self._reader: ck.Consumer | None = None
        self._writers: dict[str, ck.Producer] = {}

    def read(self, topic: str) -> SlotTable | None:
        """See :meth:`balancer.routing.base.TableLog.read`."""
        data = self._last(topic.encode())
        return None if data is None else decode(data)

    def _last(self, key: bytes, within_s: float = 20.0) -> bytes | None:
        if self._reader is None:
            self._reader = ck.Consumer(
                {
                    "fetch.wait.max.ms": 20,
                    **self._properties,
                    "group.id": "headway.tables",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                }
            )
        reader, found, end = self._reader, None, time.monotonic() + within_s
        try:
            known = reader.list_topics(self._name, timeout=10).topics[self._name]
            if known.error is not None or not known.partitions:
                return None
            reader.assign([ck.TopicPartition(self._name, 0, ck.OFFSET_BEGINNING)])
            while time.monotonic() < end:
                for message in reader.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        if message.key() == key:
                            found = message.value()
                    elif error.code() == ck.KafkaError._PARTITION_EOF:
                        return found
                    elif error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        return None
        except ck.KafkaException as failure:
            raise TableLogUnavailable(f"{self._name} cannot be read: {failure.args[0].name()}") from failure
        finally:
            with contextlib.suppress(ck.KafkaException, RuntimeError):
                reader.unassign()
        raise TableLogUnavailable(f"{self._name} was not read to its end within {within_s:g} s")

    def take(self, topic: str) -> SlotTable | None:
        """See :meth:`balancer.routing.base.TableLog.take`."""
        self._make_topic()
        writer = ck.Producer(
            {
                "linger.ms": 0,
                **self._properties,
                "transactional.id": leader_id(topic),
                "transaction.timeout.ms": 10_000,
            }
        )
        self._repeat("init_transactions", lambda: writer.init_transactions(5.0), 30.0)
        self._writers[topic] = writer
        return self.read(topic)

    def _make_topic(self) -> None:
        admin = AdminClient(self._properties)
        brokers = admin.list_topics(timeout=10)
        if self._name in brokers.topics:
            return
        copies = self._replication or min(3, len(brokers.brokers))
        config = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
        try:
            admin.create_topics([NewTopic(self._name, 1, copies, config=config)])[self._name].result(20)
        except ck.KafkaException as failure:
            if failure.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise TableLogUnavailable(f"{self._name} cannot be made: {failure.args[0].str()}") from failure
        end = time.monotonic() + 10
        while self._name not in admin.list_topics(timeout=10).topics and time.monotonic() < end:
            time.sleep(0.05)

    def append(self, table: SlotTable) -> None:
        """See :meth:`balancer.routing.base.TableLog.append`."""
        writer = self._writers.get(table.topic)
        if writer is None:
            raise RoutingError(f"take {table.topic} before writing its table")
        failed: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        try:
            writer.begin_transaction()
            writer.produce(self._name, encode(table), table.topic, partition=0, on_delivery=delivered)
            self._repeat("commit", lambda: writer.commit_transaction(5.0), 20.0)
        except ck.KafkaException as failure:
            raise self._lost(table.topic, failure.args[0]) from failure
        if failed:
            raise self._lost(table.topic, failed[0])

    def _lost(self, topic: str, error: Any) -> Exception:
        """Give the writer up: whatever happened, only a new one that reads to the end knows what is committed."""
        self._writers.pop(topic, None)
        if error.code() in _FENCED or error.fatal():
            return LeaderSuperseded(f"somebody else leads {topic} now ({error.name()})")
        return TableLogUnavailable(f"the table of {topic} was not written: {error.name()}")

    def _repeat(self, what: str, call: Any, total_s: float) -> None:
        end = time.monotonic() + total_s
        while True:
            try:
                call()
                return
            except ck.KafkaException as failure:
                error = failure.args[0]
                if error.fatal() or not error.retriable() or time.monotonic() > end:
                    if what == "commit":
                        raise
                    raise TableLogUnavailable(f"{what} of a table's writer: {error.name()}") from failure

    def close(self) -> None:
        """Give up connections."""
        self._writers.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
