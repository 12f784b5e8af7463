"""A worker process of the tests: a planned consumer whose handler writes down who handled what, and when."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from balancer.consumer import Mode, PlannedConsumer, Record, WorkerSettings
from tests.chaos.rows import IN, OUT


def main() -> int:
    """Run until SIGTERM; exit code 3 means that this life was over."""
    faulthandler.register(signal.SIGUSR1)
    config: dict[str, Any] = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s", stream=sys.stderr)
    settings = WorkerSettings(
        **{k: timedelta(seconds=v) if isinstance(v, float) else v for k, v in config["settings"].items()}
        | {"topics": tuple(config["settings"]["topics"]), "mode": Mode(config["settings"].get("mode", "transactional"))}
    )
    slow = config.get("slow_s", 0)

    def handle(record: Record) -> tuple[bytes, bytes] | None:
        value = record.value or b""
        seq, written = IN.unpack(value[: IN.size])
        if slow:
            time.sleep(slow)
        instance = consumer._keeper.owner.instance
        row = OUT.pack(record.partition, record.offset, seq, written, time.monotonic(), instance, record.lease_epoch)
        if effects is not None:
            effects.write(row)
            return None
        return b"%d" % record.partition, row

    effects = None
    if settings.mode is Mode.AT_LEAST_ONCE:  # an effect of its own, that no commit undoes
        effects = (Path(config["effects"]) / f"{os.getpid()}.rows").open("ab", buffering=0)
    sink = None
    if settings.mode is Mode.SINK:
        from balancer.consumer.sinks import sqlite_sink

        sink = sqlite_sink(config["sink"], _insert, settings.group)
    consumer = PlannedConsumer(settings, handle, sink=sink)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    try:
        consumer.run()
    except Exception as error:
        logging.critical("%s: %s", type(error).__name__, error)
        return 3
    return 0


def _insert(cursor: Any, result: tuple[bytes, bytes]) -> None:
    cursor.execute("INSERT INTO rows (row) VALUES (?)", (result[1],))


if __name__ == "__main__":
    sys.exit(main())
