"""Planned consumers as threads of the test, on real Kafka, with leases in memory."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient

from balancer.consumer import PlannedConsumer, Record, WorkerSettings
from balancer.consumer.watchdog import Watchdog
from balancer.leases.memory import MemoryLeaseStore
from balancer.moves.duties import Duties
from balancer.moves.founding import KafkaFounder
from balancer.moves.kafka import PlannedGroup
from balancer.moves.mover import Mover
from forecaster.topics import GroupId, TopicPartition

QUIET = {"log_level": 0, "retry.backoff.ms": 20}


class Running:
    """One consumer in a thread."""

    def __init__(self, consumer: PlannedConsumer) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:
            self.error = error

    def stop(self, within_s: float = 120) -> None:
        self.consumer.stop()
        self.thread.join(within_s)
        assert not self.thread.is_alive()


class Pool:
    """A group with its topics, its mover, and its workers."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"{re.sub('[^a-z0-9]+', '-', name.lower())[:40]}-{uuid4().hex[:6]}"
        self.topic, self.out, self.group = f"{self.name}-in", f"{self.name}-out", self.name
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self.store = MemoryLeaseStore(GroupId(self.group))
        self.source = PlannedGroup(bootstrap, self.group, [self.topic])
        self.mover = Mover(self.store, self.source, KafkaFounder(self.source), "test")
        self.duties = Duties(self.source, self.store)
        self.workers: list[Running] = []
        self.producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **QUIET})

    def create(self, *topics: str, partitions: int = 2) -> None:
        for future in self.admin.create_topics([NewTopic(t, partitions, 1) for t in topics]).values():
            future.result(60)
        for topic in topics:
            self.wait(lambda t=topic: len(self.admin.list_topics(t, timeout=20).topics[t].partitions) == partitions)  # type: ignore[misc]

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(60)
        self.wait(lambda: topic not in self.admin.list_topics(timeout=20).topics)

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(60)
        topics = self.admin.list_topics
        self.wait(lambda: len(topics(self.topic, timeout=20).topics[self.topic].partitions) == partitions)

    def write(self, values: Sequence[str], partition: int = 0, topic: str | None = None) -> None:
        for value in values:
            self.producer.produce(topic or self.topic, value.encode(), value.encode(), partition=partition)
        assert self.producer.flush(60) == 0

    def plan(self) -> None:
        self.mover.start()

    def worker(self, handler: Callable[[Any], Any], **settings: Any) -> Running:
        known = {
            "output_topic": self.out,
            "lease_ttl": timedelta(seconds=10),  # a machine that stands still for less costs nobody a life
            "drain_timeout": timedelta(seconds=0.5),
            "bootstrap_servers": self.bootstrap,
        } | settings
        extra = {k: known.pop(k) for k in ("batch", "sink", "watchdog") if k in known}
        made = WorkerSettings(group=self.group, topics=(self.topic,), **known)
        extra.setdefault("watchdog", Watchdog(lambda what, seconds: None))
        running = Running(PlannedConsumer(made, handler, leases=self.store, **extra))
        self.workers.append(running)
        return running

    def ready(self, *workers: Running) -> None:
        for worker in workers or self.workers:
            self.wait(worker.consumer.is_ready.is_set)

    def owner(self, partition: int) -> int | None:
        if self.store.is_lost():
            return None
        lease = self.store.view().leases.get(TopicPartition(self.topic, partition))
        return lease.owner.instance if lease and lease.owner else None

    def wait(self, is_so: Callable[[], bool], within_s: float = 120) -> None:
        end = time.monotonic() + within_s
        while not is_so():
            for worker in self.workers:
                assert worker.error is None, worker.error
            assert time.monotonic() < end, "not so in time"
            time.sleep(0.02)

    def read(self, count: int, topic: str | None = None, within_s: float = 120) -> dict[int, list[str]]:
        """Return ``count`` committed values of a topic by partition, and whatever follows within a moment."""
        reader = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{uuid4().hex}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                **QUIET,
            }
        )
        topic = topic or self.out
        parts = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        reader.assign([ck.TopicPartition(topic, p, 0) for p in parts])
        found: dict[int, list[str]] = defaultdict(list)
        end = time.monotonic() + within_s
        late = None
        while time.monotonic() < (late or end):
            for m in reader.consume(500, 0.1):
                if m.error() is None:
                    found[m.partition()].append((m.value() or b"").decode())
            if late is None and sum(map(len, found.values())) >= count:
                late = time.monotonic() + 0.4
        reader.close()
        assert sum(map(len, found.values())) >= count, dict(found)
        return dict(found)

    def committed(self, partition: int = 0) -> int | None:
        commit = self.source.commits().get(TopicPartition(self.topic, partition))
        return None if commit is None else commit.offset

    def commit_plainly(self, partition: int, offset: int, metadata: str = "") -> None:
        """Commit as somebody without a membership does."""
        client = ck.Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUIET})

        def accepted() -> bool:
            try:
                client.commit(offsets=[ck.TopicPartition(self.topic, partition, offset, metadata)], asynchronous=False)
            except ck.KafkaException:
                return False
            return True

        self.wait(accepted)
        client.close()

    def forget_offset(self, partition: int) -> None:
        """Delete a committed offset, as its retention would."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","))
        admin.delete_group_offsets(self.group, [KafkaPartition(self.topic, partition)])
        admin.close()

    def ordinary(self, client_id: str) -> ck.Consumer:
        """Start an ordinary member of the group."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": client_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        consumer.subscribe([self.topic])
        return consumer

    def drain_ordinary(self, consumer: ck.Consumer, count: int, within_s: float = 120) -> list[str]:
        """Read and commit ``count`` records as an ordinary member, and whatever follows within a moment."""
        found: list[str] = []
        end, late = time.monotonic() + within_s, None
        while time.monotonic() < (late or end):
            m = consumer.poll(0.1)
            if m is not None and m.error() is None:
                found.append((m.value() or b"").decode())
                consumer.commit(m, asynchronous=False)
            if late is None and len(found) >= count:
                late = time.monotonic() + 0.5
        assert len(found) >= count, found
        return found

    def close(self) -> None:
        for worker in self.workers:
            worker.consumer.stop()
        for worker in self.workers:
            worker.thread.join(20)
        self.mover.stop()
        self.source.close()


def echo(record: Record) -> bytes | None:
    """Return what came."""
    return record.value
