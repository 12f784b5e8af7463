"""What a plan would cost: hours and lateness against sums by hand and against sampling."""

from datetime import timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.plan import PlannedStep
from headway.reports.estimate import estimate, expected_beyond
from headway.status.shadow import reactive_members
from headway.status.totals import Totals, TotalsCache
from tests.unit.headway.conftest import NOW, a_forecast, application, settings

__all__ = ["application", "settings"]
LEAD = timedelta(minutes=2)


def test_hours_and_cost_are_those_of_the_steps():
    steps = (PlannedStep(NOW, 3, 40.0), PlannedStep(NOW + timedelta(minutes=30), 5, 90.0))
    found = estimate(steps, a_forecast(), 20.0, now=NOW, lead=LEAD, price=0.5)
    assert found.horizon_h == 1.0 and found.member_hours == 3 * 0.5 + 5 * 0.5
    assert found.cost == 2.0 and found.late_share == 0.0


def test_too_few_members_make_records_late_and_more_of_them_fewer():
    shares = []
    for count in (1, 2, 3):
        steps = (PlannedStep(NOW, count, 40.0),)
        shares.append(estimate(steps, a_forecast(), 12.0, now=NOW, lead=LEAD).late_share)
    assert shares[0] > shares[1] > shares[2] >= 0


def test_a_start_takes_its_time_and_unknown_stays_unknown():
    steps = (PlannedStep(NOW, 4, 40.0),)
    slow = estimate(steps, a_forecast(), 12.0, now=NOW, lead=timedelta(minutes=40), working=1)
    quick = estimate(steps, a_forecast(), 12.0, now=NOW, lead=LEAD, working=1)
    assert slow.late_share > quick.late_share
    assert estimate(steps, a_forecast(), None, now=NOW, lead=LEAD).late_share is None
    assert "no forecast" in estimate(steps, None, 12.0, now=NOW, lead=LEAD).why


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), st.floats(0, 1e6))
def test_what_lies_beyond_is_never_more_than_what_comes(values, able):
    total = np.sort(np.array([values]), axis=1)
    beyond, mean = expected_beyond(total, (0.5, 0.9, 0.95), np.array([able]))
    assert 0 <= beyond[0] <= mean[0] + 1e-9
    none, _ = expected_beyond(total, (0.5, 0.9, 0.95), np.array([0.0]))
    assert np.isclose(none[0], mean[0])


@given(st.lists(st.one_of(st.none(), st.floats(0, 1000)), min_size=1, max_size=60))
def test_the_shadow_is_the_highest_wish_of_five_minutes(rates):
    values = np.array([np.nan if r is None else r for r in rates])
    found = reactive_members(values, 60, 10.0, 1, 40)
    for i, rate in enumerate(rates):
        if rate is None:
            assert np.isnan(found[i])
            continue
        recent = [r for r in rates[max(i - 4, 0) : i + 1] if r is not None]
        assert found[i] == min(max(np.ceil(max(recent) / 8.0 - 1e-9), 1), 40)


def test_totals_read_only_what_is_new(application):
    from forecaster.stores.base import Cells, SeriesKey

    end = int(NOW.timestamp()) // 60
    counts = np.arange(1440, dtype=np.int64)[None, :] * 60
    application.store.backfill(SeriesKey("orders", "arrivals"), Cells(end - 1440, counts, np.ones((1, 1440), bool)))
    asked, read = [], application.store.read
    application.store.read = lambda key, first, last: asked.append(last - first) or read(key, first, last)
    cache = TotalsCache(application.store)
    assert cache.of("orders", NOW).rates[-1] == 1439
    assert cache.of("orders", NOW).rates[0] == 0
    later = cache.of("orders", NOW + timedelta(minutes=2))
    assert asked == [1440, 5] and later.rates[-3] == 1439 and np.isnan(later.rates[-1])
    assert cache.of("nothing", NOW) is None


def test_means_stand_on_whole_bins():
    start, means = Totals(10, 60, np.array([1.0, 3.0, np.nan, 5.0, 7.0])).means(120, 3)
    assert start == 8 * 60 and np.isnan(means[0]) and means[1:].tolist() == [2.0, 5.0]
