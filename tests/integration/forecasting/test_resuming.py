"""A training run that is killed in the middle goes on where it was, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forecaster.registry import ModelRegistry
from forecaster.topics import StreamId
from headway.cli import main
from tests.unit.forecaster.test_training import noisy_days

STREAMS = 5


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for k in range(STREAMS):
        frame = noisy_days(6).select([k % 3]).to_frame().iloc[:, 0].rename("value").reset_index()
        frame.insert(1, "series", "a")
        frame["timestamp"] = frame["timestamp"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        frame.to_csv(folder / f"topic{k}.csv", index=False)
    return folder


def test_kill_nine_in_the_middle_and_resume(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = tmp_path / "models"
    options = ["train", "--input", str(traces), "--method", "kernel_ridge", "--test-days", "1", "--out", str(models)]
    command = [sys.executable, "-m", "headway", *options]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + 120
        while len(list(models.glob("*/*/[!.]*/card.json"))) < 2:
            assert process.poll() is None and time.monotonic() < until, "it ended before it could be killed"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    registry = ModelRegistry(models)
    done = kept(registry)
    assert 2 <= len(done) < STREAMS
    for topic, version in done.items():
        registry.load(StreamId("main", topic), version)  # whole, every one
    assert main([*options, "--resume", "--json"]) == 0
    rows = {row["topic"]: row for row in json.loads(capsys.readouterr().out)["streams"]}
    assert len(rows) == STREAMS and all(row["version"] for row in rows.values())
    skipped = {topic: row["version"] for topic, row in rows.items() if row["reason"].startswith("already trained")}
    assert skipped == done
    better = {topic for topic, row in rows.items() if row["card"]["scores"]["promote"]}
    assert {stream.topic for stream in registry.streams()} == better


def kept(registry: ModelRegistry) -> dict[str, str]:
    """Return the newest artefact of each topic that has one."""
    found = {topic: registry.versions(StreamId("main", topic)) for topic in (f"topic{k}" for k in range(STREAMS))}
    return {topic: versions[-1] for topic, versions in found.items() if versions}
