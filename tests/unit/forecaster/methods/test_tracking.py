"""Online correction: the long-run coverage is right whatever the errors do, and nothing else moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forecaster.methods.tracking import GAIN, track

LEVELS = (0.1, 0.5, 0.9, 0.95)
START = np.array([-1.0, 0.0, 1.0, 1.2])


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_coverage_returns_after_errors_have_grown_fourfold(level):
    random = np.random.default_rng(1)
    scores = np.concatenate([random.normal(size=800), 4 * random.normal(size=2400)]).reshape(400, 8)
    threshold, hits = np.array([0.0, 1.0]), []
    for stretch in scores:  # carried on; replayed from the beginning it is the same
        hits.append(stretch <= threshold[1])
        threshold = track(stretch[None], np.zeros(8, dtype=np.int64), threshold, (0.5, level))[0]
    assert abs(np.mean(hits[200:]) - level) < 0.02
    replayed = track(scores.reshape(1, -1), np.arange(3200) // 8, np.array([0.0, 1.0]), (0.5, level))[0]
    np.testing.assert_allclose(threshold, replayed, rtol=0.01)


def test_each_row_has_its_own_threshold():
    random = np.random.default_rng(0)
    scores = random.normal(size=(2, 600)) * np.array([[0.2], [3.0]])
    quiet, wild = track(scores, np.arange(600) // 2, START, LEVELS)
    assert quiet[2] < 0.5 < 2.5 < wild[2]


def test_lower_levels_mirror_upper_ones():
    scores = np.random.default_rng(0).normal(size=(1, 500))
    up = track(scores, np.arange(500), np.array([1.0]), (0.9,))
    down = track(-scores, np.arange(500), np.array([-1.0]), (0.1,))
    np.testing.assert_allclose(down, -up)


def test_what_is_unknown_moves_nothing():
    np.testing.assert_array_equal(track(np.full((2, 50), np.nan), np.arange(50), START, LEVELS), np.tile(START, (2, 1)))


def test_errors_of_one_stretch_move_a_threshold_once_whatever_their_order():
    scores = np.array([[5.0, 0.1, 0.2, 9.0]])
    one = track(scores, np.array([0, 0, 0, 0]), np.array([1.0]), (0.9,))
    np.testing.assert_allclose(one, track(scores[:, ::-1], np.array([7, 7, 7, 7]), np.array([1.0]), (0.9,)))
    np.testing.assert_allclose(one, 1.0 + GAIN * (0.5 - 0.1))


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (2, 40), elements=st.floats(-1e6, 1e6) | st.just(np.nan)))
def test_thresholds_rise_and_stay_within_what_was_seen(scores):
    found = track(scores, np.arange(40) // 3, START, LEVELS)
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=1) >= 0).all() and (found[:, 1] == 0).all()
    top = np.nanmax(np.where(np.isnan(scores), -np.inf, scores), axis=1)
    assert (found[:, -1] <= np.maximum(top, START.max())).all()
