"""The relay: producers that cannot be routed write to a topic of their own, and this carries it into the lanes.

Exactly once: what was read, what was written and the offsets are one Kafka transaction. Order of each key holds,
since one relay at a time reads a partition, and a relay that was replaced commits no more (KIP-447).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import confluent_kafka as ck

from balancer.routing.errors import RouteStale
from balancer.routing.kafka import client_properties
from balancer.routing.producer import RoutedProducer
from balancer.routing.settings import RouteSettings

log = logging.getLogger("headway.routing")


class Relay:
    """Carries one topic into a routed one, until ``stop``.

    Several relays of the same source share its partitions as members of the group ``headway.relay.<source>``; each
    needs a name of its own.

    Parameters
    ----------
    settings
        Of the routed producer, with transactions; its first topic is where records go.
    source
        Where the legacy producers write.
    commit_every_s
        Longest time between commits.
    producer
        For tests; made from the settings by default.
    """

    def __init__(
        self,
        settings: RouteSettings,
        source: str,
        commit_every_s: float = 0.05,
        producer: RoutedProducer | None = None,
    ) -> None:
        if not settings.transactional or source in settings.topics:
            raise ValueError("a relay needs transactions, and a source that is not the routed topic itself")
        self._target, self._source, self._every_s = settings.topics[0], source, commit_every_s
        self._producer = RoutedProducer(settings) if producer is None else producer  # an empty one is false
        self._consumer = ck.Consumer(
            {
                "fetch.wait.max.ms": 20,
                **client_properties(settings.bootstrap_servers, settings.properties),
                "group.id": f"headway.relay.{source}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._stopped = threading.Event()
        self.relayed = 0

    def stop(self) -> None:
        """End ``run`` after the transaction that is under way; safe from a signal handler."""
        self._stopped.set()

    def run(self) -> None:
        """Relay until ``stop``.

        Raises
        ------
        confluent_kafka.KafkaException
            If this life is over (fenced); a supervisor starts the next one.
        NotRouted, RouteStoreUnavailable
            If the routed topic cannot be written.
        """
        self._producer.init_transactions()
        self._consumer.subscribe([self._source])
        try:
            while not self._stopped.is_set():
                batch = [m for m in self._consumer.consume(500, self._every_s) if m.error() is None]
                if batch:
                    self._carry(batch)
        finally:
            self._consumer.close()
            self._producer.close()

    def _carry(self, batch: list[Any]) -> None:
        """Write a batch and its offsets in one transaction; after an abort it is read again."""
        offsets: dict[int, int] = {}
        self._producer.begin_transaction()
        try:
            for message in batch:
                self._send(message)
                offsets[message.partition()] = message.offset() + 1
            rows = [ck.TopicPartition(self._source, p, offset) for p, offset in offsets.items()]
            self._producer.send_offsets_to_transaction(rows, self._consumer.consumer_group_metadata(), 10.0)
            self._producer.commit_transaction(30.0)
            self.relayed += len(batch)
        except ck.KafkaException as failure:
            error = failure.args[0]
            if error.fatal():
                raise
            log.warning("relay of %s: %s; its records are carried again", self._source, error.name())
            self._producer.abort_transaction(30.0)
            firsts: dict[int, int] = {}
            for message in batch:
                firsts.setdefault(message.partition(), message.offset())
            assigned = {tp.partition for tp in self._consumer.assignment()}
            for partition, offset in firsts.items():
                if partition in assigned:
                    self._consumer.seek(ck.TopicPartition(self._source, partition, offset))
            time.sleep(0.05)

    def _send(self, message: Any) -> None:
        kind, stamp = message.timestamp()
        while True:
            try:
                self._producer.produce(
                    self._target,
                    message.value(),
                    message.key(),
                    timestamp=stamp if kind else 0,
                    headers=message.headers() or None,
                )
                return
            except (BufferError, RouteStale):
                self._producer.poll(0.02)
