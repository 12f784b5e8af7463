"""The bed: brokers, lease store, producer, reader, workers and planner, a process each; all clocks are monotonic."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import confluent_kafka as ck
import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from balancer.leases.base import GroupView, LeaseState, LeaseStoreError, MoveRequest
from balancer.leases.redis import RedisLeaseStore
from forecaster.topics import GroupId, TopicPartition
from tests.chaos import planner
from tests.chaos.effects import EffectRows, SinkRows
from tests.chaos.rows import Row, Verdict, judge
from tests.peers.kafka import Kafka
from tests.peers.redis import lease_server

ROOT = Path(__file__).resolve().parents[2]


class Bed:
    """One pipe ``in`` → workers → ``out`` under load.

    ``kafka`` may be shared by several beds in turn: topics and group carry the bed's name.
    """

    def __init__(
        self,
        name: str = "t",
        *,
        kafka: Kafka | None = None,
        brokers: int = 1,
        partitions: int = 12,
        rate: float = 600,
        durable: bool = False,
        overrides: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"headway-bed-{name}-"))
        name = f"{name}-{token_hex(3)}"
        self.name, self.partitions, self.rate = name, partitions, rate
        self.input, self.output, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        self._own_kafka = kafka is None
        self.kafka = kafka or Kafka(self.folder / "kafka", brokers=brokers, overrides=overrides)
        self.server = lease_server(self.folder / "store", durable=durable)
        self.settings = settings
        kinds = {"sink": SinkRows, "at_least_once": EffectRows}
        kind = kinds.get(settings.get("mode", "transactional"))
        self.effects = kind(self.folder) if kind is not None else None
        """Where results go that are not in the output topic."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.planner_bootstrap: str | None = None
        self.store_url: str | None = None
        self.worker_bootstrap: str | None = None

    def __enter__(self) -> Bed:
        try:
            if self._own_kafka:
                self.kafka.start()
            self.server.start()
            self.store_url = self.store_url or self.server.url
            self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
            self.create(self.input, self.partitions)
            self.create(self.output, self.partitions)
            _warm(self.kafka.bootstrap, self.input)
            self.store = RedisLeaseStore(self.server.url, "main", GroupId(self.group))
        except BaseException:
            self.__exit__()
            raise
        return self

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, and wait for it."""
        copies = min(3, self.kafka.brokers)
        self.admin.create_topics([NewTopic(topic, partitions, copies)])[topic].result(30)
        until(lambda: self._width(topic) == partitions, 60, lambda: f"{topic} has not come up")

    def _width(self, topic: str) -> int | None:
        """Return a topic's partitions, None while brokers do not answer."""
        try:
            return len(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        except ck.KafkaException:
            return None

    def configure_group(self, name: str, value: object) -> None:
        """Set a broker's setting for the bed's group alone."""
        group = ConfigResource(ConfigResource.Type.GROUP, self.group)
        group.add_incremental_config(ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET))
        self.admin.incremental_alter_configs([group])[group].result(30)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        if hasattr(self, "mover"):
            self.mover.stop()
        if hasattr(self, "store"):
            self.store.close()
        if self._own_kafka:
            self.kafka.stop(5)
        self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- processes ----------------------------------------------------------------------------------------------
    def spawn(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process of the bed; its log is ``<name>.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", module, *arguments]
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return self.processes[name]

    def log(self, name: str) -> str:
        """Return what a process has written."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start_flow(self) -> None:
        """Start producer and reader."""
        common = {"bootstrap": self.kafka.bootstrap, "partitions": self.partitions}
        made = {**common, "topic": self.input, "rate": self.rate, "file": str(self.folder / "made.json")}
        self.spawn("producer", "tests.chaos.flow", "produce", json.dumps(made))
        rows = {**common, "topic": self.output, "file": str(self.folder / "rows.pickle")}
        self.spawn("reader", "tests.chaos.flow", "read", json.dumps(rows))

    def start_planner(self, name: str = "planner", *, inside: bool = True) -> None:
        """Start a planner, in a thread of this process or in one of its own."""
        config = {
            "bootstrap": self.planner_bootstrap or self.kafka.bootstrap,
            "store": self.server.url,
            "group": self.group,
            "topics": [self.input],
            "name": name,
        }
        if inside:
            self.mover, self.duties = planner.make(config)
            self.mover.start()
        else:
            self.spawn(name, "tests.chaos.planner", json.dumps(config))

    def worker(self, name: str, instance: int | None = None, *, slow_s: float = 0, **settings: Any) -> None:
        """Start a worker; ``ready`` waits for it."""
        known = {
            "group": self.group,
            "topics": [self.input],
            "bootstrap_servers": self.worker_bootstrap or self.kafka.bootstrap,
            "store_url": self.store_url,
            "output_topic": self.output,
            "instance": instance,
            "pod": name,
        }
        if self.effects is not None:
            known["output_topic"] = None
        config = {"settings": {**known, **self.settings, **settings}, "slow_s": slow_s}
        config |= {"sink": str(self.folder / "sink.sqlite"), "effects": str(self.folder)}
        self.spawn(name, "tests.chaos.worker", json.dumps(config))

    def start_team(self, *instances: int, inside: bool = True, **settings: Any) -> None:
        """Start planner, flow and workers ``w<instance>``; wait until they share the partitions evenly."""
        self.start_planner(inside=inside)
        self.start_flow()
        for i in instances:
            self.worker(f"w{i}", i, **settings)

        def tend() -> None:
            """Do what an orchestrator does: a machine that stands still for a lease's time costs a worker its life."""
            for i in instances:
                if self.processes[f"w{i}"].poll() is not None:
                    self.worker(f"w{i}", i, **settings)

        self.share_out(*instances, tend=tend)

    def share_out(self, *instances: int, tend: Callable[[], None]) -> None:
        """Wait until instances are ready, and share the partitions evenly."""
        self.ready(*instances, tend=tend)
        self.settled(*instances, tend=tend)
        self.spread(*instances, tend=tend)

    def view(self) -> GroupView | None:
        """Return the books, or None while the store is silent or lost."""
        try:
            return self.store.view()
        except LeaseStoreError:
            return None

    def ready(self, *instances: int, within_s: float = 120, tend: Callable[[], None] = lambda: None) -> None:
        """Wait until instances may receive."""

        def are_ready() -> bool:
            tend()
            view = self.view()
            return view is not None and all(i in view.workers and view.workers[i].may_receive for i in instances)

        until(are_ready, within_s, lambda: f"{instances} not ready: {self.view()} {self.logs()}")

    def turn_clock(self, seconds: float) -> None:
        """Let the store's clock jump: every deadline comes nearer by so much (negative: moves away)."""
        prefix = f"hw:{{main:{self.group}}}:"
        with redis.Redis(port=self.server.port, decode_responses=True, protocol=2, socket_timeout=2) as raw:
            keys = [f"{prefix}worker:{i}" for i in raw.smembers(prefix + "workers")]
            for key in [*keys, prefix + "leader"]:
                if raw.hexists(key, "deadline"):
                    raw.hincrby(key, "deadline", -round(seconds * 1000))

    def logs(self, last: int = 1500) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"--- {name}\n{self.log(name)[-last:]}" for name in self.processes)

    def owners(self) -> dict[int, int]:
        """Return partition of the input → the instance that holds it."""
        view = self.view()
        leases = view.leases.values() if view else ()
        return {
            lease.partition.partition: lease.owner.instance
            for lease in leases
            if lease.owner is not None and lease.state is LeaseState.HELD and lease.partition.topic == self.input
        }

    def owner(self, partition: int) -> int | None:
        """Return the instance that holds a partition of the input."""
        return self.owners().get(partition)

    def settled(self, *instances: int, within_s: float = 120, tend: Callable[[], None] = lambda: None) -> None:
        """Wait until every partition is held by one of the instances."""

        def are_held() -> bool:
            tend()
            view = self.view()
            return (
                view is not None
                and len(view.leases) >= self.partitions
                and all(
                    lease.state is LeaseState.HELD
                    and lease.next is None
                    and lease.owner is not None
                    and (not instances or lease.owner.instance in instances)
                    and lease.owner == view.workers[lease.owner.instance].owner
                    and view.workers[lease.owner.instance].live
                    for lease in view.leases.values()
                )
            )

        until(are_held, within_s, lambda: f"not settled: {self.view()}\n{self.logs()}")

    def spread(self, *instances: int, within_s: float = 120, tend: Callable[[], None] = lambda: None) -> None:
        """Ask whoever plans for an even spread over instances, and wait for it; a move that failed is asked again."""
        wanted = {p: instances[p % len(instances)] for p in range(self.partitions)}
        ask_at = 0.0

        def are_spread() -> bool:
            nonlocal ask_at
            tend()
            owners = self.owners()
            missing = {p: instance for p, instance in wanted.items() if owners.get(p) != instance}
            if missing and time.monotonic() > ask_at:
                ask_at = time.monotonic() + 5
                for p, instance in missing.items():
                    self.store.request(MoveRequest(token_hex(4), TopicPartition(self.input, p), instance))
            return not missing

        until(are_spread, within_s, self.logs)

    def lives(self, instance: int, number: int, within_s: float = 120) -> None:
        """Wait until a later life of an instance is ready."""

        def is_ready() -> bool:
            view = self.view()
            worker = view.workers.get(instance) if view else None
            return worker is not None and worker.owner.number >= number and worker.may_receive

        until(is_ready, within_s, self.logs)

    def kill(self, name: str) -> None:
        """End a process with kill -9."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str, within_s: float = 120) -> int:
        """Ask a process to end; return its exit code."""
        process = self.processes[name]
        process.terminate()
        code = process.wait(within_s)
        del self.processes[name]
        return code

    def produced(self) -> dict[int, int]:
        """End the producer; return the end of each partition of the input, which begins at 0."""
        assert self.end("producer", 150) == 0, self.log("producer")
        made = json.loads((self.folder / "made.json").read_text())
        assert made["left"] == 0, made
        client = ck.Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            where = [ck.TopicPartition(self.input, p) for p in range(self.partitions)]
            ends = {tp.partition: client.get_watermark_offsets(tp, timeout=30)[1] for tp in where}
        finally:
            client.close()
        assert all(ends[p] >= count for p, count in enumerate(made["counts"])), (ends, made)
        return ends

    def passes(self, *partitions: int, within_s: float = 120) -> None:
        """Wait until what has been written of partitions by now has come out; whoever holds them works, then."""
        client = ck.Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            where = [ck.TopicPartition(self.input, p) for p in partitions or range(self.partitions)]
            ends = {tp.partition: client.get_watermark_offsets(tp, timeout=30)[1] for tp in where}
        finally:
            client.close()
        until(lambda: all(self._seen().get(p, 0) > end for p, end in ends.items()), within_s, self.logs)

    def _seen(self) -> dict[int, int]:
        """Return partition → the input offset after the highest one that has come out."""
        if self.effects is not None:
            return self.effects.seen()
        progress = self.folder / "rows.seen"
        return {int(p): n for p, n in json.loads(progress.read_text()).items()} if progress.exists() else {}

    def finish(self, within_s: float = 120, tend: Callable[[], None] = lambda: None) -> tuple[list[Row], Verdict]:
        """End the producer, wait until all has come through, or nothing more for so long; count what went wrong."""
        made = self.produced()
        seen, moved_at = self._seen(), time.monotonic()
        while any(seen.get(p, 0) < n for p, n in made.items()) and time.monotonic() < moved_at + within_s:
            time.sleep(0.05)
            tend()
            before, seen = seen, self._seen()
            if seen != before:
                moved_at = time.monotonic()
        time.sleep(0.5)  # a repetition would come late
        self.end("reader")
        if self.effects is not None:
            return self.effects.rows(), self.effects.judge(made)
        rows = [Row(*row) for row in pickle.loads((self.folder / "rows.pickle").read_bytes())]
        return rows, judge(rows, made)


def _warm(bootstrap: str, topic: str) -> None:
    """Load the coordinators of a new cluster, which takes a second and confuses the first caller (K49)."""
    client = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": "warm", "log_level": 0})
    client.init_transactions(60)
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "warm", "log_level": 0})

    def answers() -> bool:
        try:
            consumer.committed([ck.TopicPartition(topic, 0)], timeout=10)
        except ck.KafkaException:
            return False
        return True

    until(answers, 60)
    consumer.close()


def serve_from(config: Path) -> subprocess.Popen[bytes]:
    """Start ``headway serve`` beside its settings, where its workers' handlers lie too; its log is ``serve.log``."""
    with (config.parent / "serve.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headway", "serve", "--config", str(config)],
            cwd=config.parent,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )


def until(is_so: Callable[[], bool], within_s: float, else_say: Callable[[], str] = lambda: "") -> float:
    """Wait until something is so; return the seconds it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"not so within {within_s} s {else_say()}")
        time.sleep(0.01)
    return time.monotonic() - began
