"""The blend: covers after a change, answers beyond what it learned, looks at nothing after an origin."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import Forecast
from forecaster.intervals import HISTORY_MULTIPLE
from forecaster.methods.base import LogPanel
from forecaster.methods.blend import median_of
from forecaster.methods.boosting import Boosting
from forecaster.methods.grid import Grid
from forecaster.methods.kernel_ridge import KernelRidge
from forecaster.methods.pretrained import Pretrained
from forecaster.methods.seasonal_naive import SeasonalNaive
from forecaster.methods.trained_blend import TrainedBlend

from .histories import HARD_CASES, daily, series

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


@pytest.mark.parametrize(
    "case",
    [
        "constant",
        "zeros",
        "one_spike",
        "week_of_gaps",
        "week_of_gaps_at_the_end",
        "counts_of_1e12",
        "never_seen_partition",
    ],
)
def test_what_was_learned_from_a_hard_history_is_finite_and_bounded(case):
    history = series(HARD_CASES[case])
    said = TrainedBlend((SeasonalNaive("day"), Boosting(iterations=10), KernelRidge(features=50))).fit([history])
    result = said.predict(history, DAY, (0.5, 0.9, 0.99))
    assert isinstance(result, Forecast)
    assert np.isfinite(result.rates).all() and (result.rates >= 0).all()
    top = history.counts.max(axis=1)[list(result.partitions)] / 3600
    assert (result.rates <= HISTORY_MULTIPLE * top[:, None, None] * (1 + 1e-9)).all()


def test_errors_on_learned_days_are_enlarged_where_they_are_too_few_for_a_spread():
    """A single stream of hours: what a member reproduces by heart says nothing about the days to come."""

    class ByHeart(SeasonalNaive):
        def fit_panels(self, panels):
            self.known_ = panels[0].logs
            return self

        def paths(self, panel, origins, horizon):
            drawn = super().paths(panel, origins, horizon)
            for k, origin in enumerate(origins):
                learned = self.known_[:, origin : origin + horizon]
                drawn[:, k, : learned.shape[1]] += 0.5 * (learned - drawn[:, k, : learned.shape[1]])
            return drawn

    noisy = series(daily(days=42, rows=1, noise=0.4))
    learned = noisy.between(noisy.first_index, noisy.end_index - 7 * DAY)
    method = TrainedBlend((ByHeart("day"),)).fit([learned])
    assert method.spread_ is None and method.optimism_ == 1.5
    hits = []
    for origin in range(learned.end_index, noisy.end_index, DAY):
        said = method.predict(noisy.between(noisy.first_index, origin), DAY, (0.5, 0.9))
        hits.append(noisy.between(origin, origin + DAY).counts[0] / 3600 <= said.at_level(0.9)[0])
    assert np.mean(hits) > 0.8


def test_few_partitions_ask_the_shipped_trees_and_many_do_not():
    few, many = (Pretrained().fit_panels([LogPanel(np.ones((rows, 21 * DAY)), DAY)]) for rows in (9, 10))
    panel = LogPanel(np.log1p(daily(days=21, rows=2)), DAY)
    assert np.isfinite(few.paths(panel, [21 * DAY], DAY)).all()
    assert np.isnan(many.paths(panel, [21 * DAY], DAY)).all()
    half_hours = LogPanel(np.ones((1, 21 * 48)), 48)
    assert np.isnan(few.paths(half_hours, [21 * 48], 48)).all()
