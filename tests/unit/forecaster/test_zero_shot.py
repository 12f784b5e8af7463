"""The shipped model: opened here, small, and useful to a stream that is a day old."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from forecaster import shipped_files, zero_shot
from forecaster.forecast import Forecast, Rung
from forecaster.ladder import Ladder
from forecaster.registry import ModelRegistry, as_bytes
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

MODELS = Path(zero_shot.__file__).resolve().parent.parent / "models"


def daily(days: float, step_s: int = 900, rows: int = 2) -> ArrivalSeries:
    steps = int(days * 86_400 / step_s)
    rate = 100 + 90 * np.sin(np.arange(steps) * step_s / 86_400 * 2 * np.pi)
    counts = np.random.default_rng(0).poisson(rate, (rows, steps)).astype(float)
    return ArrivalSeries("new", TimeGrid(step_s), 96 * 20_000, tuple(range(rows)), counts, counts >= 0)


@pytest.mark.parametrize("days", [2, 4, 9, 20])
@pytest.mark.parametrize("step_s", [60, 900, 3600])
def test_a_young_stream_is_forecast_by_the_shipped_model(days: float, step_s: int) -> None:
    method, why = zero_shot.shipped()
    assert method is not None, why
    result = Ladder(None, method).predict(daily(days, step_s), 86_400 // step_s)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.ZERO_SHOT, result.reasons
    assert np.isfinite(result.rates).all()
    truth = 100 + 90 * np.sin((np.arange(86_400 // step_s) + int(days * 86_400 / step_s)) * step_s / 86_400 * 2 * np.pi)
    error = np.abs(result.at_level(0.5)[0] * step_s - truth).mean() / truth.mean()
    assert error < 0.35
    assert np.mean(truth <= result.at_level(0.99)[0] * step_s) > 0.9


def test_many_partitions_of_a_stream_that_is_just_old_enough_are_forecast_too() -> None:
    """Nothing can be replayed yet to correct the quantiles by, neither for few rows nor for many."""
    result = Ladder(None, zero_shot.shipped()[0]).predict(daily(2, rows=64), 96)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.ZERO_SHOT, result.reasons


def test_a_stream_that_is_a_day_old_is_better_off_with_yesterday() -> None:
    result = Ladder(None, zero_shot.shipped()[0]).predict(daily(1.5), 96)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.GRID_STATE
    assert "zero_shot: needs 2 d of history, there are 1.50 d" in result.reasons


def test_its_card_names_data_licences_and_what_was_held_back() -> None:
    registry = ModelRegistry(MODELS)
    card = registry.load(zero_shot.STREAM).card
    assert card.bytes < 2_000_000
    assert card.params["held_back_days"] == 14
    assert all(used["licence"] != "unknown" for used in card.params["sets"].values())
    assert card.licence is not None
    assert "CC BY 4.0" in card.licence
    assert registry.versions(zero_shot.STREAM) == (card.version,)


def test_the_script_that_made_it_makes_the_same_bytes_twice(tmp_path: Path) -> None:
    """On one small trace; ``python models/train_zero_shot.py --check`` trains all of it and compares with the card."""
    found = importlib.util.spec_from_file_location("train_zero_shot", MODELS / "train_zero_shot.py")
    assert found is not None
    assert found.loader is not None
    script = importlib.util.module_from_spec(found)
    sys.modules[found.name] = script
    found.loader.exec_module(script)
    start = np.datetime64("2026-01-01T00:00:00")
    hours = np.arange(30 * 24)
    counts = np.random.default_rng(0).poisson(100 + 90 * np.sin(hours / 24 * 2 * np.pi))
    lines = [f"{start + np.timedelta64(int(h), 'h')}Z,one,{count}" for h, count in zip(hours, counts, strict=True)]
    with gzip.open(tmp_path / "small.csv.gz", "wt") as file:
        file.write("\n".join(["timestamp,series,value", *lines]) + "\n")
    one, two = (script.trained(tmp_path, (), seed=0) for _ in range(2))
    assert one.data_sha256 == two.data_sha256
    assert max(h.end for h in one.histories) == datetime(2026, 1, 17, tzinfo=UTC)  # 14 of 30 days are held back
    assert as_bytes(one.method) == as_bytes(two.method)
    assert as_bytes(one.method) != as_bytes(script.trained(tmp_path, (), seed=1).method)


def test_a_stream_of_its_own_model_does_not_ask_it() -> None:
    from tests.unit.forecaster.naive_oracle import Yesterday

    result = Ladder(Yesterday(), zero_shot.shipped()[0]).predict(daily(3), 96)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.OWN_MODEL


def test_without_it_the_reason_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zero_shot, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(shipped_files.sysconfig, "get_path", lambda *_: str(tmp_path))
    zero_shot.shipped.cache_clear()
    try:
        method, why = zero_shot.shipped()
        assert method is None
        assert why is not None
        assert "no shipped model is installed" in why
    finally:
        zero_shot.shipped.cache_clear()


def test_an_installed_package_finds_it_beside_its_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    registry = ModelRegistry(MODELS)
    version = registry.current(zero_shot.STREAM)
    target = tmp_path / "share" / "headway" / "zero_shot"
    target.mkdir(parents=True)
    for path in (registry.folder(zero_shot.STREAM) / str(version)).iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(zero_shot, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(shipped_files.sysconfig, "get_path", lambda *_: str(tmp_path))
    zero_shot.shipped.cache_clear()
    try:
        assert zero_shot.shipped()[0] is not None
    finally:
        zero_shot.shipped.cache_clear()


def test_it_is_as_careful_with_gaps_as_any_method() -> None:
    series = daily(6)
    known = series.known.copy()
    known[0, 200:400] = False
    result = Ladder(None, zero_shot.shipped()[0]).predict(
        replace(series, known=known, counts=np.where(known, series.counts, 0)), 96
    )
    assert isinstance(result, Forecast)
    assert result.horizon == timedelta(days=1)
