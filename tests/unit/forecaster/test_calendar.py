"""Holidays on the stream's own clock, events with factors, and histories from which both are left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import holidays as library
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.calendar import Calendar, Event, apply_events, factors_of
from forecaster.errors import InputRefused
from forecaster.forecast import Forecast, Rung
from forecaster.methods.catalogue import make_method
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

HOUR = timedelta(hours=1)
MONDAY = datetime(2026, 4, 20, tzinfo=UTC)  # Friday 1 May is a holiday in Germany


def history(days: int, zone: str = "UTC", start: datetime = MONDAY, holiday_share: float = 1.0) -> ArrivalSeries:
    """1000 an hour by day and 100 by night, local time; less of it on 1 May."""
    grid = TimeGrid(3600, zone)
    first = grid.index_of(start)
    slots = grid.day_slots(first, 24 * days)
    counts = np.where((slots >= 8) & (slots < 20), 1000.0, 100.0)
    local = [(start + i * HOUR).astimezone(ZoneInfo(zone)) for i in range(24 * days)]
    off = np.array([(at.month, at.day) == (5, 1) for at in local])
    counts = np.where(off, counts * holiday_share, counts)[None]
    return ArrivalSeries("orders", grid, first, (0,), counts, np.full(counts.shape, True))


@pytest.mark.parametrize(
    ("region", "zone"),
    [("DE-BE", "Europe/Berlin"), ("US-NY", "America/New_York"), ("NZ", "Pacific/Auckland"), ("IN", "Asia/Kolkata")],
)
def test_d11_holidays_follow_the_wall_clock_of_the_zone(region: str, zone: str) -> None:
    """The oracle asks the library for the local date of each step, one at a time."""
    grid = TimeGrid(1800, zone)
    first = grid.index_of(datetime(2025, 11, 1, tzinfo=UTC))
    country, _, part = region.partition("-")
    days = library.country_holidays(country, subdiv=part or None, years=[2025, 2026])
    count = 48 * 240  # over a new year and both clock changes
    expected = [grid.start_of(first + i).astimezone(ZoneInfo(zone)).date() in days for i in range(count)]
    said = Calendar(region).holidays(grid, first, count)
    assert said.tolist() == expected and said.any()


def test_d11_utc_would_be_off_by_the_offset() -> None:
    grid = TimeGrid(3600, "America/New_York")
    first = grid.index_of(datetime(2026, 12, 25, tzinfo=UTC))
    on = np.flatnonzero(Calendar("US").holidays(grid, first, 48))
    assert (on[0], on[-1]) == (5, 28)


@pytest.mark.parametrize(
    ("region", "message"), [("XX", "ISO 3166"), ("DE-ZZ", "DE has .*BE"), ("", "ISO 3166"), ("de-be", "ISO 3166")]
)
def test_an_unknown_region_is_refused(region: str, message: str) -> None:
    with pytest.raises(InputRefused, match=message):
        Calendar(region)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": datetime(2026, 1, 5)}, "time zone"),
        ({"end": datetime(2026, 1, 5, tzinfo=UTC)}, "not after its start"),
        ({"factor": 0.0}, "positive"),
        ({"factor": float("nan")}, "positive"),
        ({"factor": float("inf")}, "positive"),
    ],
)
def test_an_event_that_cannot_be_meant_is_refused(change: dict[str, object], message: str) -> None:
    sale = Event("sale", datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC), 2.0)
    with pytest.raises(InputRefused, match=f"event sale.*{message}"):
        replace(sale, **change)


@given(
    st.lists(
        st.tuples(st.integers(-90, 400), st.integers(1, 300), st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0])), max_size=4
    )
)
def test_each_event_counts_as_its_most_demanding_minute_in_the_step(parts: list[tuple[int, int, float]]) -> None:
    minute = timedelta(minutes=1)
    events = [Event("e", MONDAY + a * minute, MONDAY + (a + n) * minute, f) for a, n, f in parts]
    grid = TimeGrid(3600)
    said = factors_of(events, grid, grid.index_of(MONDAY), 5)
    for step in range(5):
        minutes = [MONDAY + step * HOUR + k * minute for k in range(60)]
        each = [max(e.factor if e.start <= at < e.end else 1.0 for at in minutes) for e in events]
        assert said[step] == pytest.approx(np.prod(each))


def test_events_multiply_every_level_and_are_named() -> None:
    levels = np.array([1.0, 2.0])
    rates = np.broadcast_to(levels, (2, 4, 2)).copy()
    plain = Forecast("t", MONDAY, HOUR, (0, 1), (0.5, 0.9), rates, rates.sum(axis=0), "m", Rung.GRID_STATE)
    sale = Event("sale", MONDAY + 1.5 * HOUR, MONDAY + 3 * HOUR, 3.0)
    over = Event("gone", MONDAY - 3 * HOUR, MONDAY, 9.0)
    later = Event("later", MONDAY + 4 * HOUR, MONDAY + 5 * HOUR, 9.0)
    said = apply_events(plain, [sale, over, later])
    assert said.at_level(0.9)[0].tolist() == [2, 6, 6, 2]
    assert said.total[:, 0].tolist() == [2, 6, 6, 2]
    assert said.reasons == ("event sale: 3 times the usual",)
    assert apply_events(plain, [over, later]) is plain


def test_d17_a_holiday_is_not_the_pattern_of_the_next_day_or_the_next_week() -> None:
    calendar = Calendar("DE-BE")
    for days in (12, 18):  # origins: midnight after 1 May, and midnight before 8 May, Berlin time
        start = datetime(2026, 4, 19, 22, tzinfo=UTC)
        seen = history(days, "Europe/Berlin", start, holiday_share=0.2)
        truth = history(days + 1, "Europe/Berlin", start).rates()[:, 24 * days :]
        name = "yesterday" if days == 12 else "last_week"
        method = make_method(name)
        assert method.predict(seen, 24, (0.5,)).at_level(0.5).sum() < 0.3 * truth.sum()
        usual = method.predict(calendar.usual(seen), 24, (0.5,)).at_level(0.5)
        assert usual.sum() > 0.9 * truth.sum()


def test_d17_a_campaign_is_not_repeated_a_week_later() -> None:
    seen = history(14)
    campaign = Event("campaign", MONDAY + timedelta(days=7, hours=10), MONDAY + timedelta(days=7, hours=13), 20.0)
    counts = seen.counts.copy()
    counts[0, 7 * 24 + 10 : 7 * 24 + 13] *= 20
    seen = replace(seen, counts=counts)
    assert make_method("last_week").predict(seen, 24, (0.5,)).at_level(0.5).max() > 19 * 1000 / 3600
    usual = Calendar(events=(campaign,)).usual(seen)
    assert make_method("last_week").predict(usual, 24, (0.5,)).at_level(0.5).max() < 1.01 * 1000 / 3600


def test_what_goes_on_now_stays_known() -> None:
    calendar = Calendar("DE-BE")
    during = history(12, "Europe/Berlin", datetime(2026, 4, 19, 22, tzinfo=UTC)).until(
        datetime(2026, 5, 1, 12, tzinfo=UTC)
    )
    assert calendar.usual(during) is during
    after = history(12, "Europe/Berlin", datetime(2026, 4, 19, 22, tzinfo=UTC))
    known = calendar.usual(after).known[0]
    assert known[-2:].all() and not known[-24:-2].any() and known[:-24].all()
    running = Event("sale", after.end - 30 * HOUR, after.end + HOUR, 3.0)
    assert Calendar(events=(running,)).usual(after) is after


def test_a_history_of_holidays_alone_stays_as_it_is() -> None:
    may = history(1, "Europe/Berlin", datetime(2026, 4, 30, 22, tzinfo=UTC))
    gone = replace(may, known=np.where(np.arange(24) < 20, may.known, False), counts=may.counts)
    assert Calendar("DE-BE").usual(gone) is gone
    empty = may.between(0, 0)
    assert Calendar("DE-BE").usual(empty) is empty
    assert Calendar().usual(may) is may
