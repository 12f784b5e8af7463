from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.downstream import DownstreamState
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


def test_a_memory_survives_a_restart_whole():
    memory = PlannerMemory(
        history=ScalingHistory((Wish(at(-3), 3),), (Change(at(-2), 2, 3),), ((at(-1), 5),)),
        promises=((at(1), 12.5), (at(2), 13.0)),
        log_margin=-0.25,
        rates=((at(-2), 9.0), (at(-1), 9.5)),
        downstream=DownstreamState(limit=6, since=at(-9)),
        last_good=4,
        last_lag=1200,
        last_working=3,
    )
    assert PlannerMemory.from_json(memory.to_json()) == memory
    older = {key: value for key, value in memory.to_json().items() if key not in ("last_lag", "last_working")}
    assert (PlannerMemory.from_json(older).last_lag, PlannerMemory.from_json(older).last_working) == (None, None)


def test_a_minute_counts_once_and_the_newest_is_first():
    memory = PlannerMemory()
    assert memory.recent() == (0.0, 0.0, 0.0, 0.0)
    for minute, rate in ((0, 10.0), (1, 11.0), (1.5, 99.0), (2, 12.0)):
        memory = memory.saw(at(minute), rate)
    assert memory.rates == ((at(0), 10.0), (at(1), 11.0), (at(2), 12.0))
    assert memory.recent() == (12.0, 11.0, 10.0, 10.0)
    assert memory.has_seen(at(2) + timedelta(seconds=59))
    assert not memory.has_seen(at(3))
    for minute in range(3, 9):
        memory = memory.saw(at(minute), float(minute))
    assert memory.recent() == (8.0, 7.0, 6.0, 5.0)


def test_a_promise_falls_due_for_a_minute_and_is_forgotten_after_two():
    memory = PlannerMemory(promises=((at(0), 5.0), (at(1), 6.0)))
    assert [memory.due(at(m)) for m in (-0.1, 0, 0.9, 1, 1.9, 2)] == [None, 5.0, 5.0, 6.0, 6.0, None]
    assert memory.promises_with(at(2), at(4), 7.0) == ((at(1), 6.0), (at(4), 7.0))


def test_what_happens_at_the_instant_itself_has_happened():
    history = ScalingHistory((Wish(NOON, 3),), (Change(NOON, 2, 3),), ((NOON, 1),))
    memory = PlannerMemory(history=history, rates=((NOON, 7.0),), log_margin=0.3, last_good=4)
    assert memory.until(NOON) is memory
    earlier = memory.until(NOON - timedelta(microseconds=1))
    assert earlier == PlannerMemory()


@pytest.mark.parametrize("ahead", ["wishes", "changes", "moves", "rates"])
def test_one_thing_ahead_of_the_clock_is_enough_to_forget_what_it_taught(ahead):
    history = ScalingHistory((Wish(NOON, 3),), (Change(NOON, 2, 3),), ((NOON, 1),))
    past = PlannerMemory(history=history, rates=((NOON, 7.0),))
    one = {"wishes": Wish(at(1), 3), "changes": Change(at(1), 2, 3), "moves": (at(1), 1), "rates": (at(1), 7.0)}[ahead]
    if ahead == "rates":
        memory = replace(past, rates=(*past.rates, one))
    else:
        memory = replace(past, history=replace(history, **{ahead: (*getattr(history, ahead), one)}))
    assert replace(memory, promises=((at(2), 5.0),), log_margin=0.3, last_good=4, last_lag=5).until(NOON) == past


def test_a_minute_is_named_by_its_beginning():
    memory = PlannerMemory().saw(NOON + timedelta(seconds=42, microseconds=7), 5.0)
    assert memory.rates == ((NOON, 5.0),)
    assert memory.saw(NOON + timedelta(seconds=59, microseconds=999_999), 6.0) is memory
    assert memory.saw(at(1), 6.0).rates == ((NOON, 5.0), (at(1), 6.0))
    assert memory.rates_with(at(1) + timedelta(seconds=3), 6.0) == ((NOON, 5.0), (at(1), 6.0))
