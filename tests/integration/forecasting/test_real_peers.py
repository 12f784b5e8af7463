"""statsforecast, mlforecast, LightGBM, Prophet and statsmodels for real, through `headway backtest`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.peers.forecasters import headway
from tests.unit.forecaster.test_training import noisy_days

QUICK = (
    "statsforecast_ets", "statsforecast_mstl", "statsforecast_theta", "statsmodels_stl", "mlforecast_lightgbm",
    "prophet",
)  # fmt: skip
SLOW = ("statsforecast_arima",)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = noisy_days(15).select([0, 1]).to_frame()
    frame.columns = [f"s{c}" for c in frame.columns]
    long = frame.reset_index().melt("timestamp", var_name="series")
    long["timestamp"] = long["timestamp"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    path = tmp_path_factory.mktemp("peers") / "orders.csv"
    long.to_csv(path, index=False)
    return path


def backtest(trace: Path, methods: tuple[str, ...], *more: object) -> dict[str, dict[str, object]]:
    options = ("--horizon", "24h", "--origins", "1", "--methods", ",".join(methods), "--json", *more)
    done = headway("backtest", "--input", trace, *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)["methods"]
    return found


def test_every_quick_peer_answers_and_beats_yesterday(trace: Path) -> None:
    found = backtest(trace, (*QUICK, "yesterday"))
    yesterday = found.pop("yesterday")["mase"]
    for name, figures in found.items():
        assert figures["answered"] == 1, (name, figures["reasons"])
        assert figures["mase"] < yesterday, name  # type: ignore[operator]
        coverage = figures["coverage"]
        assert isinstance(coverage, dict)
        assert 0.75 <= coverage["0.95"] <= 1, name
        assert coverage["0.5"] <= coverage["0.9"] <= coverage["0.99"], name


@pytest.mark.slow  # minutes: dozens of candidate models with a season of 24
def test_the_slow_peer_answers(trace: Path) -> None:
    for name, figures in backtest(trace, SLOW, "--series", "s0").items():
        assert figures["answered"] == 1, (name, figures["reasons"])
