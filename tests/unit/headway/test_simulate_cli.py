"""headway simulate and headway plan as a user types them: keys, files, refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from headway.cli import main

KEYS = {
    "late_share", "p50_s", "p99_s", "p999_s", "hours", "rescales", "rescales_per_day", "movement_rscore",
    "hours_vs_limit",
}  # fmt: skip
T0 = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return twenty hours of a rising and falling stream, a step missing."""
    path = tmp_path_factory.mktemp("trace") / "orders.csv"
    rows = ["timestamp,series,value"]
    for k in range(20 * 12):
        if k != 100:
            value = int(3000 + 2000 * np.sin(k / 12 / 20 * 2 * np.pi))
            rows.append(f"{T0 + timedelta(minutes=5 * k):%Y-%m-%dT%H:%M:%SZ},a,{value}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def simulate(trace: Path, *more: str) -> list[str]:
    return [
        "simulate", "--input", str(trace), "--capacity", "2", "--from", "2026-01-05T12:00:00Z",
        "--to", "2026-01-05T16:00:00Z", *more,
    ]  # fmt: skip


def test_json_has_its_keys_and_decisions_their_columns(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "decisions.csv"
    args = simulate(trace, "--policies", "headway,static_peak,perfect", "--json", "--decisions", str(out))
    assert main(args) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gaps"] == 1
    for figures in document["policies"].values():
        assert set(figures) >= KEYS
    assert document["policies"]["perfect"]["hours_vs_limit"] == pytest.approx(1.0)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "policy,timestamp,replicas"
    assert {line.split(",")[0] for line in lines[1:]} == {"headway", "static_peak", "perfect"}
    changes = sum(line.startswith("headway,") for line in lines) - 1
    assert changes == document["policies"]["headway"]["rescales"]


def test_partitions_are_simulated_one_queue_each(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--partitions", "6", "--skew", "zipf:0.3", "--policies", "headway", "--pause-scope", "moved", "--json")
    assert main(simulate(trace, *more)) == 0
    headway = json.loads(capsys.readouterr().out)["policies"]["headway"]
    assert headway["movement_rscore"] is not None
    assert headway["late_share"] < 0.05


def test_a_report_is_one_self_contained_file(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(simulate(trace, "--policies", "static_peak,perfect", "--report", str(path))) == 0
    text = path.read_text(encoding="utf-8")
    assert "Requested members over arrivals" in text
    assert "<script src=" not in text and "http" not in text.replace("http-equiv", "")
    assert "Late records by hour of arrival" in text
    assert all(f'data-of="{name}"' in text for name in ("static_peak", "perfect"))


def test_what_it_cost_is_told_where_a_member_hour_has_a_price(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.html"
    more = ("--policies", "static_peak", "--price", "0.5", "--json", "--report", str(path))
    assert main(simulate(trace, *more)) == 0
    figures = json.loads(capsys.readouterr().out)["policies"]["static_peak"]
    assert figures["cost"] == pytest.approx(0.5 * figures["hours"])
    assert f"{figures['cost']:,.2f}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "word", "code"),
    [
        (("--capacity", "0"), "--capacity 0 must be a positive number", 1),
        (("--to", "2026-01-09T00:00:00Z"), "does not lie within the trace", 1),
        (("--policies", "hedaway"), "no policy hedaway", 2),
        (("--pause-scope", "some"), "group or moved", 2),
        (("--from", "2026-01-05T12:00:30Z"), "whole minutes", 1),
    ],
)
def test_what_cannot_be_meant_is_refused(
    trace: Path, change: tuple[str, str], word: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*simulate(trace, "--policies", "perfect"), *change]) == code
    assert word in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_plan_of_a_trace_is_made_by_its_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.csv"
    rows = [
        f"{T0 + timedelta(minutes=5 * k):%Y-%m-%dT%H:%M:%SZ},a,{int(3000 + 2000 * np.sin(k / 144 * np.pi))}"
        for k in range(9 * 288)
    ]
    path.write_text("\n".join(["timestamp,series,value", *rows]) + "\n", encoding="utf-8")
    assert main(["plan", "--input", str(path), "--capacity", "2", "--partitions", "6", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert not any("lacks partition" in reason or "no forecast" in reason for reason in reasons), reasons


def test_plan_of_a_trace_has_its_keys(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["plan", "--input", str(trace), "--capacity", "9", "--partitions", "6", "--json"]
    assert main(args) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"steps", "bound_by", "reasons", "lower_bound"} <= set(document)
    assert {"from", "replicas", "demand", "assignment", "movement"} <= set(document["steps"][0])
    owned = [p for parts in document["steps"][0]["assignment"].values() for p in parts]
    assert len(owned) == len(set(owned)) == 6
    assert document["bound_by"]["kind"] == "history"
    assert any("days of history" in reason for reason in document["reasons"])
