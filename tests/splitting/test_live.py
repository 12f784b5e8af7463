"""A running ``headway serve`` splits what gets hot on real Kafka, and merges it; in ``recommend`` it says how to."""

from __future__ import annotations

import json
import sys
import textwrap
import urllib.request
from typing import Any

import pytest

from balancer.routing.hashing import murmur2
from tests.chaos.bed import serve_from, until
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
        end = time.thread_time() + 0.03
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
max_partitions = 16
hold_limit = "10s"
stop_limit = "20s"
split_lead = "10s"
split_dwell = "3s"
merge_ahead = "20s"
[groups.{group}]
topics = ["{topic}"]
mode = "{mode}"
assignment = "planned"
step = "5s"
capacity_per_member = {capacity}
cpu_limit = 0.12
lease_ttl = "6s"
commit_interval = "500ms"
start_time = "4s"
slo = "10s"
min_replicas = 3
max_replicas = 3
moves_per_hour = 1000
[groups.{group}.actuator]
kind = "process"
command = ["{python}", "-m", "headway", "worker", "--group", "{group}", "--topics", "{topic}",
           "--handler", "app:handle", "--output-topic", "{out}", "--config", "{folder}/headway.toml"]
"""


class Live:
    """A bed whose planner is ``headway serve``."""

    def __init__(self, bed: Bed) -> None:
        self.bed, (self.group,) = bed, bed.groups
        (self.port,) = free_ports(1)
        self.config = bed.folder / "headway.toml"
        (bed.folder / "app.py").write_text(textwrap.dedent(APP))

    def serve(self, mode: str, capacity: float) -> None:
        bed = self.bed
        self.config.write_text(
            SETTINGS.format(
                folder=bed.folder, store=bed.server.url, kafka=bed.kafka.bootstrap, port=self.port, group=self.group,
                topic=bed.topic, out=bed.output(self.group), python=sys.executable, mode=mode,
                capacity=capacity,
            )
        )  # fmt: skip
        self.bed.processes["serve"] = serve_from(self.config)

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


def test_serve_splits_by_cpu_and_by_what_arrives_and_merges_after_the_peak(kafka: Kafka) -> None:
    with Bed(kafka, "live", partitions=2) as bed:
        live = Live(bed)
        keys = [
            [k for k in (f"key-{i}" for i in range(1000)) if murmur2(k.encode()) % 2 == partition][:24]
            for partition in (0, 1)
        ]
        live.serve("recommend", capacity=10.0)
        until(lambda: bed.table() is not None, 240, live.logs)  # adopted
        bed.producer(0, rate=20, keys=24, names=keys[0])

        # recommend: the plan says so, with the command, and nothing is done
        def proposed(partition: int) -> bool:
            command = f"to accept: headway split --topic {bed.topic} --partition {partition} --lanes "
            return any(p["kind"] == "split" and command in p["text"] for p in live.proposals())

        until(lambda: proposed(0), 240, live.logs)
        assert live.lanes(0) == () and bed.store.requests(bed.topic) == (), live.logs()

        # act: the records of partition 1 are few, and dear
        bed.end("serve")
        live.serve("act", capacity=100.0)
        bed.flowing(1, within_s=240)
        bed.producer(1, rate=10, keys=24, names=keys[1])
        until(lambda: live.lanes(1) != (), 240, live.logs)
        assert "of a core (limit 12%)" in bed.log("serve"), live.logs()
        bed.end("p1")  # what it wrote is work enough: a lane opens when what lies before it is done

        # partition 0 gets more than one member handles, by far: a busy machine writes less than it is asked to
        bed.producer(2, rate=240, keys=24, names=keys[0])
        by_load = ("of a member (limit", "one member's capacity")
        until(lambda: live.lanes(0) != () and any(text in bed.log("serve") for text in by_load), 240, live.logs)

        # after the peak everything goes back to where it was
        for name in ("p0", "p2"):
            bed.end(name)
        until(lambda: live.lanes(0) == live.lanes(1) == (), 480, live.logs)
        verdict, _ = bed.finish()
        assert verdict.is_clean and verdict.made > 200, (verdict, live.logs())
