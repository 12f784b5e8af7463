"""worker, move, adopt and release as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from forecaster.topics import TopicPartition
from tests.chaos.bed import ROOT, Bed, until
from tests.peers.kafka import Kafka

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves a bootstrap socket to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def bed(kafka: Kafka) -> Iterator[Bed]:
    with Bed("cli", kafka=kafka, partitions=2) as made:
        (made.folder / "app.py").write_text(
            textwrap.dedent(
                """
                def handle(record):
                    return record.key, record.value.upper()
                """
            )
        )
        (made.folder / "headway.toml").write_text(
            textwrap.dedent(
                f"""
                [store]
                url = "{made.server.url}"
                [kafka]
                bootstrap_servers = "{kafka.bootstrap}"
                [groups.{made.group}]
                topics = ["{made.input}"]
                assignment = "planned"
                lease_ttl = "20s"
                """
            )
        )
        yield made


def headway(bed: Bed, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "headway", *arguments, "--group", bed.group, "--config", str(bed.config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def test_a_group_is_adopted_worked_moved_and_released_from_the_terminal(bed: Bed) -> None:
    bed.config = Path(bed.folder) / "headway.toml"  # type: ignore[attr-defined]
    rehearsal = json.loads(headway(bed, "adopt", "--dry-run", "--json"))
    assert (rehearsal["state"], [s["step"] for s in rehearsal["steps"]][:2]) == (
        "dry_run",
        ["offsets", "stop consumers"],
    )
    assert json.loads(headway(bed, "adopt", "--json"))["state"] == "adopted"
    for i in (1, 2):
        arguments = ["--topics", bed.input, "--handler", "app:handle", "--output-topic", bed.output]
        command = [sys.executable, "-m", "headway", "worker", "--group", bed.group, *arguments]
        with (bed.folder / f"w{i}.log").open("ab") as log:
            bed.processes[f"w{i}"] = subprocess.Popen(
                [*command, "--instance", str(i), "--config", str(bed.config)],  # type: ignore[attr-defined]
                cwd=bed.folder,
                env={"PYTHONPATH": str(ROOT), "PATH": ""},
                stdout=log,
                stderr=log,
            )
    bed.ready(1, 2)
    for p in (0, 1):
        ended = json.loads(headway(bed, "move", "--partition", f"{bed.input}:{p}", "--to", str(p + 1), "--json"))
        assert ended["state"] == "done"
        assert ended["epoch"] >= 1
    live = json.loads(headway(bed, "plan", "--live", "--json"))["handover"]
    assert [(row["partition"], row["state"], row["owner"]) for row in live["partitions"]] == [
        (f"{bed.input}:0", "HELD", 1),
        (f"{bed.input}:1", "HELD", 2),
    ]
    assert [(w["instance"], w["state"], w["partitions"]) for w in live["workers"]] == [(1, "ready", 1), (2, "ready", 1)]
    said = headway(bed, "move", "--partition", f"{bed.input}:99", "--to", "1", code=1)
    assert "not a partition of this group" in said
    producer = ck.Producer({"bootstrap.servers": bed.kafka.bootstrap, "log_level": 0})
    for p in (0, 1):
        producer.produce(bed.input, b"hello", b"key", partition=p)
    assert producer.flush(60) == 0
    until(lambda: _committed(bed) == 2, 120, bed.logs)
    assert json.loads(headway(bed, "release", "--json"))["state"] == "released"
    assert bed.end("w1") == 0
    assert bed.end("w2") == 0
    view = bed.view()
    assert view is not None
    assert view.released


def _committed(bed: Bed) -> int:
    consumer = ck.Consumer({"bootstrap.servers": bed.kafka.bootstrap, "group.id": bed.group, "log_level": 0})
    rows = consumer.committed([ck.TopicPartition(bed.input, p) for p in (0, 1)], timeout=60)
    consumer.close()
    return sum(max(0, row.offset) for row in rows)


def test_a_worker_says_what_is_missing(bed: Bed) -> None:
    bed.config = Path(bed.folder) / "headway.toml"  # type: ignore[attr-defined]
    said = headway(bed, "worker", "--topics", bed.input, "--handler", "nowhere:handle", code=1)
    assert "no module nowhere" in said
    said = headway(bed, "worker", "--topics", bed.input, "--handler", "json", code=1)
    assert "module:function" in said
    (bed.folder / "headway.toml").write_text("[kafka]\nbootstrap_servers = 'x:1'\n")
    said = headway(bed, "worker", "--topics", bed.input, "--handler", "json:loads", code=1)
    assert "HEADWAY_STORE__URL" in said
    assert TopicPartition(bed.input, 0) is not None
