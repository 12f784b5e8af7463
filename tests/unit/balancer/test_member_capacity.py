"""Capacity is learned from busy members alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.member_capacity import MemberInterval, learn_capacity

T0 = datetime(2026, 1, 5, tzinfo=UTC)


def interval(
    rate: float, lag: int | None = 10_000, member: str = "a", minute: int = 0, stable: bool = True
) -> MemberInterval:
    return MemberInterval(member, T0 + timedelta(minutes=minute), 60.0, int(rate * 60), lag, lag, stable)


def test_b14_low_traffic_is_not_low_capacity() -> None:
    quiet = [interval(3, lag=0, minute=m) for m in range(100)]
    estimate = learn_capacity(quiet)
    assert estimate.capacity is None
    assert estimate.why is not None
    assert "kept up" in estimate.why
    assert estimate.at_least == 3
    busy = [interval(250, minute=200 + m) for m in range(5)]
    assert learn_capacity(quiet + busy).capacity == 250


def test_b7_intervals_around_a_rebalance_teach_nothing() -> None:
    estimate = learn_capacity([interval(10, stable=False), interval(200, minute=1)])
    assert (estimate.capacity, estimate.busy) == (200, 1)


def test_unknown_lag_a_frozen_member_and_no_length_teach_nothing() -> None:
    none = [interval(100, lag=None), interval(0), MemberInterval("a", T0, 0.0, 50, 9, 9)]
    assert learn_capacity(none).capacity is None
    assert learn_capacity([]).why == "no member was seen yet"


def test_a_backlog_of_a_moment_is_not_busy() -> None:
    assert learn_capacity([interval(100, lag=150)]).capacity is None  # 1.5 s of work
    assert learn_capacity([interval(100, lag=250)]).capacity == 100


def test_a_new_member_is_taken_for_an_average_one_until_it_has_shown_more() -> None:
    old = [interval(100, member=m, minute=i) for m in "abc" for i in range(20)]
    once = learn_capacity([*old, interval(40, member="d")])
    often = learn_capacity([*old, *(interval(40, member="d", minute=i) for i in range(60))])
    assert once.capacity == often.capacity == 100
    assert once.members["d"] == pytest.approx(85)
    assert often.members["d"] == pytest.approx(42.857, abs=0.01)


def test_confidence_grows_with_intervals_and_falls_with_their_spread() -> None:
    def steady(n: int) -> float:
        return learn_capacity([interval(100, minute=i) for i in range(n)]).confidence

    assert 0 < steady(1) < steady(10) < steady(100) < 1
    wild = learn_capacity([interval(100 if i % 2 else 300, minute=i) for i in range(100)])
    assert wild.confidence < steady(100)


def test_a_faster_version_is_believed_after_a_while() -> None:
    slow = [interval(100, minute=i) for i in range(500)]
    fast = [interval(300, minute=500 + i) for i in range(150)]
    assert learn_capacity(slow + fast).capacity == 300


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 1e5), st.booleans()), max_size=40))
def test_the_estimate_lies_among_the_busy_rates(rows: list[tuple[str, float, bool]]) -> None:
    intervals = [
        interval(rate, lag=10**9 if busy else 0, member=member, minute=i) for i, (member, rate, busy) in enumerate(rows)
    ]
    rates = [i.rate for i in intervals if i.is_busy(2.0)]
    estimate = learn_capacity(intervals)
    assert (estimate.capacity is None) == (not rates)
    assert 0 <= estimate.confidence < 1
    if estimate.capacity is not None:
        assert min(rates) <= estimate.capacity <= max(rates)
        assert estimate.at_least is not None
        assert estimate.at_least >= max(rates)
        assert all(min(rates) - 1e-6 <= c <= max(rates) + 1e-6 for c in estimate.members.values())


def test_busy_takes_both_ends_and_any_work_at_all() -> None:
    one = MemberInterval("a", T0, 60.0, 1, 9, 9)
    assert one.is_busy()
    assert not MemberInterval("a", T0, 60.0, 600, None, 900).is_busy()
    assert not MemberInterval("a", T0, 60.0, 600, 900, None).is_busy()
    exactly = MemberInterval("a", T0, 60.0, 600, 20, 20)  # 10 records/s, two seconds of them wait
    assert exactly.is_busy(2.0)
    assert not exactly.is_busy(2.1)


def test_an_interval_survives_a_restart() -> None:
    kept = interval(100, member="b", minute=3)
    assert MemberInterval.from_json(kept.to_json()) == kept


def test_a_short_look_counts_and_spread_is_a_share_of_each_members_own_rate() -> None:
    short = [MemberInterval("a", T0 + timedelta(minutes=m), 0.5, 50, 999, 999) for m in range(3)]
    assert learn_capacity(short).capacity == 100
