"""The rival: KEDA's lag rule behind an HPA, on the real lag of a real group, scaling the same kind of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from balancer.rivals.keda_lag import KedaLag
from balancer.rivals.tuning import Wish, history_weeks, keda_grid, tune
from balancer.simulator.batch import SLOT_S, BatchPolicy, Seen
from benchmarks.demo_kafka.scene import MOST, START, THEIRS, Scene
from benchmarks.demo_kafka.tempo import PARTITIONS, TOPIC


def tuned(scene: Scene) -> tuple[BatchPolicy, str]:
    """Return the rule with the lag threshold that served the last week best: fewest hours, one late record in 1,000."""
    world = scene.world
    rows, before = history_weeks(world.history, 1)
    grid = keda_grid(world.capacity, MOST, PARTITIONS)
    policy, words = tune(grid, world.setting(rows, before), Wish(late_share=1e-3))
    assert isinstance(policy, KedaLag)
    return policy, words


class LagScaler:
    """Looks at the lag every 15 s of the trace (KEDA's own poll is every 30), and asks for members.

    Parameters
    ----------
    bootstrap, policy, first
        Where the group is, what decides, and the members that it begins with.
    scale
        Sets the number of members.
    clock
        The trace's.
    """

    def __init__(
        self,
        bootstrap: str,
        policy: BatchPolicy,
        first: int,
        scale: Callable[[int], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._policy, self._scale, self._clock = policy, scale, clock
        self.requested, self.lag = first, 0
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": THEIRS, "log_level": 0})
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag-scaler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(10)
            self._consumer.close()

    def _run(self) -> None:
        slot = 0
        while not self._stop.wait(0.02):
            at = int((self._clock() - START).total_seconds() // SLOT_S)
            if at < slot:
                continue
            slot = at + 1
            try:
                self.lag = self._read()
            except KafkaException:  # an error is no lag; the next look comes
                continue
            seen = Seen(
                float(at * SLOT_S), np.array([float(self.lag)]), np.zeros(1), np.array([self.requested]), np.zeros(1)
            )
            wanted = int(self._policy.decide(seen)[0])
            if wanted != self.requested:
                self.requested = wanted
                self._scale(wanted)

    def _read(self) -> int:
        parts = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        committed = {tp.partition: max(tp.offset, 0) for tp in self._consumer.committed(parts, timeout=5)}
        ends = self._admin.list_offsets({tp: OffsetSpec.latest() for tp in parts}, request_timeout=5)
        return sum(max(found.result(5).offset - committed[tp.partition], 0) for tp, found in ends.items())
