"""Synthetic traffic is what its parameters say, and the same for the same seed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from forecaster.calendar import Calendar, Event
from forecaster.errors import InputRefused
from forecaster.periods import found_periods
from forecaster.synthetic import Generated, Traffic, generate
from forecaster.timegrid import TimeGrid

MONDAY = datetime(2026, 4, 20, tzinfo=UTC)
WEEK = timedelta(weeks=1)
CALM = Traffic(growth_per_week=0, crowds_per_week=0, outages_per_week=0, gaps_per_week=0, noise=0)


def made(traffic: Traffic = CALM, weeks: int = 4, zone: str = "UTC", step_s: int = 3600, **more: object) -> Generated:
    return generate(MONDAY, weeks * WEEK, TimeGrid(step_s, zone), traffic, **more)  # type: ignore[arg-type]


def test_the_seed_decides_everything() -> None:
    one, same, other = (made(Traffic(), seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.series.counts, same.series.counts)
    assert np.array_equal(one.gaps, same.gaps) and np.array_equal(one.expected, same.expected)
    assert not np.array_equal(one.series.counts, other.series.counts)


def test_rate_weekends_growth_and_skew_are_what_was_asked() -> None:
    calm = made()
    working = calm.expected[:, : 5 * 24].sum(axis=0).mean()
    assert calm.expected[:, 5 * 24 : 7 * 24].sum(axis=0).mean() == pytest.approx(0.5 * working, rel=0.03)
    assert working == pytest.approx(100 * 3600, rel=0.03)
    assert np.abs(calm.series.counts / calm.expected - 1).mean() < 0.01
    grown = made(Traffic(**{**_fields(CALM), "growth_per_week": 0.1}))
    ratio = grown.expected[:, -1].sum() / calm.expected[:, -1].sum()
    assert ratio == pytest.approx(1.1**4, rel=0.01)
    skewed = made(Traffic(**{**_fields(CALM), "skew": 1.0}))
    assert skewed.expected[0].sum() == pytest.approx(3 * skewed.expected[2].sum())


def test_day_and_week_are_found_in_it() -> None:
    assert [p.hours for p in found_periods(made(weeks=5).series)] == [24.0, 168.0]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "Australia/Adelaide"])
def test_the_day_follows_the_wall_clock(zone: str) -> None:
    grid = TimeGrid(1800, zone)
    start = datetime(2026, 3, 15, tzinfo=UTC)
    calm = generate(start, 4 * WEEK, grid, CALM)
    slots = grid.week_slots(calm.series.first_index, calm.series.steps)
    for slot in (0, 40, 100, 300):
        there = calm.expected[0, slots == slot]
        assert np.ptp(there) == pytest.approx(0, abs=1e-9 * there.mean())


def test_holidays_and_events_change_their_own_hours_only() -> None:
    sale = Event("sale", MONDAY + timedelta(days=1, hours=9), MONDAY + timedelta(days=1, hours=12), 3.0)
    plain, dated = made(zone="Europe/Berlin"), made(zone="Europe/Berlin", calendar=Calendar("DE-BE", (sale,)))
    factor = dated.expected[0] / plain.expected[0]
    grid, first = plain.series.grid, plain.series.first_index
    assert np.flatnonzero(np.isclose(factor, 3.0)).tolist() == [33, 34, 35]
    may = Calendar("DE-BE").holidays(grid, first, plain.series.steps)
    assert np.allclose(factor[may], 0.4) and may.sum() == 48  # 1 May and Ascension Day
    assert np.allclose(factor[~may & (factor < 2)], 1.0)


def test_faults_are_where_it_says() -> None:
    busy = Traffic(crowds_per_week=3, outages_per_week=3, gaps_per_week=3)
    out = made(busy, weeks=8, step_s=300, seed=5)
    assert out.crowds.any() and out.outages.any() and out.gaps.any()
    assert (out.series.counts[:, out.outages] == 0).all()
    assert not out.series.known[:, out.gaps].any() and out.series.known[:, ~out.gaps].all()
    lift = out.expected[0] / out.usual[0]
    assert lift[out.crowds & ~out.outages].max() > 2
    assert lift[~out.crowds].max() < 1.5


@pytest.mark.parametrize(
    ("field", "value"), [("rate", 0.0), ("partitions", 0), ("daily", 1.0), ("weekend", -1.0), ("gap", timedelta(0))]
)
def test_what_cannot_be_meant_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputRefused, match=field):
        Traffic(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(InputRefused, match="shorter than a step"):
        generate(MONDAY, timedelta(seconds=5))


def _fields(traffic: Traffic) -> dict[str, object]:
    return {name: getattr(traffic, name) for name in Traffic.__dataclass_fields__}
