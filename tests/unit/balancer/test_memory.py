from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from balancer.memory import PlannerMemory
from balancer.stabilization import Change, ScalingHistory, Wish

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
minutes = st.lists(st.integers(-600, 600), max_size=6).map(sorted)


def at(offset):
    return NOON + timedelta(minutes=offset)


@given(wishes=minutes, changes=minutes, moves=minutes, rates=minutes)
def test_after_a_clock_went_back_what_lies_ahead_never_happened(wishes, changes, moves, rates):
    history = ScalingHistory(
        tuple(Wish(at(m), 3) for m in wishes),
        tuple(Change(at(m), 2, 3) for m in changes),
        tuple((at(m), 1) for m in moves),
    )
    memory = PlannerMemory(history=history, rates=tuple((at(m), 7.0) for m in rates), log_margin=0.3, last_good=4)
    then = memory.until(NOON)
    assert [w.at for w in then.history.wishes] == [at(m) for m in wishes if m <= 0]
    assert [c.at for c in then.history.changes] == [at(m) for m in changes if m <= 0]
    assert [t for t, _ in then.history.moves] == [at(m) for m in moves if m <= 0]
    assert [t for t, _ in then.rates] == [at(m) for m in rates if m <= 0]
    ahead = any(m > 0 for m in (*wishes, *changes, *moves, *rates))
    assert (then == memory) is not ahead
    assert then.until(NOON) == then
