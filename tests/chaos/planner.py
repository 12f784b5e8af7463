"""A planner process of the tests: the mover with its duties, and nothing that decides."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from datetime import timedelta
from typing import Any

from balancer.leases.redis import RedisLeaseStore
from balancer.moves.duties import Duties
from balancer.moves.founding import KafkaFounder
from balancer.moves.kafka import PlannedGroup
from balancer.moves.mover import Mover
from forecaster.topics import GroupId


def make(config: dict[str, Any]) -> tuple[Mover, Duties]:
    """Wire a mover for one group."""
    group = PlannedGroup(config["bootstrap"], config["group"], config["topics"])
    store = RedisLeaseStore(config["store"], "main", GroupId(config["group"]))
    ttl = timedelta(seconds=config.get("leader_ttl", 3.0))
    return Mover(store, group, KafkaFounder(group), config["name"], leader_ttl=ttl), Duties(group, store)


def main() -> None:
    """Run until SIGTERM."""
    config = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s", stream=sys.stderr)
    mover, _ = make(config)
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    mover.start()
    done.wait()
    mover.stop()


if __name__ == "__main__":
    main()
