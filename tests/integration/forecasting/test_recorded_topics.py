"""A topic in a real embedded store: forecast, backtest, train and forecast again with its own model."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from forecaster.stores.base import Cells, SeriesKey
from headway.cli import main
from headway.configuration.settings import load
from headway.wiring import open_series, store_url

STEP_S = 900
END = datetime(2026, 1, 26, 12, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headway.toml"
    path.write_text(f'state = "{tmp_path}/state"\n[models]\npath = "{tmp_path}/models"\n')
    settings = load(path, {})
    end = int(END.timestamp()) // STEP_S
    steps = 21 * 96
    slots = (np.arange(end - steps, end) % 96) / 96 * 2 * np.pi
    values = np.random.default_rng(0).poisson(300 + 250 * np.sin(slots), (2, steps))
    with store_url(settings) as url:
        store = open_series(settings, url)
        store.backfill(SeriesKey("orders", "arrivals", step_s=STEP_S), Cells(end - steps, values, values >= 0))
        store.close()
    return path


@pytest.fixture(autouse=True)
def quick_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained by default has tests of its own; here a method that learns nothing stands for it."""
    monkeypatch.setattr("forecaster.training.OWN_METHOD", "median_blend")


def run(capsys: pytest.CaptureFixture[str], *args: object) -> dict:
    assert main([str(a) for a in args]) == 0, capsys.readouterr().err
    found: dict = json.loads(capsys.readouterr().out)
    return found


def test_a_recorded_topic_from_first_forecast_to_its_own_model(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--topic", "orders", "--config", config, "--json")
    before = run(capsys, "forecast", "--horizon", "24h", *common)
    assert (before["origin"], before["step_s"]) == ("2026-01-26T12:00:00Z", STEP_S)
    assert before["rung"] != "own_model"
    assert any(r.startswith("own_model: none is trained") for r in before["reasons"])
    scores = run(
        capsys, "backtest", "--horizon", "24h", "--origins", "2", "--methods", "median_blend,yesterday", *common
    )
    assert scores["methods"]["median_blend"]["mase"] < scores["methods"]["yesterday"]["mase"]
    trained = run(capsys, "train", *common)
    assert trained["promoted"], trained["reason"]
    after = run(capsys, "forecast", "--horizon", "24h", *common)
    assert after["rung"] == "own_model"
    hourly = run(capsys, "forecast", "--horizon", "24h", "--step", "1h", "--method", "yesterday", *common)
    assert (hourly["step_s"], len(hourly["total"]["0.5"])) == (3600, 24)


def test_an_unknown_topic_is_refused_with_the_nearest(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "--topic", "order", "--horizon", "1h", "--config", str(config)]) == 1
    assert (
        f"no topic 'order' is recorded in {load(config, {}).store_place}; did you mean 'orders'?"
        in capsys.readouterr().err
    )
    early = END - timedelta(days=300)
    args = ["backtest", "--topic", "nothing-like-it", "--horizon", "1h", "--origins", "1", "--config", str(config)]
    assert main(args) == 1
    assert "headway ingest loads one" in capsys.readouterr().err
    at = ["--origin", early.isoformat(), "--method", "grid"]
    assert main(["forecast", "--topic", "orders", "--horizon", "1h", "--config", str(config), *at]) == 1
    said = capsys.readouterr().err
    assert f"no arrivals are recorded in the eight weeks before {early:%Y-%m-%dT%H:%M:%SZ} in" in said
    assert "headway ingest or import loads a history" in said


def test_one_source_is_insisted_on(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["forecast", "--horizon", "1h"], ["backtest", "--horizon", "1h", "--origins", "1"]):
        assert main(command) == 2
        assert "--input FILE or --topic TOPIC" in " ".join(capsys.readouterr().err.split())
    assert main(["train"]) == 2
