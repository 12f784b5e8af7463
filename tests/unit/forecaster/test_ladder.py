"""The ladder answers from the best rung that can, and says why the better ones could not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.ladder import ORDER, Ladder
from forecaster.methods.base import Method
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from tests.unit.forecaster.naive_oracle import Yesterday


@dataclass
class Broken(Yesterday):
    name: str = "broken"

    def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = (0.5,)) -> ForecastResult:
        raise FloatingPointError("overflow")


@dataclass
class NotFinite(Yesterday):
    """statsmodels#6243: NaN without an error; the value type refuses it, and the ladder steps down."""

    name: str = "not_finite"

    def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = (0.5,)) -> ForecastResult:
        rates = np.full((len(history.partitions), horizon_steps, len(levels)), np.nan)
        return Forecast(
            history.topic, history.end, history.grid.step, history.partitions, tuple(levels), rates, rates[0], "x",
            Rung.OWN_MODEL,
        )  # fmt: skip


def history(hours: int, rows: int = 2, step_s: int = 3600) -> ArrivalSeries:
    rng = np.random.default_rng(hours)
    steps = hours * 3600 // step_s
    counts = rng.poisson(40, (rows, steps)).astype(float)
    return ArrivalSeries("orders", TimeGrid(step_s), 0, tuple(range(rows)), counts, np.full((rows, steps), True))


def test_the_own_model_answers_when_it_can() -> None:
    result = Ladder(Yesterday(), Yesterday(name="shipped")).predict(history(49), 24)
    assert isinstance(result, Forecast)
    assert (result.rung, result.method) == (Rung.OWN_MODEL, "yesterday")
    assert result.reasons == ("fitted to None",)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (None, "none is trained for this stream"),
        (Yesterday(need=9), "49 of 216 steps"),
        (Broken(), "broken failed: FloatingPointError: overflow"),
        (NotFinite(), "not_finite failed: ValueError: a forecast must be finite and not negative"),
    ],
)
def test_d13_what_fails_or_answers_nonsense_is_passed_over_with_its_reason(own: Method | None, why: str) -> None:
    result = Ladder(own, Yesterday(name="shipped")).predict(history(49), 24)
    assert isinstance(result, Forecast)
    assert (result.rung, result.method) == (Rung.ZERO_SHOT, "shipped")
    assert result.reasons[0] == f"own_model: {why}"


@pytest.mark.parametrize(
    ("hours", "rung"), [(504, Rung.GRID_STATE), (192, Rung.GRID_STATE), (30, Rung.GRID_STATE), (5, Rung.LAST_VALUE)]
)  # fmt: skip
def test_d3_a_short_history_degrades_and_never_raises(hours: int, rung: Rung) -> None:
    result = Ladder().predict(history(hours), 24)
    assert isinstance(result, Forecast)
    assert result.rung == rung
    assert result.rates.shape == (2, 24, 4)


def test_d2_no_history_is_a_reason_and_an_instant_not_an_exception() -> None:
    result = Ladder().predict(history(0), 24)
    assert isinstance(result, NoForecast)
    assert "no recorded step yet" in result.reason
    assert result.possible_from is not None
    assert result.possible_from > result.origin


def test_a_demoted_stream_starts_lower_and_each_rung_says_why() -> None:
    result = Ladder(Yesterday(), start=Rung.LAST_WEEK).predict(history(24 * 9), 24)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.LAST_WEEK
    passed = Ladder(Yesterday(), passed_over={Rung.OWN_MODEL: "damaged"}).predict(history(24 * 9), 24)
    assert isinstance(passed, Forecast)
    assert passed.reasons[0] == "own_model: damaged"


def test_a_silent_recorder_is_named_and_recent_features_are_not_trusted() -> None:
    fresh = history(24 * 9)
    known = fresh.known.copy()
    known[:, -5:] = False
    result = Ladder(Yesterday()).predict(replace(fresh, known=known, counts=np.where(known, fresh.counts, 0)), 24)
    assert isinstance(result, Forecast)
    assert result.rung is Rung.LAST_WEEK
    assert "nothing was recorded since 1970-01-09 19:00 UTC" in result.reasons[0]
    low = Ladder(start=Rung.LAST_VALUE).predict(
        replace(fresh, known=known, counts=np.where(known, fresh.counts, 0)), 24
    )
    assert isinstance(low, Forecast)
    assert "nothing was recorded since 1970-01-09 19:00 UTC" in low.reasons


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 80),
    st.sampled_from(["zeros", "constant", "spike", "huge", "step", "gaps", "late birth"]),
    st.sampled_from(ORDER),
)
def test_whatever_was_recorded_the_answer_is_finite_or_a_reason(hours: int, shape: str, start: Rung) -> None:
    base = history(hours)
    counts, known = base.counts.copy(), base.known.copy()
    if shape == "zeros":
        counts[:] = 0
    elif shape == "constant":
        counts[:] = 7
    elif shape == "spike" and hours:
        counts[:] = 0
        counts[:, hours // 2] = 1e6
    elif shape == "huge":
        counts *= 1e12
    elif shape == "step":
        counts[:, hours // 2 :] *= 1000
    elif shape == "gaps":
        known[:, ::2] = False
        known[:, -30:] = False
    elif shape == "late birth":
        known[0, : hours // 2] = False
    series = replace(base, counts=np.where(known, counts, 0), known=known)
    result = Ladder(start=start).predict(series, 36)
    if isinstance(result, NoForecast):
        assert result.reason
        return
    assert np.isfinite(result.rates).all()
    assert result.rates.max() <= 4.0 * series.rates().max() + 1e-9
    assert result.reasons if result.rung is not Rung.OWN_MODEL else True
