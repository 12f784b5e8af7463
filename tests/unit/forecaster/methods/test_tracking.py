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
    assert abs(np.mean(hits[250:]) - level) < 0.02
    replayed = track(scores.reshape(1, -1), np.arange(3200) // 8, np.array([0.0, 1.0]), (0.5, level))[0]
    np.testing.assert_allclose(threshold, replayed, rtol=0.01)


@pytest.mark.parametrize("delay", [0, 1, 12])
def test_a_late_answer_is_held_against_the_threshold_that_was_said(delay):
    """Judged by thresholds that have moved since, coverage would be short wherever hours are wild or quiet together."""
    random = np.random.default_rng(3)
    scores = random.normal(size=400) * np.repeat(np.where(random.random(50) < 0.3, 4.0, 1.0), 8)
    when = np.arange(400)
    found = track(scores[None], when, np.array([1.0]), (0.9,), 0.1, asked_at=when - delay)[0, 0]
    size, said, top = 1.0, {}, 1.0
    for now, score in enumerate(scores):  # one number at a time
        said[now] = size
        top = max(top, score)
        missed = score > said.get(now - delay, 1.0)
        size = min(max(size + 0.1 * max(size, 0.3) * (missed - 0.1), 0.0), top)
    np.testing.assert_allclose(found, size)


def test_an_event_counts_as_much_of_the_horizon_as_it_stands_for():
    scores, when = np.array([[5.0, 0.1]]), np.zeros(2, dtype=np.int64)
    found = track(scores, when, np.array([1.0]), (0.9,), weight=np.array([1.0, 3.0]))
    np.testing.assert_allclose(found, 1.0 + GAIN * (0.25 - 0.1))


def test_rare_levels_may_move_by_more():
    scores, when = np.array([[5.0]]), np.zeros(1, dtype=np.int64)
    found = track(scores, when, np.array([1.0, 1.0]), (0.9, 0.99), 0.1, rarity=0.5)
    np.testing.assert_allclose(found, [[1 + 0.1 * 0.9, 1 + 0.1 * 10**0.5 * 0.99]])


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
