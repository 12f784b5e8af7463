"""The bed of the splitting tests: a routed topic, producers, workers and a planner, a process each."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from balancer.routing.base import SplitRequest
from balancer.routing.errors import RouteStoreUnavailable
from balancer.routing.redis import RedisRouteStore
from balancer.routing.table import SlotTable, decode
from tests.chaos.bed import ROOT, _warm, until
from tests.peers.kafka import Kafka
from tests.peers.redis import Server, lease_server
from tests.splitting.flow import Tail, inputs_of
from tests.splitting.rows import OUT, Row, Verdict, judge


class Patience:
    """Tells late from lost: what still comes through is late, however long that takes on a busy machine.

    Over when nothing has changed for ``quiet_s`` seconds; ``longest_s`` bounds what never comes to rest.
    """

    def __init__(self, quiet_s: float = 90.0, longest_s: float = 600.0, clock: Callable[[], float] = time.monotonic):
        self._quiet_s, self._clock = quiet_s, clock
        self._since = clock()
        self._end = self._since + longest_s
        self._seen: object = None

    def is_over(self, progress: object) -> bool:
        """Whether to wait no longer; ``progress`` is any value that changes while something comes through."""
        now = self._clock()
        if progress != self._seen:
            self._seen, self._since = progress, now
        return now - self._since > self._quiet_s or now > self._end


class Bed:
    """Routed topic → groups of workers → an output topic a group."""

    def __init__(
        self,
        kafka: Kafka,
        name: str = "s",
        *,
        partitions: int = 2,
        groups: int = 1,
        max_partitions: int = 8,
        hash_name: str = "murmur2",
        server: Server | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"headway-split-{name}-"))
        self.kafka, self.partitions, self.max_partitions, self.hash = kafka, partitions, max_partitions, hash_name
        self.topic = f"{name}-{token_hex(3)}"
        self.groups = [f"{self.topic}-g{i}" for i in range(groups)]
        self._own_server = server is None
        self.server = server or lease_server(self.folder / "store")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.configs: dict[str, tuple[str, dict[str, Any]]] = {}
        self._tails: dict[str, Tail] = {}

    def __enter__(self) -> Bed:
        try:
            if self._own_server:
                self.server.start()
            self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
            copies = min(3, self.kafka.brokers)
            names = [NewTopic(self.topic, self.partitions, copies)]
            names += [NewTopic(self.output(g), 4, copies) for g in self.groups]
            for future in self.admin.create_topics(names).values():
                future.result(30)
            known = lambda: self.admin.list_topics(timeout=5).topics  # noqa: E731
            until(lambda: all(n.topic in known() for n in names), 60)
            _warm(self.kafka.bootstrap, self.topic)
            self.store = RedisRouteStore(self.server.url, "main")
        except BaseException:
            self.__exit__()
            raise
        return self

    def output(self, group: str) -> str:
        return f"{group}-out"

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for tail in self._tails.values():
            tail.close()
        if hasattr(self, "store"):
            self.store.close()
        if self._own_server:
            self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- processes ----------------------------------------------------------------------------------------------
    def spawn(self, name: str, part: str, config: dict[str, Any]) -> None:
        self.configs[name] = (part, config)
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.splitting.flow", part, json.dumps(config)]
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def again(self, name: str) -> None:
        """Start a process that has ended, as a supervisor does."""
        self.spawn(name, *self.configs[name])

    def common(self) -> dict[str, Any]:
        return {"bootstrap": self.kafka.bootstrap, "store": self.server.url, "topic": self.topic}

    def planner(self, name: str = "planner", **more: Any) -> None:
        self.spawn(
            name,
            "plan",
            {
                **self.common(),
                "name": name,
                "groups": self.groups,
                "max_partitions": self.max_partitions,
                "hash": self.hash,
                "steps": str(self.folder / f"{name}.steps"),
                **more,
            },
        )
        until(lambda: self.table() is not None, 120, self.logs)

    def worker(self, group: int, instance: int, **more: Any) -> None:
        name = self.groups[group]
        config = {**self.common(), "group": name, "output": self.output(name), "instance": instance, **more}
        self.spawn(f"w{group}{instance}", "work", config)

    def producer(
        self, number: int, *, transactional: bool = True, rate: float = 150, keys: int = 12, **more: Any
    ) -> None:
        file = self.folder / f"p{number}.json"
        config = {**self.common(), "number": number, "rate": rate, "keys": keys, "file": str(file), **more}
        self.spawn(f"p{number}", "produce", {**config, "transactional": transactional})

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self, last: int = 2500) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-last:]}" for name in self.configs)

    def end(self, name: str, within_s: float = 120) -> int:
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(within_s)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    # -- the topic ----------------------------------------------------------------------------------------------
    def table(self) -> SlotTable | None:
        try:
            data = self.store.table(self.topic)
        except RouteStoreUnavailable:
            return None
        return None if data is None else decode(data)

    def request(self, kind: str, partition: int, lanes: int = 2, placement: tuple[tuple[int, ...], ...] = ()) -> str:
        asked = SplitRequest(token_hex(4), self.topic, partition, kind, lanes, placement)
        self.store.request(asked)
        return asked.id

    def ask(
        self, kind: str, partition: int, placement: tuple[tuple[int, ...], ...] = (), *, lanes: int = 2
    ) -> SplitRequest:
        """Ask again until it is done or refused: what a busy machine does not do within the hold limit is given up."""
        end = time.monotonic() + 180
        while True:
            ended = self.wait(self.request(kind, partition, 1 + len(placement) if placement else lanes, placement))
            if ended.state != "aborted" or time.monotonic() > end:
                return ended

    def state(self, id: str) -> SplitRequest | None:
        return next((r for r in self.store.requests(self.topic) if r.id == id), None)

    def wait(self, id: str, within_s: float = 120) -> SplitRequest:
        until(lambda: (r := self.state(id)) is not None and r.is_over, within_s, self.logs)
        found = self.state(id)
        assert found is not None
        return found

    def flowing(self, at_least: int = 20, within_s: float = 120) -> None:
        """Wait until every group has handled something."""

        def is_so() -> bool:
            for group in self.groups:
                output = self.output(group)
                count = sum(
                    self._end_of(output, p) for p in self.admin.list_topics(output, timeout=5).topics[output].partitions
                )
                if count < at_least:
                    return False
            return True

        until(is_so, within_s, self.logs)

    def _end_of(self, topic: str, partition: int) -> int:
        import confluent_kafka as ck
        from confluent_kafka.admin import OffsetSpec

        tp = ck.TopicPartition(topic, partition)
        return int(self.admin.list_offsets({tp: OffsetSpec.latest()}, request_timeout=10)[tp].result().offset)

    def finish(self, tend: Callable[[], None] = lambda: None) -> tuple[Verdict, dict[str, list[Row]]]:
        """End the producers, wait until all of it has come through (or nothing more comes), and judge."""
        for name in [n for n in self.processes if n.startswith("p") and n != "planner"]:
            self.end(name)
        made = self.made()
        patience = Patience()
        while True:
            tend()
            outputs = {g: self.rows(g) for g in self.groups}
            if all(len(rows) >= len(set(made)) for rows in outputs.values()):
                break
            if patience.is_over(sum(map(len, outputs.values()))):
                break
            time.sleep(0.3)
        time.sleep(0.3)  # a repetition would come late
        outputs = {g: self.rows(g) for g in self.groups}
        return judge(made, outputs), outputs

    def made(self) -> list[tuple[int, int, int]]:
        """Return (producer, key, sequence number) of everything committed to the routed topic until now."""
        return inputs_of(self._tail(self.topic).more())

    def rows(self, group: str) -> list[Row]:
        """Return everything that a group has made of it until now."""
        return [Row(*OUT.unpack(m.value())) for m in self._tail(self.output(group)).more()]

    def _tail(self, topic: str) -> Tail:
        if topic not in self._tails:
            self._tails[topic] = Tail(self.kafka.bootstrap, topic)
        return self._tails[topic]
