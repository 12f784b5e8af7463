"""The processes of the pipe: routed producers, workers and the planner of a routed topic."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from balancer.consumer import PlannedConsumer, Record, WorkerSettings
from balancer.leases.redis import RedisLeaseStore
from balancer.moves.duties import Duties
from balancer.moves.founding import KafkaFounder
from balancer.moves.gates import LaneGates
from balancer.moves.kafka import PlannedGroup
from balancer.moves.mover import Mover
from balancer.moves.routed_topic import RoutedTopic
from balancer.moves.splitting import SplitLimits, TopicLeader
from balancer.routing.kafka import KafkaTableLog
from balancer.routing.producer import RoutedProducer
from balancer.routing.redis import RedisRouteStore
from balancer.routing.settings import RouteSettings
from forecaster.topics import GroupId
from tests.splitting.rows import IN, OUT

stop = threading.Event()
log = logging.getLogger("tests.splitting")


def committed_so_far(bootstrap: str, topic: str, producer: int) -> dict[int, int]:
    """Return key → next sequence number of a producer, from what the log holds committed."""
    return {key: seq + 1 for (p, key), seq in last_of(read_input(bootstrap, topic)).items() if p == producer}


def last_of(rows: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for producer, key, seq in rows:
        found[producer, key] = max(found.get((producer, key), -1), seq)
    return found


def read_input(bootstrap: str, topic: str) -> list[tuple[int, int, int]]:
    """Return (producer, key, sequence number) of everything committed to a topic."""
    return inputs_of(read_all(bootstrap, topic))


def inputs_of(messages: list[Any]) -> list[tuple[int, int, int]]:
    return [tuple(IN.unpack(m.value()[: IN.size])[:3]) for m in messages]  # type: ignore[misc]


class Tail:
    """Reads a topic's committed records from its start, and later what has come since; new partitions too."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._client = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tests.reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        self._next: dict[int, int] = {}
        self.rows: list[Any] = []

    def more(self, within_s: float = 30.0) -> list[Any]:
        """Return every committed record up to now, each partition's in its order."""
        partitions = self._client.list_topics(self._topic, timeout=10).topics[self._topic].partitions
        self._client.assign([ck.TopicPartition(self._topic, p, self._next.get(p, 0)) for p in partitions])
        open_, end = set(partitions), time.monotonic() + within_s
        while open_ and time.monotonic() < end:
            first = self._client.poll(0.05)
            for m in [] if first is None else [first, *self._client.consume(2000, 0)]:
                if m.error() is None:
                    self.rows.append(m)
                    self._next[m.partition()] = m.offset() + 1
                elif m.error().code() == ck.KafkaError._PARTITION_EOF:
                    open_.discard(m.partition())
        self._client.unassign()
        return self.rows

    def close(self) -> None:
        self._client.close()


def read_all(bootstrap: str, topic: str) -> list[Any]:
    """Return every committed record of a topic, partition by partition in its order."""
    tail = Tail(bootstrap, topic)
    try:
        return tail.more()
    finally:
        tail.close()


def produce(config: dict[str, Any]) -> None:
    """Write to a routed topic until SIGTERM; a life that is fenced is followed by the next."""
    random.seed(config["number"])
    sent, file = 0, Path(config["file"])
    holds: list[float] = []
    stamps: list[tuple[float, int]] = []
    while not stop.is_set():
        settings = RouteSettings(
            name=f"{config['topic']}-{config['number']}",
            topics=(config["topic"],),
            bootstrap_servers=config["bootstrap"],
            store_url=config["store"],
            transactional=config["transactional"],
            transaction_timeout=timedelta(seconds=10),
        )
        producer = RoutedProducer(settings)
        try:
            if config["transactional"]:
                producer.init_transactions(20)
            else:
                producer.start()
            next_seq = committed_so_far(config["bootstrap"], config["topic"], config["number"])
            sent += _send_until_stopped(producer, config, next_seq)
        except (ck.KafkaException, Exception) as error:
            log.info("life over: %s", error)
            time.sleep(0.1)
        finally:
            holds += list(producer._keeper.holds)
            with contextlib.suppress(Exception):
                producer._keeper.stop(leave=False)
    file.write_text(json.dumps({"sent": sent, "holds": holds, "stamps": stamps, "refusals": producer.refusals}))


def _send_until_stopped(producer: RoutedProducer, config: dict[str, Any], next_seq: dict[int, int]) -> int:
    topic, number, transactional = config["topic"], config["number"], config["transactional"]
    keys, weights = range(config["keys"]), config.get("weights")
    names = config.get("names") or [f"key-{key}" for key in keys]
    pad = b"x" * config.get("pad", 60)
    credit, then, sent = 0.0, time.monotonic(), 0
    while not stop.is_set():
        if transactional:
            producer.begin_transaction()
        until = time.monotonic() + config.get("transaction_s", 0.03) * random.uniform(0.3, 1.0)
        wrote = dict(next_seq)
        while time.monotonic() < until:
            now = time.monotonic()
            rate = rate_at(config)
            credit, then = min(credit + (now - then) * rate, rate * 0.2 + 1), now
            while credit >= 1:
                credit -= 1
                key = random.choices(keys, weights)[0]
                seq = wrote.get(key, 0)
                value = IN.pack(number, key, seq, time.time()) + pad
                while True:
                    try:
                        producer.produce(topic, value, names[key])
                        break
                    except BufferError:
                        producer.poll(0.01)
                wrote[key] = seq + 1
                sent += 1
            producer.poll(0)
            time.sleep(0.002)
        if transactional:
            while True:
                try:
                    producer.commit_transaction(10)
                    break
                except ck.KafkaException as failure:
                    if failure.args[0].txn_requires_abort():
                        producer.abort_transaction(10)
                        wrote = next_seq
                        break
                    if not failure.args[0].retriable():
                        raise
        next_seq = wrote
    if not transactional:
        producer.flush(20)
    return sent


def rate_at(config: dict[str, Any]) -> float:
    """Return the producer's rate now: the base, or what a profile of (from, records/s) says."""
    rate = float(config["rate"])
    for start, value in config.get("profile") or ():
        if time.time() >= start:
            rate = value
    return rate


def work(config: dict[str, Any]) -> int:
    """Run a planned consumer that writes down what it has handled."""
    settings = WorkerSettings(
        group=config["group"],
        topics=(config["topic"],),
        bootstrap_servers=config["bootstrap"],
        store_url=config["store"],
        output_topic=config["output"],
        instance=config["instance"],
        poll_records=config.get("poll_records", 500),
    )
    slow = config.get("slow_s", 0.0)

    def handle(record: Record) -> tuple[bytes, bytes]:
        producer, key, seq, sent = IN.unpack((record.value or b"")[: IN.size])
        if slow:
            time.sleep(slow)
        return b"%d" % key, OUT.pack(producer, key, seq, sent, record.partition, record.offset, time.time())

    consumer = PlannedConsumer(settings, handle)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    try:
        consumer.run()
    except Exception as error:
        log.critical("%s: %s", type(error).__name__, error)
        return 3
    return 0


def plan(config: dict[str, Any]) -> None:
    """Lead the topic and its groups until SIGTERM, writing down when each table was committed."""
    parts: list[Any] = []
    for group in config["groups"]:
        source = PlannedGroup(config["bootstrap"], group, [config["topic"]])
        store = RedisLeaseStore(config["store"], "main", GroupId(group))
        mover = Mover(store, source, KafkaFounder(source), config["name"], leader_ttl=timedelta(seconds=2))
        gates = LaneGates(
            group,
            [config["topic"]],
            store,
            RedisRouteStore(config["store"], "main"),
            KafkaTableLog(config["bootstrap"]),
            mover.wake,
        )
        mover.withheld, mover.close_gates = gates, gates.tick
        gates.listen()
        mover.start()
        parts.append((mover, Duties(source, store), store, gates))
    world = RoutedTopic(config["bootstrap"], config["topic"])
    limits = SplitLimits(max_partitions=config["max_partitions"], hold=timedelta(seconds=config.get("hold_s", 2.0)))
    leader = TopicLeader(
        world,
        KafkaTableLog(config["bootstrap"]),
        RedisRouteStore(config["store"], "main"),
        config["groups"],
        config.get("hash", "murmur2"),
        limits,
        config["name"],
    )
    steps = Path(config["steps"])

    def note(before: Any, after: Any) -> None:
        row = [time.time(), after.epoch, [[t.number, t.kind, t.phase, t.source, t.target] for t in after.transitions]]
        with steps.open("a") as file:
            file.write(json.dumps(row) + "\n")

    leader.on_step = note
    leader.start()
    while not stop.wait(0.5):
        for mover, duties, store, _ in parts:
            with contextlib.suppress(Exception):
                if mover.token is not None:
                    duties.tick(mover.token, store.view())
    leader.stop()
    for mover, _, _, gates in parts:
        gates.stop()
        mover.stop()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s", stream=sys.stderr)
    config = json.loads(sys.argv[2])
    if sys.argv[1] == "work":
        return work(config)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    {"produce": produce, "plan": plan}[sys.argv[1]](config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
