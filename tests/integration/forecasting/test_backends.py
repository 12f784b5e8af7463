"""Training and backtests through joblib's backends: this machine's processes, a real Dask and a real Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from forecaster.backtest import BacktestPlan, Mapper, backtest
from forecaster.methods.catalogue import make_method
from headway.cli import main
from headway.work.parallel import BackendRefused, mapper
from tests.peers.ray_cluster import ray_cluster
from tests.unit.forecaster.test_training import noisy_days

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def dask_address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, host="127.0.0.1") as cluster:
        yield cluster.scheduler_address


def figures_agree(run: Mapper) -> None:
    series, plan = noisy_days(12), BacktestPlan(24, 3, 24)
    methods = {name: make_method(name) for name in ("yesterday", "median_blend")}
    here, there = backtest(series, methods, plan), backtest(series, methods, plan, map=run)
    assert {n: m.series for n, m in here.methods.items()} == {n: m.series for n, m in there.methods.items()}
    assert list(run(abs, iter([-3, 2, -1]))) == [3, 2, 1]


def test_loky_gives_the_figures_of_one_process() -> None:
    with mapper("loky", jobs=2) as run:
        figures_agree(run)


def test_dask_gives_the_figures_of_one_process(dask_address: str) -> None:
    with mapper("dask", jobs=2, address=dask_address) as run:
        figures_agree(run)


@pytest.mark.slow  # Ray gives its node half a minute to come up, which it needs alone where processors are shared
def test_ray_gives_the_figures_of_one_process() -> None:
    with ray_cluster() as address, mapper("ray", jobs=2, address=address) as run:
        figures_agree(run)


def test_a_folder_is_trained_on_dask_and_resumed_anywhere(
    dask_address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for row in range(3):
        frame = noisy_days(8).select([row]).to_frame().iloc[:, 0].rename("value").reset_index()
        frame.insert(1, "series", "a")
        frame["timestamp"] = frame["timestamp"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        frame.to_csv(folder / f"topic{row}.csv", index=False)
    options = ["--method", "median_blend", "--test-days", "2", "--out", str(tmp_path / "models"), "--json"]
    cluster = ["--backend", "dask", "--jobs", "2", "--address", dask_address]
    assert main(["train", "--input", str(folder), *options, *cluster]) == 0
    rows = json.loads(capsys.readouterr().out)["streams"]
    assert [row["topic"] for row in rows] == ["topic0", "topic1", "topic2"]
    assert all(row["version"] for row in rows)
    assert main(["train", "--input", str(folder), *options, "--resume"]) == 0
    again = json.loads(capsys.readouterr().out)["streams"]
    assert [row["reason"] for row in again] == ["already trained on these data"] * 3
    assert [row["version"] for row in again] == [row["version"] for row in rows]


def test_a_cluster_that_does_not_answer_is_refused() -> None:
    with pytest.raises(BackendRefused, match="no Dask scheduler answers at"), mapper("dask", 2, "tcp://127.0.0.1:9"):
        pass
