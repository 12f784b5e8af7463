"""The blend: covers after a change, answers beyond what it learned, looks at nothing after an origin."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import Forecast
from forecaster.methods.base import LogPanel
from forecaster.methods.blend import median_of
from forecaster.methods.boosting import Boosting
from forecaster.methods.grid import Grid
from forecaster.methods.kernel_ridge import KernelRidge
from forecaster.methods.seasonal_naive import SeasonalNaive
from forecaster.methods.trained_blend import TrainedBlend

from .histories import daily, series

DAY = 24


def small_blend() -> TrainedBlend:
    return TrainedBlend((SeasonalNaive("day"), SeasonalNaive("week"), Grid(), Boosting(iterations=20)))


@pytest.fixture(scope="module")
def fitted() -> TrainedBlend:
    return small_blend().fit([series(daily(days=28, rows=2, noise=0.1))])


@pytest.mark.parametrize("members", [1, 2, 3, 4, 5])
def test_the_median_is_of_those_that_know(members):
    random = np.random.default_rng(members)
    paths = random.normal(size=(members, 50))
    paths[1:][random.random((members - 1, 50)) < 0.3] = np.nan
    np.testing.assert_allclose(median_of(list(paths)), np.nanmedian(paths, axis=0))


def test_a_week_ahead_is_answered_after_days_without_training(fitted):
    later = series(daily(days=33, rows=2, noise=0.1))
    said = fitted.predict(later, 7 * DAY, (0.5, 0.9))
    assert isinstance(said, Forecast) and said.rates.shape == (2, 7 * DAY, 2)
    assert np.isfinite(said.rates).all()


def test_quantiles_cover_again_after_the_noise_has_grown(fitted):
    counts = np.concatenate([daily(days=28, rows=2, noise=0.1), daily(days=14, rows=2, noise=0.5, seed=9)], axis=1)
    whole = series(counts)
    hit = []
    for day in range(7, 14):
        origin = whole.first_index + (28 + day) * DAY
        said = fitted.predict(whole.between(whole.first_index, origin), DAY, (0.5, 0.9))
        hit.append(whole.between(origin, origin + DAY).rates() <= said.at_level(0.9))
    assert np.mean(hit) > 0.84


@pytest.mark.parametrize("member", [SeasonalNaive("day"), SeasonalNaive("week"), Boosting(), KernelRidge(features=100)])
def test_a_path_depends_on_nothing_after_its_origin(member):
    logs = np.log1p(daily(days=35, rows=4, noise=0.1))
    if hasattr(member, "fit_panels"):
        member = member.fit_panels([LogPanel(logs, DAY)])
    origin = 28 * DAY + 5
    changed = logs.copy()
    changed[:, origin:] = 50.0
    np.testing.assert_array_equal(
        member.paths(LogPanel(logs, DAY), [origin], DAY), member.paths(LogPanel(changed, DAY), [origin], DAY)
    )


def test_a_mute_member_is_left_out():
    class Mute(SeasonalNaive):
        def paths(self, panel, origins, horizon):
            return np.full((panel.logs.shape[0], len(origins), horizon), np.nan)

    history = series(daily(days=28, rows=1, noise=0.05))
    said = TrainedBlend((SeasonalNaive("day"), Mute("week"))).fit([history]).predict(history, DAY, (0.5, 0.9))
    assert isinstance(said, Forecast) and np.isfinite(said.rates).all()
