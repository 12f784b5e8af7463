"""Holidays and events on the command line: in forecasts, backtests and training, of files and of recorded topics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headway.cli import main


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main([str(a) for a in args])
    done = capsys.readouterr()
    return code, done.out, done.err


def written(folder: Path, last: str = "2026-05-01T22:00Z", job_h: int | None = None) -> Path:
    """Three weeks of working hours in Berlin up to the end of 1 May, on which little happened."""
    hours = pd.date_range("2026-04-10T22:00Z", last, freq="1h", inclusive="left")
    local = hours.tz_convert("Europe/Berlin")
    value = np.where((local.hour >= 8) & (local.hour < 20), 1000, 100)
    value = np.where((local.month == 5) & (local.day == 1), value // 5, value)
    if job_h is not None:
        value = value + 800 * (hours.as_unit("s").asi8 // 3600 % job_h == 0)
    file = folder / "orders.csv"
    stamps = hours.strftime("%Y-%m-%dT%H:%M:%SZ")
    pd.DataFrame({"timestamp": stamps, "series": "0", "value": value}).to_csv(file, index=False)
    return file


BERLIN = ("--zone", "Europe/Berlin")


def test_d17_a_holiday_in_a_file_is_no_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    said = {}
    for more in ((), ("--holidays", "DE-BE")):
        args = ("forecast", "--input", file, "--horizon", "24h", "--method", "yesterday", *BERLIN, *more, "--json")
        code, out, _ = run(capsys, *args)
        assert code == 0
        said[bool(more)] = np.array(json.loads(out)["total"]["0.5"])[9:19] * 3600
    assert said[False].mean() < 300
    assert abs(said[True].mean() - 1000) < 50


def test_an_event_ahead_multiplies_and_one_that_is_over_is_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, events = written(tmp_path), tmp_path / "events.json"
    ahead = {"name": "sale", "from": "2026-05-02T10:00:00+02:00", "to": "2026-05-02T12:00:00+02:00", "factor": 3}
    over = {"name": "May Day", "from": "2026-05-01T00:00:00+02:00", "to": "2026-05-02T00:00:00+02:00"}
    events.write_text(json.dumps([ahead, over]))
    args = ("forecast", "--input", file, "--horizon", "24h", "--method", "yesterday", *BERLIN, "--events", events)
    code, out, _ = run(capsys, *args, "--json")
    got = json.loads(out)
    rates = np.array(got["total"]["0.5"]) * 3600
    assert code == 0
    assert np.allclose(rates[[9, 10, 11, 12]], [1000, 3000, 3000, 1000], rtol=0.01)
    assert "event sale: 3 times the usual" in got["reasons"]


def test_backtests_and_training_leave_holidays_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "2026-05-02T22:00Z")
    args = (
        "backtest",
        "--input",
        file,
        "--horizon",
        "24h",
        "--origins",
        "1",
        "--methods",
        "yesterday",
        *BERLIN,
        "--json",
    )
    plain = json.loads(run(capsys, *args)[1])["methods"]["yesterday"]["wape"]
    dated = json.loads(run(capsys, *args, "--holidays", "DE-BE")[1])["methods"]["yesterday"]["wape"]
    assert plain > 0.7 and dated < 0.1
    train = ("train", "--input", file, "--method", "boosting", "--test-days", "1", "--out", tmp_path / "m", *BERLIN)
    one = json.loads(run(capsys, *train, "--json")[1])
    two = json.loads(run(capsys, *train, "--holidays", "DE-BE", "--resume", "--json")[1])
    assert one["card"]["recipe"]["holidays"] is None and two["card"]["recipe"]["holidays"] == "DE-BE"
    assert two["reason"] != "already trained on these data"
    assert two["card"]["sha256"] != one["card"]["sha256"]
    assert two["periods"][0]["period_s"] == 86400
    card = tmp_path / "m" / "main" / "orders" / two["version"] / "card.json"
    code, out, err = run(capsys, "train", "--card", card, "--input", file, "--json")
    assert (code, json.loads(out)["same_bytes"]) == (0, True), err
    assert run(capsys, "train", "--card", card)[0] == 2


def test_a_recorded_topic_takes_them_too_over_what_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path)
    config = tmp_path / "h.toml"
    config.write_text(
        f'state = "{tmp_path}/state"\n[defaults]\ntimezone = "Europe/Berlin"\n[groups.orders]\ntopics = ["orders"]\n'
    )
    assert run(capsys, "ingest", "--input", file, "--topic", "orders", "--config", config)[0] == 0
    args = ("forecast", "--topic", "orders", "--horizon", "24h", "--config", config, "--json")
    plain = np.array(json.loads(run(capsys, *args)[1])["total"]["0.5"])[9:19].mean() * 3600
    code, out, err = run(capsys, *args, "--holidays", "DE-BE")
    got = json.loads(out)
    assert code == 0, err
    assert plain < 700 < 900 < np.array(got["total"]["0.5"])[9:19].mean() * 3600
    assert got["health"]["may_act"] is False and "0 of 24 points" in got["health"]["reasons"][0]


def test_periods_are_shown_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "2026-05-12T22:00Z", job_h=10)
    args = ("backtest", "--input", file, "--horizon", "24h", "--origins", "3", "--methods", "yesterday", *BERLIN)
    code, out, _ = run(capsys, *args, "--json")
    periods = json.loads(out)["periods"]
    assert code == 0
    assert 36000 in [p["period_s"] for p in periods] and all(0 < p["share"] <= 1 for p in periods)
    assert "10 h (" in run(capsys, *args)[2]
    forecast = ("forecast", "--input", file, "--horizon", "24h", "--method", "yesterday", *BERLIN, "--json")
    assert json.loads(run(capsys, *forecast)[1])["periods"] == periods


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("{}", "holds no list"),
        ("[1]", "event 1: needs the keys"),
        ('[{"name": "a", "from": "x", "to": "y"}]', "write ISO 8601"),
        ('[{"name": "a", "from": "2026-01-05", "to": "2026-01-06"}]', "need a time zone"),
        ('[{"name": "a", "from": "2026-01-05T00:00Z", "to": "2026-01-06T00:00Z", "factor": true}]', "is no number"),
        ('[{"name": "a", "from": "2026-01-05T00:00Z", "to": "2026-01-06T00:00Z", "factors": 2}]', "no key 'factors'"),
    ],
)
def test_a_file_of_events_that_cannot_be_meant_is_one_line(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.json"
    events.write_text(text)
    args = ("forecast", "--input", written(tmp_path), "--horizon", "24h", "--events", events)
    code, out, err = run(capsys, *args)
    assert (code, out) == (1, "")
    assert says in err and "events.json" in err


def test_an_unknown_region_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(
        capsys, "backtest", "--input", written(tmp_path), "--horizon", "24h", "--origins", "1", "--holidays", "XX"
    )
    assert code == 1 and "ISO 3166" in err
