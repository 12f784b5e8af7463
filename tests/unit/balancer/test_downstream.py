"""More members without more throughput: stop, step back, say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from balancer.downstream import FIRST_RETRY, DownstreamState, ThroughputSample, ceiling, observe, reason

START = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def climb(levels, state=None, begin=START, **kwargs):
    state, at = state or DownstreamState(), begin
    for working, rate in levels:
        for _ in range(5):
            at += MINUTE
            state = observe(state, ThroughputSample(at, working, rate, **{"saturated": True, **kwargs}))
    return state, at


def test_k9_a_database_behind_stops_the_climb():
    state, at = climb([(2, 200.0), (4, 210.0)])
    assert ceiling(state, at) == 2
    assert "downstream is the bound" in (reason(state) or "")


def test_a_climb_that_pays_goes_on():
    state, at = climb([(2, 200.0), (4, 390.0), (8, 600.0)])
    assert ceiling(state, at) is None and reason(state) is None


def test_b12_expectation_from_the_members_that_really_worked():
    # Eight were asked for, three came: a gain of 50 % is all that could be expected.
    state, at = climb([(2, 200.0), (3, 300.0)])
    assert ceiling(state, at) is None


def test_b14_low_traffic_says_nothing_about_members():
    state, at = climb([(2, 100.0), (6, 100.0)], saturated=False)
    assert ceiling(state, at) is None and state.levels == ()


def test_a_rebalance_or_a_hot_partition_is_not_downstream():
    assert climb([(2, 200.0), (4, 200.0)], settled=False)[0].limit is None
    assert climb([(2, 200.0), (4, 200.0)], partition_bound=True)[0].limit is None


def test_the_limit_is_tried_again_and_again_more_rarely():
    state, at = climb([(2, 200.0), (4, 200.0)])
    assert ceiling(state, at + FIRST_RETRY - 2 * MINUTE) == 2
    assert ceiling(state, at + FIRST_RETRY) is None
    again, later = climb([(2, 200.0), (4, 200.0)], state, at + FIRST_RETRY)
    assert ceiling(again, later + FIRST_RETRY) == 2
    assert ceiling(again, later + 2 * FIRST_RETRY) is None


def test_a_faster_downstream_lifts_the_limit():
    state, at = climb([(2, 200.0), (4, 200.0)])
    state, at = climb([(2, 200.0), (4, 400.0)], state, at + FIRST_RETRY)
    assert state.limit is None and state.retry_after == FIRST_RETRY


def test_long_after_the_backlog_is_gone_the_limit_is_forgotten():
    state, at = climb([(2, 200.0), (4, 200.0)])
    state, at = climb([(2, 50.0)], state, at + timedelta(hours=3), saturated=False)
    assert state == DownstreamState()


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1000), st.booleans(), st.booleans()), max_size=60),
)
def test_a_limit_is_never_below_what_worked_and_state_survives_a_restart(samples):
    state, seen = DownstreamState(), set()
    for n, (working, rate, saturated, settled) in enumerate(samples):
        state = observe(state, ThroughputSample(START + n * MINUTE, working, rate, saturated, settled))
        seen.add(working)
        assert state.limit is None or state.limit in seen
        assert len(state.levels) <= 2
    assert DownstreamState.from_json(state.to_json()) == state
