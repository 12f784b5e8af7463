"""The two ends of the pipe as processes: a producer at a steady rate, and a ``read_committed`` reader."""

from __future__ import annotations

import json
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from tests.chaos.rows import IN, OUT

stop = threading.Event()


def produce(config: dict[str, Any]) -> None:
    """Write ``rate`` records/s round robin until SIGTERM, then say how many each partition got."""
    client = ck.Producer(
        {
            "bootstrap.servers": config["bootstrap"],
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 300_000,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    partitions, rate = config["partitions"], config["rate"]
    counts, n, credit, then, pad = [0] * partitions, 0, 0.0, time.monotonic(), b"x" * 84
    while not stop.is_set():
        now = time.monotonic()
        credit, then = min(credit + (now - then) * rate, rate), now
        while credit >= 1:
            p = n % partitions
            try:
                client.produce(config["topic"], IN.pack(counts[p], time.monotonic()) + pad, partition=p)
            except BufferError:
                client.poll(0.05)
                break
            counts[p] += 1
            n += 1
            credit -= 1
        client.poll(0)
        time.sleep(0.002)
    left = client.flush(120)
    Path(config["file"]).write_text(json.dumps({"counts": counts, "left": left}))


def read(config: dict[str, Any]) -> None:
    """Read the output until SIGTERM, saying now and then how far it has come; then write down all of it."""
    client = ck.Consumer(
        {
            "bootstrap.servers": config["bootstrap"],
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    client.assign([ck.TopicPartition(config["topic"], i, 0) for i in range(config["partitions"])])
    rows: list[tuple[Any, ...]] = []
    seen: dict[int, int] = {}
    mark = 0.0
    progress = Path(config["file"]).with_suffix(".seen")
    while not stop.is_set():
        for m in client.consume(2000, 0.02):
            if m.error() is None:
                row = OUT.unpack(m.value())
                rows.append((*row, time.monotonic()))
                seen[row[0]] = max(seen.get(row[0], 0), row[1] + 1)
        if time.monotonic() > mark:
            part = progress.with_suffix(".part")
            part.write_text(json.dumps(seen))
            part.rename(progress)
            mark = time.monotonic() + 0.2
    client.close()
    Path(config["file"]).write_bytes(pickle.dumps(rows))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    {"produce": produce, "read": read}[sys.argv[1]](json.loads(sys.argv[2]))
