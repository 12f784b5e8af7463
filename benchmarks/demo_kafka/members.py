"""Both groups' members as processes: one handler for both, and the rival's loop around it.

``handle`` is what a user gives ``headway worker``; run as a module this is the rival's member: an ordinary consumer
with the cooperative-sticky assignor. Both take the same time for a record and write down when it was handled.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from pathlib import Path
from typing import Any

ROW = struct.Struct(">hqdd")
"""Partition, offset, instant written, instant handled (both monotonic)."""
WRITTEN = struct.Struct(">d")
COMMIT_S = 0.1


class Handler:
    """Works for as long as a record takes, and notes it."""

    def __init__(self, folder: Path, records_s: float) -> None:
        self._each = 1.0 / records_s
        self._free = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._rows = (folder / f"{os.getpid()}.rows").open("ab", buffering=0)

    def __call__(self, partition: int, offset: int, value: bytes) -> None:
        """Handle one record."""
        self._free = max(self._free, time.monotonic()) + self._each
        time.sleep(max(self._free - time.monotonic(), 0.0))
        (written,) = WRITTEN.unpack(value[: WRITTEN.size])
        self._rows.write(ROW.pack(partition, offset, written, time.monotonic()))


def from_environment() -> Handler:
    """Make the handler that the demo's processes are told of by their environment."""
    return Handler(Path(os.environ["DEMO_ROWS"]), float(os.environ["DEMO_RECORDS_S"]))


_handler: Handler | None = None


def handle(record: Any) -> None:
    """Handle a record of ``headway worker``."""
    global _handler
    if _handler is None:
        _handler = from_environment()
    _handler(record.partition, record.offset, record.value or b"")


def ordinary_member(bootstrap: str, group: str, topic: str) -> None:
    """Consume as an ordinary member until SIGTERM; commits every :data:`COMMIT_S` and before it gives anything up."""
    from confluent_kafka import Consumer, KafkaException

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:  # nothing new, or a rebalance is under way: the next one makes up for it
            return

    consumer.subscribe([topic], on_revoke=lambda *_: commit())
    handler, due = from_environment(), time.monotonic() + COMMIT_S
    while not stop.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            handler(message.partition(), message.offset(), message.value())
            consumer.store_offsets(message)
        if time.monotonic() >= due:
            commit()
            due = time.monotonic() + COMMIT_S
    commit()
    consumer.unsubscribe()
    consumer.close()


if __name__ == "__main__":
    import sys

    ordinary_member(*sys.argv[1:4])
