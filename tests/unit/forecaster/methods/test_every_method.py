"""Checks that every forecasting method must pass, whatever it is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from forecaster.forecast import Forecast, NoForecast
from forecaster.intervals import HISTORY_MULTIPLE
from forecaster.methods.base import Method
from forecaster.methods.catalogue import METHODS, make_method

from .histories import HARD_CASES, HOUR, daily, series

LEVELS = (0.1, 0.5, 0.9, 0.95, 0.99)
HORIZON = 24


@pytest.fixture(scope="module", params=sorted(set(METHODS) - {"short_lead", "own"}))
def method(request) -> Method:
    return make_method(request.param).fit([series(daily(days=28, rows=4, seed=9))])


@pytest.mark.parametrize("case", sorted(HARD_CASES))
def test_a_hard_history_gives_a_bounded_forecast_or_a_reason(method, case):
    history = series(HARD_CASES[case])
    result = method.predict(history, HORIZON, LEVELS)
    if isinstance(result, NoForecast):
        assert result.reason
        assert result.possible_from is None or result.possible_from > result.origin
        return
    assert np.isfinite(result.rates).all() and (result.rates >= 0).all()
    assert (np.diff(result.rates, axis=-1) >= -1e-9 * (1 + result.rates[..., 1:])).all()
    assert result.origin == history.end and result.steps == HORIZON
    top = history.counts.max(axis=1)[list(result.partitions)] / HOUR
    assert (result.rates <= HISTORY_MULTIPLE * top[:, None, None] * (1 + 1e-9)).all()
    assert (np.diff(result.total, axis=-1) >= -1e-9 * (1 + result.total[..., 1:])).all()


def test_d3_a_history_that_is_too_short_says_from_when_on(method):
    history = series(HARD_CASES["one_step"])
    result = method.predict(history, HORIZON)
    if method.name == "last_value":
        assert isinstance(result, Forecast)
        return
    assert isinstance(result, NoForecast)
    assert result.possible_from is not None and result.possible_from > history.end


def test_nothing_recorded_is_a_reason_and_not_an_error(method):
    nothing = series(np.full((2, 48), np.nan))
    result = method.predict(nothing, HORIZON)
    assert isinstance(result, NoForecast) and "no recorded step" in result.reason


def test_a_constant_stays_constant(method):
    result = method.predict(series(np.full((1, 21 * 24), 36.0)), HORIZON, (0.5, 0.9))
    assert isinstance(result, Forecast)
    np.testing.assert_allclose(result.at_level(0.5), 0.01, rtol=0.02)
    assert (result.at_level(0.9) <= 0.01 * 1.5).all()


def test_zeros_stay_zero(method):
    result = method.predict(series(np.zeros((2, 21 * 24))), HORIZON, (0.5, 0.9))
    assert isinstance(result, Forecast)
    assert (result.rates == 0).all()


def test_no_leakage_values_after_the_origin_change_nothing(method):
    counts = daily(days=22, rows=2)
    origin = series(counts[:, : 21 * 24]).end
    changed = counts.copy()
    changed[:, 21 * 24 :] = 1e9
    a = method.predict(series(counts).until(origin), HORIZON)
    b = method.predict(series(changed).until(origin), HORIZON)
    np.testing.assert_array_equal(a.rates, b.rates)


def test_the_same_question_gets_the_same_answer(method):
    history = series(daily(rows=2))
    np.testing.assert_array_equal(method.predict(history, HORIZON).rates, method.predict(history, HORIZON).rates)


def test_rows_do_not_disturb_each_other(method):
    """Without reconciliation's common factor each partition keeps its own shape."""
    counts = daily(rows=1)
    alone = method.predict(series(counts), HORIZON, (0.5,)).rates[0, :, 0]
    beside = method.predict(series(np.vstack([counts, counts])), HORIZON, (0.5,)).rates[0, :, 0]
    np.testing.assert_allclose(alone, beside, rtol=0.02)


def test_partition_medians_add_up_to_the_topic(method):
    result = method.predict(series(daily(rows=5)), HORIZON, (0.5, 0.9))
    np.testing.assert_allclose(result.at_level(0.5).sum(axis=0), result.total[:, 0], rtol=1e-6)
    assert (result.total[:, 1] <= result.at_level(0.9).sum(axis=0) * (1 + 1e-9)).all()


def test_scale_does_not_matter(method):
    counts = daily(rows=2)
    small = method.predict(series(counts), HORIZON).rates
    large = method.predict(series(counts * 1000), HORIZON).rates
    np.testing.assert_allclose(large, small * 1000, rtol=1e-3)


def test_a_regular_day_is_forecast_well(method):
    if method.name == "last_value":
        return
    counts = daily(days=29, rows=3, noise=0.02)
    result = method.predict(series(counts[:, : 28 * 24]), HORIZON, (0.5,))
    truth = counts[:, 28 * 24 :] / HOUR
    wape = np.abs(result.at_level(0.5) - truth).sum() / truth.sum()
    assert wape < (0.9 if method.name in {"yesterday"} else 0.1)  # day 28 is a Monday: yesterday was a Sunday


def test_levels_may_be_asked_without_the_median(method):
    result = method.predict(series(daily(rows=2)), HORIZON, (0.9, 0.99))
    assert result.levels == (0.9, 0.99) and result.rates.shape == (2, HORIZON, 2)


@pytest.mark.parametrize("levels", [(), (0.9, 0.5), (0.5, 0.5), (0.0, 0.5), (0.5, 1.0)])
def test_wrong_levels_are_refused(method, levels):
    with pytest.raises(ValueError, match="levels"):
        method.predict(series(daily(rows=1)), HORIZON, levels)


def test_wrong_horizon_is_refused(method):
    with pytest.raises(ValueError, match="horizon_steps"):
        method.predict(series(daily(rows=1)), 0)


def test_methods_can_be_cloned(method):
    assert clone(method).get_params(deep=False).keys() == method.get_params(deep=False).keys()


@pytest.mark.parametrize("step_s", [300, 1800])
def test_fine_steps_work_too(method, step_s):
    counts = daily(days=15, rows=2, step_s=step_s, noise=0.1)
    result = method.predict(series(counts, step_s=step_s), 86_400 // step_s)
    assert isinstance(result, Forecast) and result.steps == 86_400 // step_s


def test_d9_seasons_follow_the_wall_clock_across_both_changes(method):
    """A peak at 09:00 in Berlin stays at 09:00 in Berlin after the clocks change."""
    from forecaster.timegrid import TimeGrid

    if method.name == "last_value":
        return
    grid = TimeGrid(HOUR, "Europe/Berlin")
    from datetime import UTC, datetime

    for change in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        first = grid.index_of(change) - 21 * 24
        slots = grid.day_slots(first, 24 * 23)
        truth = np.where(slots == 9, 1000.0, 100.0)[None]
        history = series(truth[:, : 21 * 24 + 5], timezone="Europe/Berlin", first=first)
        result = clone(method).fit([history]).predict(history, 36, (0.5,))
        said = result.at_level(0.5)[0]
        peak = truth[0, 21 * 24 + 5 :][:36] == 1000.0
        assert said[peak].min() > 1.5 * said[~peak].max()
