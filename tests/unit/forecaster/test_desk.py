"""Forecasts are scored as their truth comes, sums survive a restart, and the gate chooses what is served."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from forecaster.desk import ForecastDesk
from forecaster.errors import StoreRefused
from forecaster.forecast import Forecast, Rung
from forecaster.gate import GatePolicy
from forecaster.registry import ModelRegistry
from forecaster.scorekeeping import Scorekeeper
from forecaster.serving import ForecastService
from forecaster.topics import StreamId
from tests.unit.forecaster.naive_oracle import Yesterday
from tests.unit.forecaster.test_serving import NOW, STEP_S, CountingStore, _card, filled, tick

STEP = timedelta(seconds=STEP_S)
HOUR = timedelta(hours=1)


def desk_with(store: CountingStore, models: ModelRegistry | None = None, **gate: object) -> ForecastDesk:
    return ForecastDesk(ForecastService(store, models), Scorekeeper(store), GatePolicy(**gate))  # type: ignore[arg-type]


def test_sums_equal_a_plain_loop_and_survive_a_restart() -> None:
    store = filled()
    desk = desk_with(store, min_points=10)
    said: dict[int, Forecast] = {}
    rng = np.random.default_rng(4)
    truths: dict[int, np.ndarray] = {}
    for k in range(20):
        now = NOW + k * STEP
        served = desk.forecast("orders", now, HOUR)
        assert isinstance(served.candidate, Forecast)
        assert served.problem is None
        said[k] = served.candidate
        truths[k] = rng.poisson(40, 2)
        tick(store, now, truths[k].tolist())
    now = NOW + 20 * STEP
    last = desk.forecast("orders", now, HOUR)
    fresh = Scorekeeper(store)
    log = fresh.log("orders", now)
    assert log is not None
    health = log.window(NOW, now)
    # the lead of 15 min is the third step; the forecast made at step k is scored at k + 2, the newest is left out
    scored = [(k, k + 2) for k in range(17)]
    over = sum(float(np.maximum(said[k].rates[:, 2, 0] * STEP_S - truths[j], 0).sum()) for k, j in scored)
    under = sum(float(np.maximum(truths[j] - said[k].rates[:, 2, 0] * STEP_S, 0).sum()) for k, j in scored)
    actual = sum(float(truths[j].sum()) for _, j in scored)
    missed = sum(int((truths[j] > said[k].rates[:, 2, 2] * STEP_S).sum()) for k, j in scored)
    assert health.points == 34
    assert health.wape == pytest.approx((over + under) / actual, rel=1e-5)
    assert health.bias == pytest.approx((over - under) / actual, rel=1e-5)
    assert health.coverage[0.95] == pytest.approx(1 - missed / 34)
    lasts = sum(float(np.abs(truths[k - 1] - truths[j]).sum()) for k, j in scored if k > 0)
    lasts += float(np.abs(filled_last(store) - truths[2]).sum())
    assert health.naive["last_value"] == pytest.approx(lasts / actual, rel=1e-5)
    assert last.verdict is not None
    assert last.verdict.health == log.window(now - timedelta(days=1), now)


def filled_last(store: CountingStore) -> np.ndarray:
    history = ForecastService(store).history("orders", NOW)
    assert history is not None
    return history.counts[:, -1]


def test_a_closed_gate_serves_the_naive_rung_and_goes_on_scoring(tmp_path: Path) -> None:
    models, stream, store = ModelRegistry(tmp_path), StreamId("main", "orders"), filled()
    terrible = Yesterday(factor=50.0)
    models.promote(stream, models.save(stream, terrible, _card(step_s=STEP_S)).version, NOW)
    desk = desk_with(store, models, min_points=10)
    rng = np.random.default_rng(4)
    for k in range(14):
        served = desk.forecast("orders", NOW + k * STEP, HOUR)
        tick(store, NOW + k * STEP, rng.poisson(40, 2).tolist())
    assert served.verdict is not None
    assert not served.verdict.may_act
    assert isinstance(served.candidate, Forecast)
    assert isinstance(served.result, Forecast)
    assert served.candidate.rung is Rung.OWN_MODEL
    assert served.result.rung is served.verdict.rung is not Rung.OWN_MODEL
    assert served.result.reasons[0].startswith("gate: closed since")
    assert desk.drift("orders", NOW + 14 * STEP) is None  # too few points to call it drift yet


def test_a_stream_of_three_days_may_act_though_it_has_no_last_week() -> None:
    store = filled(days=3)
    desk = desk_with(store, min_points=10)
    rng = np.random.default_rng(4)
    for k in range(30):
        served = desk.forecast("orders", NOW + k * STEP, HOUR)
        tick(store, NOW + k * STEP, rng.poisson(30, 2).tolist())
    assert served.verdict is not None and served.verdict.may_act, served.verdict
    assert served.verdict.health.naive["last_week"] is None and served.verdict.health.naive["yesterday"] is not None


def test_the_first_forecast_of_a_fresh_topic_does_not_act() -> None:
    served = desk_with(filled()).forecast("orders", NOW, HOUR)
    assert served.verdict is not None
    assert not served.verdict.may_act
    assert served.result is served.candidate
    assert "0 of 24 points are scored" in served.verdict.reasons[0]


def test_scores_that_cannot_be_kept_do_not_stop_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled()
    desk = desk_with(store)
    for k in range(6):
        desk.forecast("orders", NOW + k * STEP, HOUR)
        tick(store, NOW + k * STEP, [30, 30])

    def full(_: object) -> None:
        raise StoreRefused("out of memory")

    monkeypatch.setattr(store, "append", full)
    served = desk.forecast("orders", NOW + 6 * STEP, HOUR)
    assert isinstance(served.result, Forecast)
    assert served.problem == "scores cannot be kept: out of memory"


def test_the_recorders_own_tick_is_left_alone() -> None:
    """The newest step carries the offsets from which a recorder goes on; scores are never written into it."""
    store = filled()
    desk = desk_with(store)
    for k in range(8):
        desk.forecast("orders", NOW + k * STEP, HOUR)
        tick(store, NOW + k * STEP, [30, 30])
        before = store.meta("orders")
        desk.forecast("orders", NOW + (k + 1) * STEP, HOUR)
        after = store.meta("orders")
        assert before is not None
        assert after is not None
        assert (before.last_index, before.offsets) == (after.last_index, after.offsets)
