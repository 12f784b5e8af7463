"""A user's first day on real peers: doctor names what is wrong, serve starts without it and recovers by itself."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Wire
from confluent_kafka.admin import AdminClient, NewTopic

from forecaster.stores.embedded_process import find_binary
from headway.cli import main
from tests.chaos.bed import until
from tests.peers import redis as peers
from tests.peers.kafka import PASSWORD, USER, Kafka
from tests.peers.service import Service, serving

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


def test_serve_starts_without_store_and_brokers_says_what_is_wrong_and_recovers_by_itself(
    valkey: peers.Server, tmp_path: Path
) -> None:
    kafka = Kafka(tmp_path / "kafka")  # its port is chosen, nobody listens yet
    file = write_config(
        tmp_path,
        f'bootstrap_servers = "{kafka.bootstrap}"',
        '[groups.billing]\ntopics = ["orders"]\nstep = "5s"\n',
        f'[jobs]\nact_every = "1s"\n[store]\nurl = "{valkey.url}"',
    )
    assert file.exists()
    with serving(tmp_path) as service:
        service.wait_for(lambda: service.ask("/healthz")[0] == 200)
        assert service.ask("/readyz")[0] == 503
        assert str(valkey.port) in _problem(service, "store")
        valkey.start()
        try:
            with valkey.client() as client:
                service.wait_for(lambda: "noeviction" in _problem(service, "store"))
                client.replicaof("127.0.0.1", 1)
                client.config_set("maxmemory-policy", "noeviction")
                service.wait_for(lambda: "replica" in _problem(service, "store"))
                client.replicaof("NO", "ONE")
            service.wait_for(lambda: not _problem(service, "store"))
            service.wait_for(lambda: "does not answer" in _problem(service, "arrivals"))
            with kafka.start():
                service.wait_for(lambda: "does not exist" in _problem(service, "arrivals"))
                admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
                admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
                producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

                def recorded() -> bool:
                    producer.produce("orders", b"x", partition=0)
                    producer.flush(5)
                    path = "/v1/groups/billing/series?name=arrivals&by=topic"
                    status, series = service.ask(path)
                    return status == 200 and any(value for value in _values(series))

                service.wait_for(lambda: not _problem(service, "arrivals"))
                service.wait_for(recorded)
                service.ready()
                code, _ = service.stop()
                assert code == 0, service.said()
                assert "Traceback" not in service.said()
        finally:
            valkey.stop()


def test_job_run_record_looks_at_a_live_broker_and_two_looks_make_a_step(
    kafka: Kafka, make_topic: MakeTopic, send: Send, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(2)
    group = f"g-{topic}"
    valkey = peers.Server(find_binary(), tmp_path / "valkey").start()
    file = write_config(
        tmp_path,
        f'bootstrap_servers = "{kafka.bootstrap}"',
        f'[groups.{group}]\ntopics = ["{topic}"]\nstep = "5s"\n',
        f'[store]\nurl = "{valkey.url}"',
    )
    try:
        said: list[dict[str, Any]] = []
        end = time.monotonic() + 180
        rows: list[list[str]] = []
        out = tmp_path / "orders.csv"
        while not any(row[1] == "arrivals" and int(row[5]) > 0 for row in rows):
            assert time.monotonic() < end, said
            send(topic, 1, 2)
            assert main(["job", "run", "record", "--config", str(file), "--json"]) == 0
            said.append(json.loads(capsys.readouterr().out))
            if main(["export", "--topic", topic, "--file", str(out), "--config", str(file), "--json"]) == 1:
                assert "nothing is recorded" in capsys.readouterr().err  # the first look makes no step
                continue
            assert json.loads(capsys.readouterr().out)["rows"] > 0
            rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
        assert {"job", "ok", "seconds"} <= said[-1].keys()
        assert sum(int(row[5]) for row in rows if row[1] == "arrivals") <= 2 * len(said)
        with suppress(redis.RedisError), valkey.client() as client:
            client.flushall()
        assert main(["import", "--topic", topic, "--file", str(out), "--config", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == len(rows)
    finally:
        valkey.stop()


def _problem(service: Service, kind: str) -> str:
    status, group = service.ask("/v1/groups/billing")
    return str(group["problems"].get(kind, "")) if status == 200 else ""


def _values(document: dict[str, Any]) -> list[Any]:
    return [value for key in ("values", "total") for value in (document.get(key) or [])]


def _committed(consumer: Consumer, offsets: list[Wire]) -> None:
    def accepted() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:  # K49: the first commit on a new coordinator
            return False
        return True

    until(accepted, 90)
    consumer.close()
