"""A few records read now and then: how late they were committed, and how many offsets are records at all.

Offsets say how many, never how old. The timestamp of the record just before a group's commit says how long that record
took from being written to being committed; one record a partition is read, for a bounded number of partitions at a
time. The reader belongs to no group and commits nothing.

Resolution: the commit happened between the last two looks, so a sample may be too high by the time between them, never
too low. Where timestamps cannot be read, :class:`forecaster.ingest.delay.OffsetHistory` gives the delay from offsets
alone, to the same resolution.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Wire

from forecaster.errors import SourceUnavailable
from forecaster.ingest.bias import RecordShare
from forecaster.ingest.kafka_reader import Properties, names
from forecaster.topics import TopicPartition

PARTITIONS_AT_ONCE = 50
"""So many partitions are sampled in one go; the others have their turn later."""


class RecordSampler:
    """Reads single records of a cluster.

    Parameters
    ----------
    properties
        Client properties; never logged.
    budget_s
        How long one call may take; what has not answered by then is left out.
    """

    def __init__(self, properties: Properties, budget_s: float = 2.0) -> None:
        self._properties, self._budget_s = properties, budget_s
        self._turn: dict[TopicPartition, int] = {}
        self._calls = 0

    def delays_ms(self, committed: Mapping[TopicPartition, int], at: datetime) -> dict[TopicPartition, int]:
        """Return how long the record before each commit took until ``at``, in milliseconds.

        Parameters
        ----------
        committed
            Commits that have advanced since the last look; those longest without a sample come first.
        at
            When the commits were read, aware UTC.

        Raises
        ------
        SourceUnavailable
            If nobody answers.
        """
        self._calls += 1
        waiting = sorted((tp for tp, offset in committed.items() if offset > 0), key=lambda tp: self._turn.get(tp, 0))
        chosen = {tp: committed[tp] - 1 for tp in waiting[:PARTITIONS_AT_ONCE]}
        found: dict[TopicPartition, int] = {}
        for tp, message in self._first_at(chosen).items():
            kind, written_ms = message.timestamp()
            self._turn[tp] = self._calls
            if kind != TIMESTAMP_NOT_AVAILABLE and message.offset() == chosen[tp]:
                found[tp] = max(0, round(at.timestamp() * 1000) - written_ms)
        return found

    def record_share(self, tp: TopicPartition, start: int, end: int, most: int = 10_000) -> RecordShare:
        """Count the records among the offsets ``[start, end)`` of a partition, ``most`` at the most.

        Raises
        ------
        SourceUnavailable
            If the end of the range is not reached within the budget.
        """
        end = min(end, start + most)
        if start >= end:
            return RecordShare(0, 0)
        consumer = self._consumer({"isolation.level": "read_committed", "enable.partition.eof": True})
        records = 0
        deadline = time.monotonic() + self._budget_s
        try:
            consumer.assign([Wire(tp.topic, tp.partition, start)])
            while time.monotonic() < deadline:
                position = consumer.position([Wire(tp.topic, tp.partition)])[0].offset
                if position >= end:
                    return RecordShare(records, end - start)
                for message in consumer.consume(500, timeout=0.1):
                    offset = message.offset()
                    if message.error() is None and offset is not None and start <= offset < end:
                        records += 1
                    elif message.error() is not None or (offset is not None and offset >= end):
                        return RecordShare(records, end - start)  # the end of the log, or beyond the range
        except KafkaException as exc:
            raise SourceUnavailable(f"{tp} cannot be sampled ({exc.args[0].str()})") from None
        finally:
            consumer.close()
        raise SourceUnavailable(f"{tp} cannot be sampled: {names(self._properties)} took over {self._budget_s} s")

    def _first_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Message]:
        if not offsets:
            return {}
        consumer = self._consumer({"fetch.message.max.bytes": 4096, "queued.min.messages": 1})
        found: dict[TopicPartition, Message] = {}
        deadline = time.monotonic() + self._budget_s
        try:
            consumer.assign([Wire(tp.topic, tp.partition, offset) for tp, offset in offsets.items()])
            while len(found) < len(offsets) and time.monotonic() < deadline:
                for message in consumer.consume(len(offsets), timeout=0.1):
                    topic, partition = message.topic(), message.partition()
                    if message.error() is None and topic is not None and partition is not None:
                        found.setdefault(TopicPartition(topic, partition), message)
        except KafkaException as exc:
            raise SourceUnavailable(
                f"Kafka at {names(self._properties)} gives no records ({exc.args[0].str()})"
            ) from None
        finally:
            consumer.close()
        return found

    def _consumer(self, more: Mapping[str, str | int | bool]) -> Consumer:
        return Consumer(
            {
                **self._properties,
                "group.id": "headway-sampler",  # required by the client; never joined, never committed to
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
                **more,
            }
        )
