"""A packed forecast is the forecast to a hundred-thousandth of each partition's highest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.packed import KeptForecasts, PackedForecast

AT, MINUTE, LEVELS = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1), (0.1, 0.5, 0.95)


def forecast(rates: np.ndarray) -> Forecast:
    rows = tuple(range(rates.shape[0]))
    return Forecast("orders", AT, MINUTE, rows, LEVELS, rates, rates.sum(axis=0), "blend", Rung.OWN_MODEL, ("why",))


@given(arrays(np.float64, (3, 5, 3), elements=st.floats(0, 1e9)))
def test_a_packed_forecast_is_sound_and_near(rates: np.ndarray) -> None:
    said = forecast(np.sort(rates, axis=2))
    packed = PackedForecast.of(said)
    whole = packed.whole()  # checks that quantiles rise and are finite
    highest = said.rates.max(axis=(1, 2), keepdims=True)
    assert (np.abs(whole.rates - said.rates) <= highest / 131_069 + 1e-190).all()
    np.testing.assert_array_equal(whole.total, said.total)
    assert (whole.partitions, whole.levels, whole.reasons, whole.origin) == ((0, 1, 2), LEVELS, ("why",), AT)
    assert (packed.totals.partitions, packed.totals.steps) == ((), 5)


def test_memory_of_a_kept_forecast_is_less_than_a_quarter() -> None:
    middle = np.random.default_rng(0).poisson(80.0, (64, 1440, 1)) / 60
    said = forecast(middle * np.array([0.85, 1.0, 1.2]))  # as from a history of pure noise
    packed = PackedForecast.of(said)
    assert len(packed.numbers) < said.rates.nbytes / 4


def test_kept_forecasts_are_a_mapping_that_tells_totals_apart() -> None:
    kept, said = KeptForecasts(), forecast(np.ones((2, 4, 3)))
    kept["orders"], kept["bills"] = said, NoForecast("bills", AT, "no history yet")
    assert list(kept) == ["orders", "bills"]
    found, totals = kept["orders"], kept.totals("orders")
    assert isinstance(found, Forecast)
    assert isinstance(totals, Forecast)
    assert (found.partitions, totals.partitions) == ((0, 1), ())
    assert kept.totals("bills") is kept["bills"]
    del kept["orders"]
    assert (len(kept), kept.get("orders"), kept.totals("orders")) == (1, None, None)
