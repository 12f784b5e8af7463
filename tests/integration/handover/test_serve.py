"""The whole way as a user runs it: ``headway serve`` plans, starts workers, moves partitions, fences, makes up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.bed import ROOT, Bed, serve_from, until
from tests.peers.kafka import Kafka, free_ports

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves a bootstrap socket to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

APP = """
import os, pathlib, time
from tests.chaos.rows import IN, OUT

LIFE = os.getpid() % 30000
SLOW = pathlib.Path(__file__).with_name(f"slow-{LIFE}")

def handle(record):
    seq, written = IN.unpack(record.value[: IN.size])
    if SLOW.exists():
        time.sleep(0.05)
    row = OUT.pack(record.partition, record.offset, seq, written, time.monotonic(), LIFE, record.lease_epoch)
    return b"%d" % record.partition, row
"""

SETTINGS = """
state = "{folder}/state"
[store]
url = "{store}"
[kafka]
bootstrap_servers = "{kafka}"
[api]
port = {port}
[jobs]
act_every = "2s"
[groups.{group}]
topics = ["{topic}"]
mode = "act"
assignment = "planned"
step = "2s"
capacity_per_member = 60.0
start_time = "4s"
slo = "10s"
min_replicas = 3
max_replicas = 3
moves_per_hour = 1000
lease_ttl = "4s"
[groups.{group}.actuator]
kind = "process"
command = ["{python}", "-m", "headway", "worker", "--group", "{group}", "--topics", "{topic}",
           "--handler", "app:handle", "--output-topic", "{out}", "--config", "{folder}/headway.toml"]
"""


class Served:
    """A bed whose planner is ``headway serve``, and whose workers are its."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        (self.port,) = free_ports(1)
        text = SETTINGS.format(
            folder=bed.folder, store=bed.server.url, kafka=bed.kafka.bootstrap, port=self.port, group=bed.group,
            topic=bed.input, out=bed.output, python=sys.executable,
        )  # fmt: skip
        self.config = bed.folder / "headway.toml"
        self.config.write_text(text)
        (bed.folder / "app.py").write_text(textwrap.dedent(APP))

    def serve(self) -> None:
        self.bed.processes["serve"] = serve_from(self.config)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/groups/{self.bed.group}/{path}", timeout=10) as r:
            return json.load(r)

    def live(self) -> Any:
        """Return who holds and who gets what, as ``headway plan --live`` says."""
        command = [sys.executable, "-m", "headway", "plan", "--live", "--group", self.bed.group, "--json"]
        done = subprocess.run(
            [*command, "--config", self.config], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
        )
        return json.loads(done.stdout)["handover"]

    def moves(self) -> list[dict[str, Any]]:
        return list(self.get("moves")["moves"])

    def shares(self) -> dict[int, int]:
        """Return how many partitions each live instance holds."""
        view = self.bed.view()
        return {} if view is None else {i: len(view.owned(i)) for i, w in view.workers.items() if w.live}

    def logs(self) -> str:
        workers = sorted((self.bed.folder / "state" / "workers").glob("*.log"))
        return "\n".join([str(self.bed.view()), self.bed.logs(4000), *(p.read_text()[-1500:] for p in workers)])


@pytest.fixture
def served(kafka: Kafka) -> Iterator[Served]:
    with Bed("serve", kafka=kafka, partitions=6, rate=90, durable=True) as bed:
        yield Served(bed)


def test_serve_plans_starts_workers_moves_and_makes_up_for_the_dead_and_the_slow(served: Served) -> None:
    bed = served.bed
    bed.start_flow()
    served.serve()
    until(lambda: sorted(served.shares().values()) == [2, 2, 2], 240, served.logs)

    # a worker dies: fenced, its partitions go on elsewhere, its successor gets its share again by the plan
    view = bed.view()
    assert view is not None
    victim = int(_pids(served)[0])
    os.kill(victim, signal.SIGKILL)
    until(lambda: sorted(served.shares().values()) == [2, 2, 2] and str(victim) not in _pids(served), 240, served.logs)
    moved = served.moves()
    done = [m for m in moved if m["state"] == "done"]
    assert done, moved
    assert all(m["seconds"] >= 0 and m["epoch"] >= 1 and m["at"].endswith("Z") for m in done)
    assert all(m["partition"].startswith(bed.input) and m["to"] in (1, 2, 3) for m in done)

    # a worker is slow: it gives everything to its idle peers
    life = int(_pids(served)[0])
    (bed.folder / f"slow-{life % 30000}").touch()
    until(lambda: sorted(served.shares().values()) == [0, 3, 3], 240, served.logs)

    assert {m["state"] for m in served.live()["moves"]} >= {"done"}
    until(lambda: all(p["owner"] == p["planned"] for p in served.live()["partitions"]), 240, served.logs)

    # serve itself ends and comes back: nothing stops that is under way, and the workers it starts go on
    assert bed.end("serve") == 0
    served.serve()
    until(lambda: sum(served.shares().values()) == 6, 240, served.logs)
    _, verdict = bed.finish()
    assert verdict.is_clean, f"{verdict}\n{served.logs()}"
    assert verdict.produced > bed.rate  # a second's worth, of a minute


def _pids(served: Served) -> list[str]:
    """Return the workers' process ids, of those that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"worker" in command and served.bed.group.encode() in command:
                found.append(entry.name)
    return sorted(found)
