"""A running ``headway serve`` splits what gets hot on real Kafka, and merges it; in ``recommend`` it says how to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import urllib.request
from typing import Any

import pytest

from balancer.routing.hashing import murmur2
from tests.chaos.bed import ROOT, until
from tests.peers.kafka import Kafka, free_ports
from tests.splitting.bed import Bed

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

APP = """
import time
from tests.splitting.rows import IN, OUT

def handle(record):
    producer, key, seq, sent = IN.unpack(record.value[: IN.size])
    if producer == 1:  # its records are few, and dear
        end = time.thread_time() + 0.012
        while time.thread_time() < end:
            pass
    return b"%d" % key, OUT.pack(producer, key, seq, sent, record.partition, record.offset, time.time())
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
horizon = "10m"
[topics.{topic}]
groups = ["{group}"]
max_partitions = 6
split_lead = "10s"
split_dwell = "3s"
merge_ahead = "20s"
[groups.{group}]
topics = ["{topic}"]
mode = "{mode}"
assignment = "planned"
step = "5s"
capacity_per_member = 100.0
cpu_limit = 0.35
start_time = "4s"
slo = "10s"
min_replicas = 4
max_replicas = 4
moves_per_hour = 1000
[groups.{group}.actuator]
kind = "process"
command = ["{python}", "-m", "headway", "worker", "--group", "{group}", "--topics", "{topic}",
           "--handler", "app:handle", "--output-topic", "{out}", "--config", "{folder}/headway.toml"]
"""

PEAK = {0: 160.0, 1: 45.0}
"""Records/s of each producer; producer n writes to partition n alone. One member handles 100/s."""


class Live:
    """A bed whose planner is ``headway serve``."""

    def __init__(self, bed: Bed) -> None:
        self.bed, (self.group,) = bed, bed.groups
        (self.port,) = free_ports(1)
        self.config = bed.folder / "headway.toml"
        (bed.folder / "app.py").write_text(textwrap.dedent(APP))

    def serve(self, mode: str) -> None:
        bed = self.bed
        self.config.write_text(
            SETTINGS.format(
                folder=bed.folder, store=bed.server.url, kafka=bed.kafka.bootstrap, port=self.port, group=self.group,
                topic=bed.topic, out=bed.output(self.group), python=sys.executable, mode=mode,
            )
        )  # fmt: skip
        with (self.bed.folder / "serve.log").open("ab") as log:
            self.bed.processes["serve"] = subprocess.Popen(
                [sys.executable, "-m", "headway", "serve", "--config", str(self.config)],
                cwd=self.bed.folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def proposals(self) -> list[dict[str, Any]]:
        try:
            url = f"http://127.0.0.1:{self.port}/v1/groups/{self.group}/plan"
            with urllib.request.urlopen(url, timeout=10) as answer:
                return list(json.load(answer).get("proposals") or ())
        except OSError:
            return []

    def lanes(self, partition: int) -> tuple[int, ...]:
        table = self.bed.table()
        return () if table is None else table.lanes_of(partition)

    def logs(self) -> str:
        workers = sorted((self.bed.folder / "state" / "workers").glob("*.log"))
        asked = [f"{r.kind} {r.partition} {r.state} {r.detail}" for r in self.bed.store.requests(self.bed.topic)]
        said = [p["text"] for p in self.proposals()]
        return "\n".join(
            [*asked, *said, self.bed.logs(), self.bed.log("serve")[-6000:], *(p.read_text()[-800:] for p in workers)]
        )


def test_serve_splits_by_forecast_and_by_cpu_and_merges_after_the_peak(kafka: Kafka) -> None:
    with Bed(kafka, "live", partitions=2) as bed:
        live = Live(bed)
        live.serve("recommend")
        until(lambda: bed.table() is not None, 60, live.logs)  # adopted
        calm = time.time() + 100
        for number, rate in PEAK.items():
            keys = [k for k in (f"key-{i}" for i in range(1000)) if murmur2(k.encode()) % 2 == number][:24]
            bed.producer(number, rate=rate, keys=len(keys), names=keys, profile=[[calm, 4.0]])

        # recommend: the plan says so, with the command, and nothing is done
        def proposed() -> list[str]:
            return [p["text"] for p in live.proposals() if p["kind"] == "split" and "to accept:" in p["text"]]

        until(lambda: bool(proposed()), 90, live.logs)
        command = f"headway split --topic {bed.topic} --partition 0 --lanes "
        assert any(command in text for text in proposed()), live.logs()
        assert live.lanes(0) == () and bed.store.requests(bed.topic) == ()

        # act: partition 0 by what arrives, partition 1 by what its owner's CPU says
        bed.end("serve")
        live.serve("act")
        until(lambda: live.lanes(0) != (), 90, live.logs)
        until(lambda: live.lanes(1) != (), 90, live.logs)
        reasons = bed.log("serve")
        assert "of a core (limit 35%)" in reasons, live.logs()

        # after the peak everything goes back to where it was
        until(lambda: live.lanes(0) == live.lanes(1) == () and time.time() > calm, 150, live.logs)
        verdict, _ = bed.finish()
        assert verdict.is_clean and verdict.made > 3000, (verdict, live.logs())
