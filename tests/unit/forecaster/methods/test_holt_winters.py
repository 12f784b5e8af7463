"""Holt-Winters against statsmodels asked directly, against the grid, and what it refuses."""

from __future__ import annotations

import warnings
from datetime import timedelta

import numpy as np
import pytest
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from forecaster.forecast import Forecast, NoForecast
from forecaster.methods.base import LogPanel
from forecaster.methods.grid import Grid
from forecaster.methods.holt_winters import HoltWinters, season_at

from .histories import HOUR, daily, series

DAY, WEEK = 24, 168


def logs(days: int, drift: float = 0.0) -> np.ndarray:
    """Logs with a day, a week, noise and a drift over all of the time."""
    z = np.log1p(daily(days=days, rows=1, noise=0.1)[0] / 100)
    return z + np.linspace(0, drift, z.size)


def directly(z: np.ndarray, season: int, trend: str, steps: int) -> np.ndarray:
    damped = trend == "damped"
    model = ExponentialSmoothing(
        z,
        trend="add" if damped else None,
        damped_trend=damped,
        seasonal="add",
        seasonal_periods=season,
        initialization_method="heuristic",
    )
    return np.asarray(model.fit(use_brute=False).forecast(steps))


@pytest.mark.parametrize("trend", ["damped", "none"])
@pytest.mark.parametrize(("days", "season"), [(10, DAY), (35, WEEK)])
def test_the_path_is_what_statsmodels_says(trend, days, season):
    z = logs(days, drift=1.0)
    path = HoltWinters(trend).paths(LogPanel(z[None], DAY), [z.size], 3 * DAY)[0, 0]
    # statsmodels repeats the slot of the very last value as it was a season before
    others = (np.arange(path.size) + 1) % season != 0
    np.testing.assert_allclose(path[others], directly(z, season, trend, path.size)[others], rtol=1e-9)


def test_earlier_origins_know_nothing_that_came_later():
    z = logs(28)
    origins = [21 * DAY, 24 * DAY, 28 * DAY]
    before = HoltWinters().paths(LogPanel(z[None], DAY), origins, DAY)
    changed = z.copy()
    changed[24 * DAY :] = 9.0
    after = HoltWinters().paths(LogPanel(changed[None], DAY), origins, DAY)
    np.testing.assert_allclose(after[:, :2], before[:, :2], rtol=1e-9)
    np.testing.assert_allclose(
        before[0, 0, :-1], directly(z[: 21 * DAY], WEEK, "damped", DAY)[:-1], rtol=1e-9, err_msg="its own fit"
    )


def test_as_good_as_the_grid_on_a_simple_season():
    counts = daily(days=29, rows=3, noise=0.05)
    truth = counts[:, 28 * DAY :] / HOUR
    history = series(counts[:, : 28 * DAY])
    wape = {}
    for method in (HoltWinters(), HoltWinters("none"), Grid()):
        said = method.predict(history, DAY, (0.5, 0.9))
        assert isinstance(said, Forecast)
        wape[method] = np.abs(said.at_level(0.5) - truth).sum() / truth.sum()
    reference = max(wape.values())
    assert reference < 0.08 and max(wape.values()) - min(wape.values()) < 0.02


def test_quantiles_cover_what_they_say():
    counts = daily(days=40, rows=4, noise=0.2, seed=5)
    covered = []
    for day in range(35, 40):
        said = HoltWinters("none").predict(series(counts[:, : day * DAY]), DAY, (0.5, 0.9))
        covered.append((counts[:, day * DAY : (day + 1) * DAY] / HOUR <= said.at_level(0.9)).mean())
    assert abs(np.mean(covered) - 0.9) < 0.05


def test_d3_two_days_are_needed_and_the_reason_says_from_when_on():
    history = series(daily(days=2, rows=1)[:, :-1])
    result = HoltWinters().predict(history, DAY)
    assert isinstance(result, NoForecast) and "needs 2 d of history" in result.reason
    assert result.possible_from == history.start + timedelta(days=2)
    assert isinstance(HoltWinters().predict(series(daily(days=2, rows=1)), DAY), Forecast)


def test_d13_a_fit_that_is_no_number_is_rejected_with_the_reason(monkeypatch):
    class Broken:
        def __init__(self, values, **options):
            self.size, self.season = values.size, options["seasonal_periods"]
            self.level = self.trend = np.full(values.size, np.nan)
            self.params = {"damping_trend": 0.9}

        def fit(self, **options):
            self.season = np.full(self.size, np.nan)
            return self

    monkeypatch.setattr("forecaster.methods.holt_winters.ExponentialSmoothing", Broken)
    result = HoltWinters().predict(series(daily(days=10, rows=2)), DAY)
    assert isinstance(result, NoForecast) and "not finite" in result.reason


def test_d13_an_error_of_the_fit_is_a_reason_too(monkeypatch):
    def broken(*args, **options):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr("forecaster.methods.holt_winters.ExponentialSmoothing", broken)
    result = HoltWinters().predict(series(daily(days=10, rows=1)), DAY)
    assert isinstance(result, NoForecast) and "not finite" in result.reason


def test_d14_zeros_between_bursts_stay_within_the_history():
    counts = np.zeros((1, 21 * DAY))
    counts[0, ::37] = 50.0
    said = HoltWinters().predict(series(counts), 2 * DAY, (0.5, 0.99))
    assert isinstance(said, Forecast) and said.rates.max() <= 4 * 50 / HOUR


def test_warnings_of_the_optimiser_stay_inside(monkeypatch):
    fit = ExponentialSmoothing.fit

    def noisy(self, **options):
        warnings.warn("stopped early", ConvergenceWarning, stacklevel=1)
        return fit(self, **options)

    monkeypatch.setattr(ExponentialSmoothing, "fit", noisy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert isinstance(HoltWinters().predict(series(daily(days=10, rows=1)), DAY), Forecast)
    assert not caught


def test_the_season_is_what_the_age_allows():
    assert [season_at(age, 24) for age in (47, 48, 335, 336)] == [None, DAY, DAY, WEEK]
    assert [season_at(age, 1) for age in (15, 16)] == [None, 7]  # daily steps have no season of a day
    assert season_at(10**6, 1) == 7
