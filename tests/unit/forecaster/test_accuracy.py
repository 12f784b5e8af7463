"""Figures against independent oracles: scikit-learn's losses, plain loops, hand-counted cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import mean_absolute_error, mean_pinball_loss

from forecaster.accuracy import mean_scores, pinball_loss, seasonal_scales, tally

LEVELS = (0.5, 0.9, 0.99)
amounts = st.floats(0, 1e6, allow_nan=False, width=32)


def some_case(seed: int, rows: int = 3, steps: int = 20, hidden: float = 0.2):
    rng = np.random.default_rng(seed)
    actual = rng.gamma(1.0, 50.0, (rows, steps)).round()
    known = rng.random((rows, steps)) >= hidden
    quantiles = np.sort(rng.gamma(1.0, 50.0, (rows, steps, len(LEVELS))), axis=-1)
    scale = rng.uniform(1.0, 30.0, rows)
    return actual, known, quantiles, scale


@pytest.mark.parametrize("seed", range(5))
def test_figures_equal_scikit_learn_and_plain_loops(seed: int) -> None:
    actual, known, quantiles, scale = some_case(seed)
    scores = tally(actual, known, quantiles, LEVELS, scale).regrouped(np.repeat(np.arange(3), 20), 3).scores()
    for i, got in enumerate(scores):
        y, f = actual[i][known[i]], quantiles[i][known[i]]
        assert got.points == len(y)
        assert got.mase == pytest.approx(mean_absolute_error(y, f[:, 0]) / scale[i])
        assert got.wape == pytest.approx(sum(abs(a - b) for a, b in zip(y, f[:, 0], strict=True)) / sum(y))
        terms = [0.0 if a + b == 0 else 200 * abs(a - b) / (a + b) for a, b in zip(y, f[:, 0], strict=True)]
        assert got.smape == pytest.approx(sum(terms) / len(terms))
        for q, level in enumerate(LEVELS):
            loss = mean_pinball_loss(y, f[:, q], alpha=level)
            assert got.pinball[level] == pytest.approx(loss)
            assert got.scaled_pinball[level] == pytest.approx(loss / scale[i])
            assert got.coverage[level] == pytest.approx(np.mean(y <= f[:, q]))


def test_unknown_actuals_change_nothing() -> None:
    actual, known, quantiles, scale = some_case(1)
    wild = np.where(known, actual, 1e12)
    rows = np.repeat(np.arange(3), 20)
    a = tally(actual, known, quantiles, LEVELS, scale).regrouped(rows, 3).scores()
    b = tally(wild, known, quantiles, LEVELS, scale).regrouped(rows, 3).scores()
    assert a == b


def test_what_does_not_exist_is_none() -> None:
    zero = np.zeros((2, 4))
    known = np.array([[True] * 4, [False] * 4])
    nothing, unseen = (
        tally(zero, known, np.zeros((2, 4, 1)), (0.5,), np.array([0.0, np.nan])).regrouped([0] * 4 + [1] * 4, 2)
    ).scores()
    assert (nothing.mase, nothing.wape, nothing.smape) == (None, None, 0.0)
    assert nothing.coverage == {0.5: 1.0}
    assert (unseen.mase, unseen.wape, unseen.smape, unseen.points) == (None, None, None, 0)
    assert unseen.coverage == {0.5: None}
    both = mean_scores([nothing, unseen])
    assert (both.smape, both.coverage, both.points) == (0.0, {0.5: 1.0}, 4)


def test_the_median_is_required() -> None:
    with pytest.raises(ValueError, match="must hold"):
        tally(np.ones((1, 1)), np.ones((1, 1), dtype=bool), np.ones((1, 1, 1)), (0.9,), np.ones(1))


def test_tallies_add_up_to_the_whole() -> None:
    actual, known, quantiles, scale = some_case(7, steps=24)
    rows = np.repeat(np.arange(3), 24)
    whole = tally(actual, known, quantiles, LEVELS, scale).regrouped(rows, 3).scores()
    halves = [
        tally(actual[:, cut], known[:, cut], quantiles[:, cut], LEVELS, scale).regrouped(np.repeat(np.arange(3), 12), 3)
        for cut in (slice(0, 12), slice(12, 24))
    ]
    for a, b in zip(whole, (halves[0] + halves[1]).scores(), strict=True):
        assert a.mase == pytest.approx(b.mase)
        assert a.coverage == pytest.approx(b.coverage)
    with pytest.raises(ValueError, match="cannot be added"):
        _ = halves[0] + tally(actual, known, quantiles, LEVELS, scale)


@pytest.mark.parametrize("season", [1, 3, 24])
def test_scale_is_the_mean_seasonal_difference_of_the_past_alone(season: int) -> None:
    rng = np.random.default_rng(season)
    y = rng.poisson(9, (2, 60)).astype(float)
    known = rng.random((2, 60)) > 0.3
    ends = [1, season, season + 1, 40, 60]
    got = seasonal_scales(y, known, season, ends)
    for i in range(2):
        for j, end in enumerate(ends):
            pairs = [
                abs(y[i, t] - y[i, t - season]) for t in range(season, end) if known[i, t] and known[i, t - season]
            ]
            expected = np.mean(pairs) if pairs else np.nan
            assert got[i, j] == pytest.approx(expected, nan_ok=True)
    later = y.copy()
    later[:, 40:] += 1000
    np.testing.assert_array_equal(seasonal_scales(later, known, season, ends)[:, :4], got[:, :4])


def test_scale_of_a_history_shorter_than_a_season_is_absent() -> None:
    assert np.isnan(seasonal_scales(np.ones((1, 5)), np.ones((1, 5), dtype=bool), 24, [5])).all()


@given(arrays(np.float64, 6, elements=amounts), st.floats(0.01, 0.99))
def test_no_constant_beats_the_empirical_quantile(y: np.ndarray, level: float) -> None:
    best = np.quantile(y, level, method="inverted_cdf")
    at_best = pinball_loss(y, best, np.array(level)).mean()
    for other in y:
        assert at_best <= pinball_loss(y, other, np.array(level)).mean() + 1e-6 * (1 + at_best)
