"""Several topics joined into one forecast and one history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.joining import joined_forecast, joined_history
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from forecaster.topics import TopicPartition

START = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def told(topic, partitions=2, steps=30, step=MINUTE, origin=START, seed=0, levels=(0.5, 0.9)):
    rates = np.sort(np.random.default_rng(seed).gamma(2.0, 10.0, (partitions, steps, len(levels))), axis=2)
    numbers = tuple(range(partitions))
    return Forecast(topic, origin, step, numbers, levels, rates, rates.sum(axis=0), topic, Rung.OWN_MODEL, (topic,))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(5, 30), st.integers(0, 4), st.sampled_from([1, 5])), min_size=1)
)
def test_each_row_and_the_sum_at_each_instant_are_those_of_the_topics(shapes):
    parts = [
        told(f"t{i}", partitions, steps, minutes * MINUTE, START + begin * 5 * MINUTE, seed=i)
        for i, (partitions, steps, begin, minutes) in enumerate(shapes)
    ]
    whole = joined_forecast(parts)
    first = max(f.origin for f in parts)
    last = min(f.origin + f.horizon for f in parts)
    if last <= first:
        assert isinstance(whole, NoForecast)
        assert "do not overlap" in whole.reason
        return
    assert isinstance(whole, Forecast)
    assert (whole.origin, whole.origin + whole.horizon) == (first, last)
    assert len(set(whole.rows)) == len(whole.rows) == sum(len(f.partitions) for f in parts)
    for k in range(whole.steps):
        at, sums = first + k * whole.step, np.zeros(2)
        for f in parts:
            j = (at - f.origin) // f.step
            sums += f.total[j]
            for i, row in enumerate(f.rows):
                assert (whole.rates[whole.rows.index(row), k] == f.rates[i, j]).all()
        np.testing.assert_allclose(whole.total[k], sums)


def test_the_same_number_in_two_topics_is_two_partitions():
    whole = joined_forecast([told("orders", 1), told("returns", 1)])
    assert whole.rows == (TopicPartition("orders", 0), TopicPartition("returns", 0))
    assert whole.reasons == ("orders: orders", "returns: returns")


def test_one_topic_without_a_forecast_is_the_reason_for_all():
    young = NoForecast("returns", START, "recorded since 20 minutes", START + timedelta(days=1))
    whole = joined_forecast([told("orders"), young])
    assert isinstance(whole, NoForecast)
    assert (whole.reason, whole.possible_from) == ("returns: recorded since 20 minutes", young.possible_from)


def test_the_worst_rung_is_said():
    poor = told("returns")
    object.__setattr__(poor, "rung", Rung.YESTERDAY)
    assert joined_forecast([told("orders"), poor]).rung is Rung.YESTERDAY


@pytest.mark.parametrize("odd", [{"step": timedelta(seconds=90)}, {"origin": START + timedelta(seconds=7)}])
def test_steps_that_do_not_fit_are_refused_and_not_bent(odd):
    whole = joined_forecast([told("orders"), told("returns", **odd)])
    assert isinstance(whole, NoForecast)
    assert "do not fit" in whole.reason


def test_only_levels_that_all_have_are_kept():
    assert joined_forecast([told("a", levels=(0.5, 0.9, 0.99)), told("b", levels=(0.5, 0.99))]).levels == (0.5, 0.99)


def test_histories_of_different_steps_join_on_the_longer_one_and_a_gap_stays_one():
    fine = ArrivalSeries("a", TimeGrid(60), 0, (0, 1), np.ones((2, 20)), np.full((2, 20), True))
    known = np.array([[True, False, True]])
    coarse = ArrivalSeries("b", TimeGrid(300), 1, (0,), np.array([[7.0, 0.0, 8.0]]), known)
    both = joined_history([fine, coarse])
    assert (both.grid.step_s, both.first_index, both.partitions) == (300, 1, (0, 1, 2))
    assert both.names == ("a:0", "a:1", "b:0")
    assert both.counts.tolist() == [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0], [7.0, 0.0, 8.0]]
    assert both.total().known.tolist() == [[True, False, True]]
