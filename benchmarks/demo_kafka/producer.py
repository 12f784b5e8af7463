"""Replays the trace's minutes onto the topic as a process, from the instant on that it is told."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks.demo_kafka.members import WRITTEN
from benchmarks.demo_kafka.tempo import PACE, PARTITIONS, TOPIC, rate_at


def main() -> None:
    """Write each record when it is due, then say how many each partition got."""
    config = json.loads(sys.argv[1])
    minutes = np.array(config["minutes"])
    due, end_s = rate_at(minutes), minutes.size * 60.0 / PACE
    client = Producer(
        {"bootstrap.servers": config["bootstrap"], "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
    )
    client.list_topics(TOPIC, timeout=20)
    partitions = np.random.default_rng(1).integers(0, PARTITIONS, int(minutes.sum()) + 1)
    counts, sent = [0] * PARTITIONS, 0
    print("ready", flush=True)
    began = float(input())
    while (since := time.monotonic() - began) < end_s:
        while sent < due(since):
            p = int(partitions[sent])
            client.produce(TOPIC, WRITTEN.pack(time.monotonic()), partition=p)
            counts[p] += 1
            sent += 1
        client.poll(0)
        time.sleep(0.005)
    left = client.flush(30)
    Path(config["file"]).write_text(json.dumps({"counts": counts, "left": left}))


if __name__ == "__main__":
    main()
