"""headway ingest over the embedded store: idempotent, and a refused file changes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headway.cli import main
from tests.peers.prometheus import Prometheus

ROWS = "timestamp,series,value\n2026-01-05T09:00:00Z,a,5\n2026-01-05T09:01:00Z,a,0\n2026-01-05T09:03:00Z,a,7\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "state"))


def test_a_trace_is_loaded_twice_with_the_same_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.csv").write_text(ROWS)
    for _ in range(2):
        assert main(["ingest", "--input", "orders.csv", "--topic", "orders", "--json"]) == 0
        out = json.loads(capsys.readouterr().out)
        assert out == {"rows": 3, "steps": 4, "partitions": 1, "gaps": 1, "rejected": 0}


def test_what_is_refused_is_one_line_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.csv").write_text(ROWS.replace(",7", ",7.5"))
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders"]) == 1
    err = capsys.readouterr().err
    assert err == "headway ingest: orders.csv:4: 7.5 is not a whole number of records; --round accepts decimals\n"
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders", "--round", "--json"]) == 0
    assert main(["ingest", "--topic", "orders"]) == 2


def test_a_value_that_stands_for_missing_is_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.csv").write_text(ROWS.replace(",0", ",-1"))
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders"]) == 1
    assert "orders.csv:3: -1 is negative" in (err := capsys.readouterr().err) and "--missing=-1" in err
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders", "--missing=-1", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out == {"rows": 2, "steps": 4, "partitions": 1, "gaps": 2, "rejected": 0}


def test_what_a_prometheus_knows_becomes_history(capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    with Prometheus() as prometheus:
        points = [(now - 3600 + 15.0 * i, 10.0 * i) for i in range(240)]
        prometheus.put("kafka_topic_partition_current_offset", {"topic": "orders", "partition": "0"}, *points)
        arguments = ["ingest", "--prometheus", prometheus.url, "--topic", "orders", "--since", "45m", "--json"]
        assert main(arguments) == 0
        out = json.loads(capsys.readouterr().out)
        assert (out["partitions"], out["rejected"]) == (1, 0)
        assert out["rows"] >= out["steps"] - 2 >= 42
        assert main([*arguments[:-1], "--topic", "unknown"]) == 1
    assert main(["ingest", "--topic", "orders", "--input", "x.csv", "--prometheus", "http://127.0.0.1:1"]) == 2


@pytest.mark.parametrize("topic", ["", ".", "..", "eu/orders", "a b", "a\nb", "größe", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text(ROWS)
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders"]) == 0
    assert main(["export", "--topic", "orders", "--file", "out.csv"]) == 0
    capsys.readouterr()
    for command in (["ingest", "--input", "orders.csv"], ["import", "--file", "out.csv"]):
        assert main([*command, "--topic", topic]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"headway {command[0]}: ") and "is no name of a topic" in said and len(said) < 250


def test_an_export_of_an_unknown_topic_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.csv").write_text(ROWS)
    assert main(["ingest", "--input", "orders.csv", "--topic", "orders"]) == 0
    assert main(["export", "--topic", "order", "--file", "out.csv"]) == 1
    assert capsys.readouterr().err.endswith("nothing is recorded of topic 'order'; did you mean 'orders'?\n")


@pytest.mark.parametrize("out", ["/proc/models", "orders.csv/models", "x" * 300])
def test_a_folder_that_cannot_keep_models_is_refused_before_the_training(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text(ROWS)
    assert main(["train", "--input", "orders.csv", "--out", out]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("headway train: ") and "models cannot be kept there" in said and "--out" in said


def test_a_rollback_of_an_unknown_topic_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", "--topic", "orders", "--out", str(tmp_path)]) == 1
    assert "holds no model of topic 'orders'; headway train makes the first" in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text(ROWS)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "orders.csv" / "state"))
    for command in (["ingest", "--input", "orders.csv", "--topic", "orders"], ["demo", "--once", "--port", "0"]):
        assert main(command) == 1
        assert "Not a directory; set HEADWAY_STATE, or state in headway.toml" in capsys.readouterr().err
