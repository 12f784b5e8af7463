"""The next hour: bounded and ordered on every history, better than the last value, honest about its reach."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import Forecast, NoForecast
from forecaster.intervals import HISTORY_MULTIPLE
from forecaster.methods.blend import MedianBlend
from forecaster.methods.last_value import LastValue
from forecaster.methods.seasonal_naive import SeasonalNaive
from forecaster.methods.short_lead import ShortLead
from forecaster.methods.two_leads import TwoLeads

from .histories import daily, series

FIVE = 300
DAY = 288


def history(days=10, rows=2, noise=0.1, seed=0):
    return series(daily(days=days, rows=rows, step_s=FIVE, noise=noise, seed=seed), step_s=FIVE)


@pytest.fixture(scope="module")
def fitted() -> ShortLead:
    return ShortLead(iterations=60, max_points=20_000).fit([history(seed=4)])


def _cases():
    base = daily(days=10, rows=2, step_s=FIVE)
    spike = np.full((1, 10 * DAY), 10.0)
    spike[0, 1500] = 1e6
    gap = base.copy()
    gap[:, -2 * DAY :] = np.nan
    step = base.copy()
    step[:, 5 * DAY :] *= 10
    week = daily(days=17, rows=2, step_s=FIVE)
    week[:, 9 * DAY : 16 * DAY] = np.nan
    born = base.copy()
    born[1, : -3 * 12] = np.nan
    vanished = base.copy()
    vanished[1, DAY:] = np.nan
    return {
        "week_of_gaps": week,
        "born_late": born,
        "vanished": vanished,
        "constant": np.full((2, 10 * DAY), 7.0),
        "zeros": np.zeros((2, 10 * DAY)),
        "spike": spike,
        "gap": gap,
        "step": step,
        "huge": base * 1e9,
        "one_step": np.array([[5.0]]),
        "three_hours": base[:, :36],
    }


@pytest.mark.parametrize("case", sorted(_cases()))
def test_a_hard_history_gives_a_bounded_forecast(fitted, case):
    h = series(_cases()[case], step_s=FIVE)
    result = fitted.predict(h, 12, (0.1, 0.5, 0.9, 0.99))
    assert isinstance(result, Forecast)
    assert np.isfinite(result.rates).all() and (result.rates >= 0).all()
    top = h.counts.max(axis=1)[list(result.partitions)] / FIVE
    assert (result.rates <= HISTORY_MULTIPLE * top[:, None, None] * (1 + 1e-9)).all()
    if case == "zeros":
        assert (result.rates == 0).all()


def test_better_than_the_last_value_and_covers_what_it_says():
    whole = history(days=14, noise=0.2)
    split = whole.end_index - 2 * DAY
    method = ShortLead(iterations=80, max_points=20_000).fit([whole.between(whole.first_index, split)])
    ours, last, covered = [], [], []
    for origin in range(split, whole.end_index - 12, 19):
        past, truth = whole.between(whole.first_index, origin), whole.between(origin, origin + 12).rates()
        said = method.predict(past, 12, (0.5, 0.9))
        ours.append(np.abs(said.at_level(0.5) - truth).sum())
        last.append(np.abs(LastValue().predict(past, 12, (0.5,)).at_level(0.5) - truth).sum())
        covered.append((truth <= said.at_level(0.9)).mean())
    assert sum(ours) < 0.9 * sum(last)  # noise alone gives 0.71 at best
    assert abs(np.mean(covered) - 0.9) < 0.05


def test_partition_medians_add_up_to_the_topic(fitted):
    said = fitted.predict(history(), 12, (0.5, 0.9))
    np.testing.assert_allclose(said.at_level(0.5).sum(axis=0), said.total[:, 0], rtol=1e-6)


def test_no_leakage_values_after_the_origin_change_nothing(fitted):
    counts = daily(days=11, rows=2, step_s=FIVE)
    changed = counts.copy()
    changed[:, 10 * DAY :] = 1e9
    origin = series(counts[:, : 10 * DAY], step_s=FIVE).end
    a, b = (fitted.predict(series(c, step_s=FIVE).until(origin), 12) for c in (counts, changed))
    np.testing.assert_array_equal(a.rates, b.rates)


def test_of_many_partitions_some_are_looked_at_for_all(fitted):
    counts = daily(days=12, rows=40, step_s=FIVE, noise=0.1)
    counts[7] = np.nan  # of which nothing was ever recorded
    result = fitted.predict(series(counts, step_s=FIVE), 12, (0.5, 0.95))
    assert isinstance(result, Forecast)
    assert result.partitions == tuple(p for p in range(40) if p != 7)
    assert "no forecast for partition 7" in result.reasons[0]
    np.testing.assert_allclose(result.at_level(0.5).sum(axis=0), result.total[:, 0], rtol=1e-6)
    many = ShortLead(iterations=20, max_points=5_000).fit([series(daily(days=6, rows=70, step_s=FIVE), step_s=FIVE)])
    assert isinstance(many.predict(history(), 12), Forecast)


def test_beyond_an_hour_hourly_steps_and_untrained_are_reasons(fitted):
    assert isinstance(fitted.predict(history(), 13), NoForecast)
    assert isinstance(fitted.predict(series(daily(rows=1)), 1), NoForecast)
    untrained = ShortLead().fit([])
    assert isinstance(untrained.predict(history(), 12), NoForecast)
    assert "not trained" in untrained.predict(history(), 12).reason


def test_two_leads_join_at_the_hour(fitted):
    ahead = MedianBlend((SeasonalNaive("day"),))
    joined = TwoLeads(ahead, fitted).predict(history(), 36)
    near, far = fitted.predict(history(), 12), ahead.predict(history(), 36)
    np.testing.assert_array_equal(joined.rates[:, :12], near.rates)
    np.testing.assert_array_equal(joined.rates[:, 12:], far.rates[:, 12:])
    assert joined.method == "short_lead+median_blend"


def test_two_leads_say_why_the_day_ahead_method_answers_alone():
    joined = TwoLeads(MedianBlend((SeasonalNaive("day"),)), ShortLead().fit([])).predict(history(), 36)
    assert any("not trained" in reason for reason in joined.reasons)
