"""Records/s of the transactional loop of the library beside a plain loop, for ``benchmarks.handover``."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex
from typing import Any

import confluent_kafka as ck

from balancer.consumer import PlannedConsumer, Record, WorkerSettings
from balancer.leases.base import StartRule
from balancer.leases.memory import MemoryLeaseStore
from balancer.moves.mover import Mover
from forecaster.topics import GroupId, TopicPartition

QUIET = {"log_level": 0}
FIRST = 0.2
"""Share of the records before the clock starts: connections, assignment and first fetches are not the loop."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Records/s, and CPU microseconds of this process for each."""

    records_s: float
    cpu_us: float


def plain(bootstrap: str, topic: str, out: str, partitions: int, records: int) -> Speed:
    """Consume, produce and auto-commit the same records."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"plain-{token_hex(4)}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **QUIET})
    consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(partitions)])
    count, first, began, cpu = 0, round(FIRST * records), 0.0, 0.0
    while count < records:
        batch = consumer.consume(500, 0.05)
        if count >= first and not began:
            first, began, cpu = count, time.monotonic(), time.process_time()
        for m in batch:
            if m.error() is None:
                while True:
                    try:
                        producer.produce(out, m.value(), m.key())
                        break
                    except BufferError:
                        producer.poll(0.01)
                count += 1
        producer.poll(0)
    producer.flush(60)
    count -= first
    speed = Speed(count / (time.monotonic() - began), (time.process_time() - cpu) / count * 1e6)
    consumer.close()
    return speed


class _Timed(PlannedConsumer):
    """Notes when everything has been committed and given up."""

    ended = cpu_end = 0.0

    def _release(self, helds: list[Any]) -> None:
        super()._release(helds)
        self.ended, self.cpu_end = time.monotonic(), time.process_time()


class _NoFence:
    def fence(self, worker: Any) -> None:
        """Nobody dies here."""


class _JustFound:
    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions

    def found(self, store: Any, token: Any) -> None:
        """Found the books without asking Kafka."""
        store.found(token, epoch_floor=0)
        store.add(token, [TopicPartition(self.topic, p) for p in range(self.partitions)], StartRule.BEGINNING)


def planned(bootstrap: str, topic: str, out: str, partitions: int, records: int) -> Speed:
    """Run the planned consumer's transactional loop, a commit every 100 ms, over the same records."""
    group = f"planned-{token_hex(4)}"
    store = MemoryLeaseStore(GroupId(group))
    mover = Mover(store, _NoFence(), _JustFound(topic, partitions), "bench")
    settings = WorkerSettings(
        group=group,
        topics=(topic,),
        bootstrap_servers=bootstrap,
        output_topic=out,
        lease_ttl=timedelta(seconds=20),
        drain_timeout=timedelta(0),
        properties=QUIET,
    )
    count, first, began, cpu = 0, round(FIRST * records), 0.0, 0.0

    def handle(record: Record) -> bytes | None:
        nonlocal count, began, cpu
        if count == first:
            began, cpu = time.monotonic(), time.process_time()
        count += 1
        if count == records:
            consumer.stop()
        return record.value

    consumer = _Timed(settings, handle, leases=store)
    mover.start()
    consumer.run()
    mover.stop()
    count = records - first
    return Speed(count / (consumer.ended - began), (consumer.cpu_end - cpu) / count * 1e6)


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Write what the loops read."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000, **QUIET}
    )
    for i in range(records):
        while True:
            try:
                producer.produce(topic, b"x" * 100, b"%d" % i, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 5000 == 0:
            producer.poll(0)
    producer.flush(120)


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median (order statistics; the whole range below eight pairs)."""
    ordered = sorted(ratios)
    cut = 0 if len(ordered) < 8 else 1
    return ordered[cut], ordered[-1 - cut]


def compare(bootstrap: str, topic: str, out: str, partitions: int, records: int, pairs: int) -> dict[str, Any]:
    """Run alternating pairs; return medians and the interval of the ratio."""
    plain(bootstrap, topic, out, partitions, records // 4)  # warm
    rows = []
    for i in range(pairs):
        both = [plain, planned] if i % 2 else [planned, plain]
        speeds = {f.__name__: f(bootstrap, topic, out, partitions, records) for f in both}
        rows.append((speeds["planned"], speeds["plain"]))
    ratios = [ours.records_s / bare.records_s for ours, bare in rows]
    low, high = interval(ratios)
    return {
        "partitions": partitions,
        "pairs": pairs,
        "records": records,
        "plain_records_s": round(statistics.median(b.records_s for _, b in rows)),
        "planned_records_s": round(statistics.median(a.records_s for a, _ in rows)),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_interval": [round(low, 3), round(high, 3)],
        "plain_cpu_us": round(statistics.median(b.cpu_us for _, b in rows), 2),
        "planned_cpu_us": round(statistics.median(a.cpu_us for a, _ in rows), 2),
    }
