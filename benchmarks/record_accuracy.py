"""What a counting producer really sent, beside what was recorded, while things happen to broker, topic and recorder."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.ingest.recorder import Recorder
from forecaster.offsets import CountingPolicy
from forecaster.stores.base import SeriesKey
from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.opening import open_store
from tests.peers.kafka import Kafka

TOPIC, PARTITIONS, STEP_S = "orders", 6, 5
QUIET_S = 1.0
"""The producer rests so long around each boundary, so that what belongs to a step is beyond doubt."""


class CountingProducer:
    """Sends bursts inside steps, and counts every acknowledged record under the step of its acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.counts: dict[tuple[int, int], int] = defaultdict(int)
        self.doubtful: set[int] = set()
        """Boundaries with an acknowledgement close to them, or records of an unknown fate."""
        self.resting = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._rng = np.random.default_rng(0)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._over.set()
        self._thread.join(60)

    def _acknowledged(self, error: object, message: Message) -> None:
        now = time.time()
        step, inside = divmod(now, STEP_S)
        if error is not None:
            self.doubtful |= {int(step) - 1, int(step), int(step) + 1}
            return
        partition = message.partition()
        assert partition is not None
        self.counts[int(step), partition] += 1
        if inside < QUIET_S / 2:
            self.doubtful |= {int(step) - 1, int(step)}
        elif inside > STEP_S - QUIET_S / 2:
            self.doubtful |= {int(step), int(step) + 1}

    def _run(self) -> None:
        producer = self._producer()
        while not self._over.is_set():
            step, inside = divmod(time.time(), STEP_S)
            if inside < QUIET_S:
                self._over.wait(QUIET_S - inside)
                continue
            if inside > STEP_S - 2 * QUIET_S or self.resting.is_set():
                if self.resting.is_set():
                    producer = self._producer()  # knows nothing of the topic that goes now
                self._over.wait(max(0.05, STEP_S - inside))
                continue
            for partition in range(PARTITIONS):
                for _ in range(int(self._rng.integers(0, 40))):
                    producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._acknowledged)
            if producer.flush(STEP_S - QUIET_S - inside):
                producer.purge()
                producer.flush(1)
                self.doubtful |= {int(step), int(step) + 1}
            self._over.wait(0.3)

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": 0,
                "linger.ms": 2,
                "enable.idempotence": True,
                "message.timeout.ms": 3000,
            }
        )


def accuracy(minutes: float) -> dict[str, Any]:
    """Run the comparison; return how many cells were exact, wrong, missing and beyond judgement."""
    steps = max(24, int(minutes * 60 / STEP_S))
    with tempfile.TemporaryDirectory() as folder, Kafka(Path(folder) / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        _make(admin)
        with EmbeddedServer(Path(folder) / "store") as server, closing(open_store(server.url, "main")) as store:

            def recorder() -> Recorder:
                source = KafkaOffsetSource({"bootstrap.servers": kafka.bootstrap}, timeout_s=3)
                return Recorder(store, source, {}, topics=[TOPIC], policy=CountingPolicy(STEP_S, 0.6, 0.0))

            producer = CountingProducer(kafka.bootstrap)
            producer.start()
            recording = recorder()
            first = int(time.time()) // STEP_S + 2
            away_until = 0
            for n in range(steps + 1):
                _wait_for((first + n) * STEP_S)
                if n >= away_until:
                    recording.tick()
                happening = n
                if happening == steps // 4:  # the recorder is restarted at once: no step may be lost
                    recording.close()
                    recording = recorder()
                    _say("recorder restarted at once")
                elif happening == steps // 3:
                    kafka.kill()
                    _say(f"broker killed; back after {kafka.restart():.1f} s")
                elif happening == steps // 2:
                    recording.close()
                    recording, away_until = recorder(), n + 4
                    _say("recorder away for 4 steps")
                elif happening == 2 * steps // 3:
                    producer.resting.set()
                    _make_again(admin)
                    producer.resting.clear()
                    _say("topic made again")
            producer.stop()
            recording.close()
            cells = store.read(SeriesKey(TOPIC, "arrivals", None, STEP_S), first, first + steps)
    exact = wrong = missing = doubtful = 0
    error = sent = 0
    for p in range(PARTITIONS):
        for i in range(steps):
            truth = producer.counts.get((first + i, p), 0)
            known = bool(p < cells.partitions and cells.known[p, i])
            if not known:
                missing += 1
            elif first + i in producer.doubtful:
                doubtful += 1
            else:
                sent += truth
                error += abs(int(cells.values[p, i]) - truth)
                exact, wrong = exact + (cells.values[p, i] == truth), wrong + (cells.values[p, i] != truth)
    return {
        "accuracy_minutes": steps * STEP_S / 60,
        "records_error": error / sent if sent else 1.0,
        "records_compared": int(sent),
        "cells_exact": int(exact),
        "cells_wrong": int(wrong),
        "cells_missing": missing,
        "cells_beyond_judgement": doubtful,
    }


def _make(admin: AdminClient) -> None:
    for attempt in range(50):
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
            return
        except Exception:  # the old one is still going
            if attempt == 49:
                raise
            time.sleep(0.2)


def _make_again(admin: AdminClient) -> None:
    time.sleep(0.5)
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    _make(admin)


def _wait_for(instant: float) -> None:
    while (left := instant - time.time()) > 0:
        time.sleep(left)


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)
