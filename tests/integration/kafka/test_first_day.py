"""A user's first day on real peers: doctor names what is wrong, serve starts without it and recovers by itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Wire

from forecaster.stores.embedded_process import find_binary
from headway.cli import main
from tests.peers import redis as peers
from tests.peers.kafka import PASSWORD, USER, Kafka

pytestmark = pytest.mark.kafka

Send = Callable[[str, int, int], None]
MakeTopic = Callable[..., str]


@pytest.fixture
def valkey(tmp_path: Path) -> peers.Server:
    return peers.Server(find_binary(), tmp_path / "valkey", ("--maxmemory-policy", "allkeys-lru"))


def write_config(folder: Path, kafka: str, groups: str, more: str = "") -> Path:
    file = folder / "headway.toml"
    file.write_text(
        f'state = "{folder}/state"\n[models]\npath = "{folder}/models"\n[api]\nport = 0\n'
        f"[kafka]\n{kafka}\n{more}\n{groups}"
    )
    return file


def doctor(file: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Run ``headway doctor``; return what it found wrong."""
    code = main(["doctor", "--config", str(file), "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    wrong = [check for check in checks if not check["ok"]]
    assert code == (1 if wrong else 0)
    assert all(check["remedy"] for check in wrong), wrong
    return wrong


def test_doctor_names_brokers_that_are_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config(tmp_path, 'bootstrap_servers = "127.0.0.1:1"', '[groups.g]\ntopics = ["t"]\n')
    wrong = doctor(file, capsys)
    assert {check["name"] for check in wrong} == {"brokers", "source"}
    assert all("127.0.0.1:1" in check["detail"] for check in wrong)
    assert any("bootstrap_servers" in check["remedy"] for check in wrong)


def test_doctor_names_wrong_credentials_of_a_sasl_broker_and_not_the_secret(
    kafka: Kafka, make_topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "password"
    login = (
        f'bootstrap_servers = "{kafka.login_bootstrap}"\npassword_file = "{secret}"\n'
        f'properties = {{ "security.protocol" = "SASL_PLAINTEXT", "sasl.mechanism" = "PLAIN", '
        f'"sasl.username" = "{USER}" }}\n'
    )
    file = write_config(tmp_path, login, f'[groups.g]\ntopics = ["{make_topic()}"]\n')
    secret.write_text("let-me-in")
    (refused,) = doctor(file, capsys)
    assert (refused["name"], f"refuses us as {USER}" in refused["detail"]) == ("source", True)
    assert "credentials" in refused["remedy"]
    assert "let-me-in" not in json.dumps(refused)
    secret.write_text(PASSWORD)
    assert [check["name"] for check in doctor(file, capsys)] == ["group g"]  # let in; it has committed nothing


def test_doctor_names_unknown_topics_groups_without_commits_and_what_a_pattern_fits(
    kafka: Kafka, make_topic: MakeTopic, send: Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, token = make_topic(2), uuid.uuid4().hex[:8]
    send(topic, 0, 3)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"{token}-eu", "log_level": 0})
    _committed(consumer, [Wire(topic, 0, 2)])
    groups = (
        f'[groups.gone]\ntopics = ["no-such-topic"]\n[groups.new]\ntopics = ["{topic}"]\n'
        f'[groups."{token}-*"]\ntopics = ["{topic}"]\n[groups."{token}-*-none"]\ntopics = ["{topic}"]\n'
    )
    file = write_config(tmp_path, f'bootstrap_servers = "{kafka.bootstrap}"', groups)
    wrong = {check["name"]: check for check in doctor(file, capsys)}
    assert set(wrong) == {"topic no-such-topic", "group new", f"pattern {token}-*-none"}
    assert "create it" in wrong["topic no-such-topic"]["detail"]
    assert wrong["group new"]["detail"] == f"new has committed nothing on {topic}"
    main(["doctor", "--config", str(file), "--json"])
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found[f"pattern {token}-*"]["detail"] == f"fits {token}-eu"
    assert "on 1 of 2 partitions" in found[f"group {token}-eu"]["detail"]


def test_doctor_names_a_store_that_evicts_and_one_that_is_a_replica(
    valkey: peers.Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(
        f'state = "{tmp_path}/state"\n[models]\npath = "{tmp_path}/models"\n[store]\nurl = "{valkey.url}"\n'
    )
    (away,) = doctor(file, capsys)
    assert (away["name"], str(valkey.port) in away["detail"]) == ("store", True)
    valkey.start()
    try:
        with valkey.client() as client:
            (evicts,) = doctor(file, capsys)
            assert "CONFIG SET maxmemory-policy noeviction" in evicts["detail"]
            client.config_set("maxmemory-policy", "noeviction")
            client.replicaof("127.0.0.1", 1)
            (replica,) = doctor(file, capsys)
            assert "point [store] url at the primary" in replica["detail"]
            client.replicaof("NO", "ONE")
        assert doctor(file, capsys) == []
    finally:
        valkey.stop()


def _committed(consumer: Consumer, offsets: list[Wire]) -> None:
    for attempt in range(100):
        with suppress(Exception):  # K49: the first commit on a new coordinator
            consumer.commit(offsets=offsets, asynchronous=False)
            break
        assert attempt < 99
    consumer.close()
