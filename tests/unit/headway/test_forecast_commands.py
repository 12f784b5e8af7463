"""headway forecast, backtest, train and rollback: their keys, refusals and exit codes, on a small trace."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headway.cli import main

TRACES = Path(os.environ.get("HEADWAY_TRACES", Path(__file__).parents[3] / ".." / "shared" / "traces"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    hours = pd.date_range("2026-01-05", periods=24 * 16, freq="1h", tz="UTC")
    profile = 200 + 150 * np.sin(np.arange(len(hours)) / 24 * 2 * np.pi)
    frames = [
        pd.DataFrame(
            {"timestamp": hours.strftime("%Y-%m-%dT%H:%M:%SZ"), "series": name, "value": rng.poisson(profile * size)}
        )
        for name, size in (("a", 1), ("b", 3))
    ]
    path = tmp_path_factory.mktemp("traces") / "orders.csv.gz"
    pd.concat(frames).to_csv(path, index=False)
    return path


@pytest.fixture(autouse=True)
def quick_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained by default has tests of its own; here a method that learns nothing stands for it."""
    monkeypatch.setattr("forecaster.training.OWN_METHOD", "median_blend")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main([str(a) for a in args])
    done = capsys.readouterr()
    return code, done.out, done.err


def test_forecast_answers_with_its_keys(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "forecast", "--input", trace, "--horizon", "24h", "--levels", ".5,.9,.95", "--json")
    assert code == 0
    assert "2 series, step 3600 s" in err
    got = json.loads(out)
    assert got["origin"] == "2026-01-21T00:00:00Z"
    assert (got["step_s"], got["levels"], got["rung"]) == (3600, [0.5, 0.9, 0.95], "own_model")
    assert {"method", "reasons", "total"} <= set(got)
    assert [p["partition"] for p in got["partitions"]] == [0, 1]
    medians = [p["values"]["0.5"] for p in got["partitions"]]
    assert [len(m) for m in medians] == [24, 24]
    assert np.allclose(np.sum(medians, axis=0), got["total"]["0.5"], rtol=1e-3, atol=1e-3)
    assert 100 / 3600 < np.mean(medians[0]) < 300 / 3600


def test_forecast_looks_at_nothing_after_its_origin_and_takes_longer_steps(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("forecast", "--input", trace, "--horizon", "12h", "--origin", "2026-01-18T00:00:00Z", "--step", "2h")
    got = json.loads(run(capsys, *args, "--method", "yesterday", "--json")[1])
    assert (got["origin"], got["step_s"], got["method"]) == ("2026-01-18T00:00:00Z", 7200, "yesterday")
    rows = pd.read_csv(trace, parse_dates=["timestamp"])
    day = rows[(rows.series == "a") & (rows.timestamp >= "2026-01-17") & (rows.timestamp < "2026-01-17T12:00Z")]
    expected = day.value.to_numpy().reshape(-1, 2).sum(axis=1) / 7200
    total = sum(np.array(p["values"]["0.5"]) for p in got["partitions"])
    assert np.corrcoef(total, expected)[0, 1] > 0.95


def test_too_short_a_history_is_an_answer_not_a_failure(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = (
        "forecast",
        "--input",
        trace,
        "--horizon",
        "6h",
        "--origin",
        "2026-01-06T00:00:00Z",
        "--method",
        "last_week",
    )
    code, out, _ = run(capsys, *args, "--json")
    got = json.loads(out)
    assert (code, got["values"]) == (0, None)
    assert "needs 7 d" in got["reasons"][0]
    assert got["possible_from"] == "2026-01-12T00:00:00Z"
    assert "no forecast" in run(capsys, *args)[2]


def test_backtest_answers_with_its_keys(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = (
        "backtest",
        "--input",
        trace,
        "--horizon",
        "24h",
        "--origins",
        "3",
        "--methods",
        "median_blend,seasonal_naive",
    )
    code, out, _ = run(capsys, *args, "--lead", "1h,6h", "--json")
    assert code == 0
    got = json.loads(out)
    assert got["origins"] == ["2026-01-18T00:00:00Z", "2026-01-19T00:00:00Z", "2026-01-20T00:00:00Z"]
    assert set(got["methods"]) == {"median_blend", "seasonal_naive"}
    for figures in (*got["methods"].values(), *(f for s in got["series"] for f in s["methods"].values())):
        assert {"mase", "wape", "smape", "pinball", "coverage", "seconds_per_series"} <= set(figures)
        assert set(figures["coverage"]) == set(figures["pinball"]) == {"0.5", "0.9", "0.95", "0.99"}
    assert got["methods"]["median_blend"]["mase"] < got["methods"]["seasonal_naive"]["mase"]
    assert set(got["methods"]["median_blend"]["leads"]) == {"3600", "21600"}
    assert [s["series"] for s in got["series"]] == ["a", "b"]
    means = np.mean([s["methods"]["median_blend"]["mase"] for s in got["series"]])
    assert means == pytest.approx(got["methods"]["median_blend"]["mase"])
    assert got["methods"]["median_blend"]["seconds_per_series"] > 0
    table = run(capsys, *args)[1]
    assert table.splitlines()[1].startswith("median_blend")


def test_train_promotes_once_keeps_and_rolls_back(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("train", "--input", trace, "--out", tmp_path)
    code, out, _ = run(capsys, *args, "--json")
    first = json.loads(out)
    assert code == 0
    assert first["promoted"], first["reason"]
    assert first["card"]["topic"] == "orders"
    assert first["card"]["scores"]["challenger"]["mase"] < first["card"]["scores"]["yesterday"]["mase"]
    assert (tmp_path / "main" / "orders" / first["version"] / "forecaster.joblib").exists()
    again = json.loads(run(capsys, *args, "--json")[1])
    assert not again["promoted"]
    assert "not better than the champion's" in again["reason"]
    assert "already trained on these data" in run(capsys, *args, "--resume")[1]
    to = ("rollback", "--topic", "orders", "--out", tmp_path)
    assert run(capsys, *to)[0] == 1
    listed = json.loads(run(capsys, *to, "--to", again["version"], "--json")[1])
    assert listed["state"] == "rolled_back"
    assert [v["version"] for v in listed["versions"] if v["current"]] == [again["version"]]


def test_a_folder_is_trained_stream_by_stream_and_a_refusal_does_not_end_it(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "orders.csv.gz").write_bytes(trace.read_bytes())
    (folder / "bad.csv").write_text("timestamp,series,value\n2026-01-05T00:00:00Z,a,x\n")
    (folder / "short.csv").write_text(
        "timestamp,series,value\n" + "".join(f"2026-01-05T{h:02d}:00:00Z,a,{h}\n" for h in range(5))
    )
    code, out, _ = run(
        capsys, "train", "--input", folder, "--out", tmp_path / "models", "--method", "median_blend", "--json"
    )
    rows = {row["topic"]: row for row in json.loads(out)["streams"]}
    assert code == 0
    assert rows["orders"]["promoted"]
    assert "bad.csv" in rows[None]["reason"]
    assert "training needs 3" in rows["short"]["reason"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("forecast", "--horizon", "24"), 2, "has no unit"),
        (("forecast", "--horizon", "99999d"), 2, "can be forecast"),
        (("forecast", "--horizon", "24h", "--levels", "1.5"), 2, "between 0 and 1"),
        (("forecast", "--horizon", "24h", "--origin", "2026-01-05"), 2, "no time zone"),
        (("forecast", "--horizon", "24h", "--origin", "2030-01-05T00:00:00Z"), 1, "outside what is recorded"),
        (("forecast", "--horizon", "24h", "--step", "7m"), 1, "must be a multiple of the recorded step"),
        (("forecast", "--horizon", "24h", "--method", "gird"), 1, "did you mean 'grid'"),
        (("backtest", "--horizon", "24h", "--origins", "99"), 1, "use fewer origins"),
        (("backtest", "--horizon", "30m", "--origins", "2"), 2, "not a whole number of steps"),
        (("backtest", "--horizon", "24h", "--origins", "2", "--lead", "48h"), 2, "within the horizon"),
        (("train", "--address", "tcp://127.0.0.1:1"), 1, "loky runs on this machine"),
    ],
)
def test_refusals_are_one_line_with_the_remedy(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, says: str
) -> None:
    command, *rest = args
    got, out, err = run(capsys, command, "--input", trace, *rest)
    assert (got, out) == (code, "")
    assert says in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("command", ["forecast", "backtest", "train", "rollback"])
def test_help_starts_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, command, "--help")[1].startswith(f"Example: headway {command} ")


@pytest.mark.parametrize(
    "command",
    [
        ("forecast", "--horizon", "24h", "--method", "grid"),
        ("backtest", "--horizon", "24h", "--origins", "1", "--methods", "grid"),
        ("train", "--test-days", "1", "--out", "models"),
        ("plan", "--capacity", "1"),
        ("simulate", "--capacity", "1", "--from", "2026-01-18T00:00:00Z", "--to", "2026-01-18T06:00:00Z",
         "--policies", "static_peak"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_command_takes_the_value_that_stands_for_missing(
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    rows = pd.read_csv(trace)
    rows.loc[[30, 31, 400], "value"] = -1
    rows.to_csv(tmp_path / "gaps.csv", index=False)
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *command, "--input", "gaps.csv")
    assert code == 1 and "gaps.csv:32: -1 is negative" in err and "--missing=-1" in err
    code, _, err = run(capsys, *command, "--input", "gaps.csv", "--missing=-1")
    assert code == 0, err
    assert "0.39% missing" in err


def test_backtest_answers_on_a_public_trace_that_writes_minus_one(capsys: pytest.CaptureFixture[str]) -> None:
    file = TRACES / "melbourne_pedestrians_1h.csv.gz"
    arguments = ("backtest", "--input", file, "--series", "sensor00", "--horizon", "24h", "--origins", "2")
    code, out, _ = run(capsys, *arguments, "--methods", "grid", "--missing=-1", "--json")
    assert code == 0 and json.loads(out)["methods"]["grid"]["answered"] == 1


def test_d17_the_day_after_a_holiday_is_forecast_from_ordinary_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "state"))
    hours = pd.date_range("2026-04-10T22:00Z", "2026-05-01T22:00Z", freq="1h", inclusive="left")
    local = hours.tz_convert("Europe/Berlin")
    usual = np.where((local.hour >= 8) & (local.hour < 20), 1000, 100)
    value = np.where((local.month == 5) & (local.day == 1), usual // 5, usual)
    stamps = hours.strftime("%Y-%m-%dT%H:%M:%SZ")
    pd.DataFrame({"timestamp": stamps, "series": "0", "value": value}).to_csv("orders.csv", index=False)
    said = {}
    for holidays in ("", 'holidays = "DE-BE"'):
        Path("h.toml").write_text(
            f'[defaults]\ntimezone = "Europe/Berlin"\n{holidays}\n[groups.orders]\ntopics = ["orders"]\n'
        )
        assert run(capsys, "ingest", "--input", "orders.csv", "--topic", "orders", "--config", "h.toml")[0] == 0
        code, out, _ = run(capsys, "forecast", "--topic", "orders", "--horizon", "24h", "--config", "h.toml", "--json")
        assert code == 0
        said[bool(holidays)] = np.array(json.loads(out)["total"]["0.5"])[9:19] * 3600
    assert said[False].mean() < 700
    assert abs(said[True].mean() - 1000) < 100
