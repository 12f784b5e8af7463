"""headway init on a real broker, asked and answered on a real terminal; the file it writes passes doctor."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway import cli
from headway.configuration.settings import Mode, load
from tests.integration.kafka.test_kafka_source import MakeTopic, Send, commit
from tests.peers.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_asked_and_answered_on_a_terminal(kafka: Kafka, make_topic: MakeTopic, send: Send, tmp_path: Path) -> None:
    topic, other = make_topic(partitions=2), make_topic()
    send(topic, 0, 30)
    send(other, 0, 5)
    group, idle = f"g-{topic}", f"g-{other}"
    commit(kafka, group, topic, 0, 10)
    commit(kafka, group, topic, 1, 0)
    commit(kafka, idle, other, 0, 5)
    ours, theirs = pty.openpty()
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "TERM": "dumb",
        "COLUMNS": "160",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = [sys.executable, "-m", "headway", "init", "--seconds", "1"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path)
    os.close(theirs)
    seen = ""

    def answer(question: str, text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 180
        while not re.search(question, seen):
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 0.5)[0]:
                try:
                    seen += os.read(ours, 65536).decode()
                except OSError:  # the terminal is gone: it ended before it asked
                    raise AssertionError(f"ended with {process.wait(10)} before {question!r}:\n{seen}") from None
        os.write(ours, f"{text}\n".encode())

    try:
        answer("Kafka brokers", kafka.bootstrap)
        answer("Store", "")
        answer("Watch which", "no-such-group")
        answer("neither a group nor a number(.|\n)*Watch which", group)
        answer("Prometheus", "")
        assert process.wait(120) == 0, seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert re.search(rf"{group}\s+(?i:classic)\s+{topic}\s+2\s+20\s", seen), seen
    settings = load(tmp_path / "headway.toml", {})
    assert settings.named_groups == (group,) and settings.mode(group) is Mode.RECOMMEND
    assert settings.group(group).topics == (topic,) and settings.policy(group).max_replicas == 2


def test_without_questions_and_with_a_group_that_is_not_there(
    kafka: Kafka, make_topic: MakeTopic, send: Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic()
    send(topic, 0, 3)
    group = f"g-{topic}"
    commit(kafka, group, topic, 0, 1)
    file = tmp_path / "headway.toml"
    options = ["init", "--brokers", kafka.bootstrap, "--out", str(file), "--seconds", "1", "--json"]
    assert cli.main([*options, "--group", f"{group}x"]) == 1
    assert f"did you mean {group}?" in capsys.readouterr().err and not file.exists()
    assert cli.main([*options, "--group", group]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [(g["name"], g["topics"], g["lag"]) for g in written["groups"]] == [(group, [topic], 2)]
    file.write_text(f'state = "{tmp_path}/state"\n' + file.read_text())
    cli.main(["doctor", "--config", str(file), "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    wrong = [
        c for c in checks if not c["ok"] and c["name"] in ("settings", "store", "clock", "brokers", "source", "api")
    ]
    assert wrong == [] and {"settings", "store", "brokers"} <= {c["name"] for c in checks}
