"""Peers stand behind the port of our own methods; what they lack or raise is one clear line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec as really_find_spec

import numpy as np
import pytest

from forecaster.backtest import BacktestPlan, backtest
from forecaster.errors import InputRefused
from forecaster.forecast import Forecast, NoForecast
from forecaster.methods.base import Method
from forecaster.peers import catalogue
from forecaster.peers.base import Asked, PeerMethod
from forecaster.peers.catalogue import PEERS, make_method_or_peer
from tests.unit.forecaster.test_training import noisy_days


class Mean(PeerMethod):
    """A library's model, the simplest."""

    name = "mean"

    def _of_row(self, row: np.ndarray, asked: Asked) -> np.ndarray:
        return np.full((asked.steps, len(asked.levels)), row.mean()) * np.arange(1, len(asked.levels) + 1)


class Broken(PeerMethod):
    name = "broken"

    def __init__(self, how: str = "raises"):
        self.how = how

    def _quantiles(self, rows: Sequence[np.ndarray], asked: Asked) -> list[np.ndarray]:
        if self.how == "raises":
            raise RuntimeError("a library\nwith much to say")
        return [np.full((asked.steps, len(asked.levels)), np.nan) for _ in rows]


def test_a_peer_gets_rows_without_gaps_and_answers_in_rates() -> None:
    series = noisy_days(9)
    known = series.known.copy()
    known[0, 30:40] = False
    known[2, :-30] = False  # too young
    holes = replace(series, known=known, counts=np.where(known, series.counts, 0.0))
    said = Mean().predict(holes, 24, (0.9, 0.5))
    assert isinstance(said, Forecast)
    assert isinstance(Mean(), Method)
    assert (said.partitions, said.levels, said.steps) == ((0, 1), (0.5, 0.9), 24)
    assert said.at_level(0.5)[1, 0] == pytest.approx(series.counts[1].mean() / 3600)
    assert said.total[0, 0] == pytest.approx(said.at_level(0.5)[:, 0].sum(), rel=0.05)


def test_a_young_topic_and_a_library_that_fails_are_reasons() -> None:
    young = Mean().predict(noisy_days(1), 24)
    assert isinstance(young, NoForecast) and "needs 2 d of history, there are 1.00 d" in young.reason
    assert young.possible_from is not None and (young.possible_from - young.origin).days == 1
    for how, says in (("raises", "broken failed: RuntimeError: a library"), ("nan", "answered what is not a number")):
        answer = Broken(how).predict(noisy_days(9), 24)
        assert isinstance(answer, NoForecast) and answer.reason.endswith(says)


def test_d13_a_real_peer_on_constants_zeros_and_spikes_is_finite_or_a_reason() -> None:
    series = noisy_days(9)
    spike = np.zeros(series.counts.shape)
    spike[:, 50] = 1e12
    for counts in (np.full(series.counts.shape, 7.0), np.zeros(series.counts.shape), spike):
        answer = make_method_or_peer("statsmodels_stl").predict(replace(series, counts=counts), 24)
        assert isinstance(answer, NoForecast) or np.isfinite(answer.rates).all()


def test_statsmodels_is_a_real_peer_in_a_backtest() -> None:
    methods = {name: make_method_or_peer(name) for name in ("statsmodels_stl", "yesterday")}
    report = backtest(noisy_days(12), methods, BacktestPlan(24, 2, 24))
    peer, naive = report.methods["statsmodels_stl"].mean, report.methods["yesterday"].mean
    assert peer.mase is not None and naive.mase is not None and peer.mase < naive.mase
    covered = peer.coverage[0.95]
    assert covered is not None and 0.85 < covered <= 1


@pytest.mark.parametrize("name", [n for n in PEERS if n != "statsmodels_stl"])
def test_a_peer_that_is_not_installed_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = set(PEERS[name].libraries)
    monkeypatch.setattr(catalogue, "find_spec", lambda n: None if n in absent else really_find_spec(n))
    with pytest.raises(InputRefused, match=r"not installed; pip install 'headway\[peers\]' brings it"):
        make_method_or_peer(name)


@pytest.mark.parametrize(
    ("wrong", "hint"), [("prophett", "did you mean 'prophet'"), ("gird", "did you mean 'grid'"), ("zzz", "there are")]
)
def test_an_unknown_name_gets_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(InputRefused, match=hint):
        make_method_or_peer(wrong)
