"""A member of an ordinary group, for ``benchmarks.handover``: consumes, produces and commits in transactions."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import Any

import confluent_kafka as ck

from tests.chaos.rows import IN, OUT

TP = ck.TopicPartition


class Member:
    """One member under ``range``, ``cooperative-sticky`` or KIP-848 (``consumer``); client defaults otherwise."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        properties = {
            "bootstrap.servers": config["bootstrap"],
            "group.id": config["group"],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **config["properties"],
        }
        self.consumer = ck.Consumer(properties)
        self.producer = ck.Producer(
            {
                "bootstrap.servers": config["bootstrap"],
                "transactional.id": f"{config['group']}.{config['instance']}",
                "linger.ms": 2,
                "partitioner": "murmur2_random",
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(30)
        self.owned: set[int] = set()
        self.dirty: dict[int, int] = {}
        self.open = False
        self.since = 0.0

    def commit(self) -> None:
        """End the open transaction; on an error run its records again."""
        if not self.open:
            return
        try:
            rows = [TP(self.config["input"], p, offset) for p, offset in self.dirty.items()]
            self.producer.send_offsets_to_transaction(rows, self.consumer.consumer_group_metadata(), 30)
            self.producer.commit_transaction(30)
        except ck.KafkaException as failure:
            if failure.args[0].fatal():
                raise
            self.producer.abort_transaction(30)
            positions = [TP(self.config["input"], p) for p in self.owned]
            for tp in self.consumer.committed(positions, timeout=30) if positions else []:
                self.consumer.seek(TP(tp.topic, tp.partition, max(tp.offset, 0)))
        self.open = False
        self.dirty.clear()

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop``."""
        consumer = self.consumer

        def assigned(_: Any, tps: list[Any]) -> None:
            self.owned.update(tp.partition for tp in tps)

        def revoked(_: Any, tps: list[Any]) -> None:
            self.commit()
            self.owned.difference_update(tp.partition for tp in tps)

        consumer.subscribe([self.config["input"]], on_assign=assigned, on_revoke=revoked)
        while not stop.is_set():
            for m in consumer.consume(500, 0.005):
                if m.error() is not None or m.partition() not in self.owned:
                    continue
                if not self.open:
                    self.producer.begin_transaction()
                    self.open, self.since = True, time.monotonic()
                seq, written = IN.unpack(m.value()[: IN.size])
                row = OUT.pack(m.partition(), m.offset(), seq, written, time.monotonic(), self.config["instance"], 0)
                self.producer.produce(self.config["output"], row, b"%d" % m.partition())
                self.dirty[m.partition()] = m.offset() + 1
            self.producer.poll(0)
            if self.open and time.monotonic() - self.since >= 0.1:
                self.commit()
        self.commit()
        consumer.unsubscribe()
        consumer.close()


if __name__ == "__main__":
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    Member(json.loads(sys.argv[1])).run(over)
