"""A recorded topic is forecast from its store and its artefact, and every step down is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from forecaster.calendar import Calendar
from forecaster.errors import StoreUnavailable
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.registry import ModelRegistry
from forecaster.serving import ForecastService
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import StreamId
from tests.unit.forecaster.naive_oracle import Yesterday
from tests.unit.forecaster.test_registry import card

STEP_S = 300
NOW = datetime(2026, 1, 20, 9, tzinfo=UTC)
KEY = SeriesKey("orders", "arrivals", step_s=STEP_S)
DAY = timedelta(days=1)


class CountingStore(MemorySeriesStore):
    """Counts the steps that are read, and can be made silent."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: NOW + 10 * DAY)
        self.steps_read = 0
        self.silent = False

    def meta(self, topic: str):
        if self.silent:
            raise StoreUnavailable("connection refused")
        return super().meta(topic)

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        self.steps_read += end_index - first_index
        return super().read(key, first_index, end_index)


def index(at: datetime) -> int:
    return int(at.timestamp()) // STEP_S


def filled(days: int = 15, rows: int = 2) -> CountingStore:
    store = CountingStore()
    first, end = index(NOW) - days * 288, index(NOW)
    values = np.random.default_rng(1).poisson(30, (rows, end - first))
    store.backfill(KEY, Cells(first, values, np.full(values.shape, True)))
    return store


def tick(store: CountingStore, at: datetime, values: list[int]) -> None:
    column = (np.array(values), np.full(len(values), True))
    store.append([Tick("orders", STEP_S, index(at), {KEY: column}, offsets={"0": str(index(at))})])


def test_a_recorded_topic_is_forecast_from_now() -> None:
    service = ForecastService(filled())
    result = service.forecast("orders", NOW + timedelta(seconds=17), timedelta(hours=1), (0.5, 0.9))
    assert isinstance(result, Forecast)
    assert (result.origin, result.steps, result.partitions) == (NOW, 12, (0, 1))
    assert result.rung is Rung.GRID_STATE
    assert "own_model: none is trained for this stream" in result.reasons


def test_an_unknown_topic_is_a_reason() -> None:
    result = ForecastService(CountingStore()).forecast("nowhere", NOW, DAY)
    assert isinstance(result, NoForecast)
    assert "never recorded" in result.reason


def test_only_what_is_new_is_read_again_and_the_answer_is_the_same_as_from_the_start() -> None:
    store = filled()
    service = ForecastService(store)
    service.forecast("orders", NOW, DAY)
    whole = store.steps_read
    for k in range(3):
        at = NOW + k * timedelta(seconds=STEP_S)
        tick(store, at, [100 + k, 7])
    later = NOW + 3 * timedelta(seconds=STEP_S)
    store.steps_read = 0
    warm = service.forecast("orders", later, DAY)
    assert store.steps_read <= 30 < whole
    cold = ForecastService(store).forecast("orders", later, DAY)
    assert isinstance(warm, Forecast)
    assert isinstance(cold, Forecast)
    np.testing.assert_array_equal(warm.rates, cold.rates)
    assert warm.origin == cold.origin == later


def test_late_ticks_and_backfills_are_seen() -> None:
    store = filled()
    service = ForecastService(store)
    tick(store, NOW + timedelta(seconds=STEP_S), [50, 50])
    later = NOW + timedelta(seconds=2 * STEP_S)
    before = service.history("orders", later)
    tick(store, NOW, [40, 40])
    after = service.history("orders", later)
    assert before is not None
    assert after is not None
    assert before.known[:, -2].tolist() == [False, False]
    assert after.counts[:, -2].tolist() == [40, 40]
    old = index(NOW - 10 * DAY)
    store.backfill(KEY, Cells(old, np.full((2, 1), 999), np.full((2, 1), True)))
    reloaded = service.history("orders", NOW + timedelta(hours=7))
    assert reloaded is not None
    assert reloaded.counts[0, old - reloaded.first_index] == 999


def test_a_partition_that_appears_is_forecast_with_the_others() -> None:
    store = filled()
    service = ForecastService(store)
    service.forecast("orders", NOW, DAY)
    tick(store, NOW, [10, 10, 10])
    result = service.forecast("orders", NOW + timedelta(seconds=STEP_S), DAY)
    assert isinstance(result, Forecast)
    assert result.partitions == (0, 1, 2)


def test_d17_a_holiday_that_is_over_is_not_taken_as_a_pattern() -> None:
    store = filled()
    holiday = index(datetime(2026, 1, 19, tzinfo=UTC))  # Martin Luther King Day, the day before the origin
    store.backfill(KEY, Cells(holiday, np.full((2, 288), 1), np.full((2, 288), True)))
    plain = ForecastService(store).forecast("orders", NOW, DAY)
    aware = ForecastService(store, calendar_of=lambda _: Calendar("US")).forecast("orders", NOW, DAY)
    assert isinstance(plain, Forecast) and isinstance(aware, Forecast)
    assert aware.total[:, 0].mean() > plain.total[:, 0].mean() * 1.05
    assert abs(aware.total[:, 0].mean() * STEP_S - 60) < 6
    assert any("holidays" in reason for reason in aware.reasons) and not any("holidays" in r for r in plain.reasons)


def test_the_future_is_not_looked_at() -> None:
    store = filled()
    now = NOW - DAY
    before = ForecastService(store).forecast("orders", now, DAY)
    values = np.full((2, 288), 10_000)
    store.backfill(KEY, Cells(index(now), values, np.full(values.shape, True)))
    after = ForecastService(store).forecast("orders", now, DAY)
    assert isinstance(before, Forecast)
    assert isinstance(after, Forecast)
    np.testing.assert_array_equal(before.rates, after.rates)


def test_a_silent_store_leaves_a_forecast_with_its_age_or_says_so() -> None:
    store = filled()
    service = ForecastService(store)
    service.forecast("orders", NOW, DAY)
    store.silent = True
    later = NOW + timedelta(minutes=20)
    result = service.forecast("orders", later, DAY)
    assert isinstance(result, Forecast)
    assert result.origin == later
    assert result.reasons[0].startswith("the store does not answer (connection refused); what was read at 09:00:00")
    with pytest.raises(StoreUnavailable):
        ForecastService(store).forecast("orders", later, DAY)


def test_promotion_and_rollback_are_seen_at_once(tmp_path: Path) -> None:
    models, stream = ModelRegistry(tmp_path), StreamId("main", "orders")
    service = ForecastService(filled(), models)

    def rung_and_reason() -> tuple[Rung, str]:
        result = service.forecast("orders", NOW, DAY)
        assert isinstance(result, Forecast)
        return result.rung, " ".join(result.reasons)

    assert rung_and_reason()[0] is Rung.GRID_STATE
    own = {"step_s": STEP_S}
    first = models.save(stream, Yesterday(fitted_to=1), _card(**own)).version
    models.promote(stream, first, NOW)
    assert rung_and_reason() == (Rung.OWN_MODEL, "fitted to 1")
    second = models.save(stream, Yesterday(fitted_to=2), _card(**own)).version
    models.promote(stream, second, NOW)
    assert rung_and_reason() == (Rung.OWN_MODEL, "fitted to 2")
    assert service.card("orders")["version"] == second  # type: ignore[index]
    models.rollback(stream, NOW)
    assert rung_and_reason() == (Rung.OWN_MODEL, "fitted to 1")
    (models.folder(stream) / second / "forecaster.joblib").write_bytes(b"junk")
    models._set(stream, [second], NOW)
    rung, reasons = rung_and_reason()
    assert rung is Rung.GRID_STATE
    assert "SHA-256 differs" in reasons


def test_a_model_of_another_step_is_passed_over(tmp_path: Path) -> None:
    models, stream = ModelRegistry(tmp_path), StreamId("main", "orders")
    models.promote(stream, models.save(stream, Yesterday(), _card(step_s=60)).version, NOW)
    result = ForecastService(filled(), models).forecast("orders", NOW, DAY)
    assert isinstance(result, Forecast)
    assert "own_model: trained on steps of 60 s, recorded are 300 s; run headway train" in result.reasons


def test_a_very_wide_topic_keeps_fewer_days_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forecaster.serving.MAX_CELLS", 2 * 2016 * 2)
    result = ForecastService(filled(days=20)).forecast("orders", NOW, DAY)
    assert isinstance(result, Forecast)
    assert result.reasons[0] == "2 partitions at steps of 300 s: the last 14 days are looked at"


def _card(**changes: int):
    from dataclasses import replace

    return replace(card(NOW), **changes)
