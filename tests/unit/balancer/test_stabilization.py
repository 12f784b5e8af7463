"""Dwell, cooldown and budget: flapping is impossible."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.policy import ScalingPolicy
from balancer.stabilization import Change, ScalingHistory, Wish, changed, in_grace, moved, moves_left, stabilize

START = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def drive(wishes, policy, current=4, every=MINUTE, urgent=False, backlog_falls=False):
    """Run ticks; return the size after each one and the history."""
    history, sizes, answers = ScalingHistory(), [], []
    for n, wanted in enumerate(wishes):
        now = START + n * every
        answer = stabilize(wanted, current, now, history, policy, urgent=urgent, backlog_falls=backlog_falls)
        history = changed(answer.history, now, current, answer.replicas)
        current = answer.replicas
        sizes.append(current)
        answers.append(answer)
    return sizes, history, answers


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=120),
    st.integers(0, 30),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 10),
)
def test_flapping_is_impossible(wishes, dwell, urgent, budget, cooldown):
    policy = ScalingPolicy(
        scale_down_dwell=dwell * MINUTE,
        rescales_per_day=budget,
        cooldown=cooldown * MINUTE,
        min_replicas=1,
        max_replicas=10,
    )
    sizes, history, answers = drive(wishes, policy, urgent=urgent)
    current, last = 4, None
    for n, (wanted, size) in enumerate(zip(wishes, sizes, strict=True)):
        assert 1 <= size <= 10
        assert answers[n].reasons or size == min(max(wanted, 1), 10)  # what is not done says why
        if size < current:
            within = [min(max(w, 1), 10) for w in wishes[max(n - dwell, 0) : n + 1]]
            assert n >= dwell and size == max(within)  # nothing higher was wanted all through the dwell; one step
            assert last is None or n - last >= max(dwell, cooldown)
        if size > current:
            assert size == min(max(wanted, 1), 10)  # up in one step too
            assert urgent or last is None or n - last >= cooldown
        if size != current:
            last, current = n, size
        elif urgent and min(wanted, 10) > current:
            raise AssertionError("an urgent climb waited")
    if not urgent:
        assert len(history.changes) <= budget
    assert len(history.wishes) <= dwell + 2  # bounded memory


@settings(max_examples=30)
@given(st.integers(1, 60), st.lists(st.booleans(), min_size=200, max_size=200))
def test_the_worst_wishes_make_no_more_falls_than_dwells(dwell, coin):
    policy = ScalingPolicy(scale_down_dwell=dwell * MINUTE, rescales_per_day=10_000)
    sizes, _, _ = drive([2 if c else 9 for c in coin], policy, urgent=True)
    falls = sum(b < a for a, b in zip([4, *sizes], sizes, strict=False))
    assert falls <= 200 / dwell + 1


def test_b2_the_last_step_is_reachable():
    policy = ScalingPolicy(max_replicas=64, cooldown=timedelta(0))
    for partitions, stuck in ((64, 63), (24, 22)):
        assert stabilize(partitions, stuck, START, ScalingHistory(), policy).replicas == partitions


def test_b4_k8_one_jump_to_the_planned_size():
    sizes, history, _ = drive([16, 16, 16], ScalingPolicy(), current=1)
    assert sizes == [16, 16, 16]
    assert len(history.changes) == 1


def test_b5_no_scale_in_while_a_backlog_is_worked_off():
    policy = ScalingPolicy(scale_down_dwell=2 * MINUTE)
    sizes, _, answers = drive([2] * 10, policy, backlog_falls=True)
    assert set(sizes) == {4}
    assert "backlog" in answers[-1].reasons[0]
    assert drive([2] * 10, policy)[0][-1] == 2


def test_b6_k10_b9_the_rebalance_budget_ends_a_storm():
    policy = ScalingPolicy(rescales_per_day=6, scale_down_dwell=MINUTE)
    wishes = ([9] * 5 + [2] * 5) * 100
    sizes, history, answers = drive(wishes, policy)
    assert len(history.changes) <= 6
    assert any("6 changes a day are used up" in r for a in answers for r in a.reasons)
    assert sizes[-1] >= 9  # the fall waits, not the climb


def test_b9_a_fall_goes_to_the_highest_wish_of_the_dwell():
    policy = ScalingPolicy(scale_down_dwell=5 * MINUTE)
    sizes, _, _ = drive([10, 3, 7, 3, 3, 3, 3, 3], policy, current=10)
    assert sizes == [10, 10, 10, 10, 10, 10, 7, 7]


def test_b7_rates_right_after_an_action_are_in_grace():
    history = changed(ScalingHistory(), START, 2, 4)
    assert in_grace(history, START + timedelta(seconds=59), MINUTE)
    assert not in_grace(history, START + MINUTE, MINUTE)


def test_b20_one_dwell_and_the_plan_shows_it():
    policy = ScalingPolicy(scale_down_dwell=timedelta(seconds=30))
    sizes, _, answers = drive([1] * 4, policy, current=2, every=timedelta(seconds=15))
    assert sizes == [2, 2, 1, 1]  # N to 1 follows the same rule as any other fall
    assert "30 s" in answers[0].reasons[0]


def test_an_outage_of_the_planner_vouches_for_nothing():
    policy = ScalingPolicy(scale_down_dwell=10 * MINUTE)
    history = stabilize(2, 4, START, ScalingHistory(), policy).history
    late = stabilize(2, 4, START + timedelta(hours=3), history, policy)
    assert late.replicas == 4


def test_a_clock_that_went_back_vouches_for_nothing():
    policy = ScalingPolicy(scale_down_dwell=2 * MINUTE)
    history = ScalingHistory()
    for n in range(5):
        history = stabilize(4, 4, START + n * MINUTE, history, policy).history
    back = stabilize(2, 4, START - timedelta(hours=1), history, policy)
    assert back.replicas == 4
    assert len(back.history.wishes) == 1


def test_limits_that_changed_are_kept_at_once():
    low, high = ScalingPolicy(min_replicas=6), ScalingPolicy(max_replicas=3)
    for wanted, current, policy, size, reason in (
        (2, 4, low, 6, "within min_replicas=6"),
        (9, 0, low, 9, "within min_replicas=6"),
        (9, 4, high, 3, "within max_replicas=3"),
        (1, 4, high, 3, "within max_replicas=3"),  # what is wanted waits for its dwell like any other fall
    ):
        answer = stabilize(wanted, current, START, ScalingHistory(), policy)
        assert (answer.replicas, answer.reasons) == (size, (reason,))
    assert stabilize(6, 6, START, ScalingHistory(), low).reasons == ()
    assert stabilize(3, 3, START, ScalingHistory(), high).reasons == ()


def test_move_budget_counts_an_hour():
    policy = ScalingPolicy(moves_per_hour=10)
    history = moved(moved(ScalingHistory(), START, 6), START + 30 * MINUTE, 7)
    assert moves_left(history, START + 59 * MINUTE, policy) == 0
    assert moves_left(history, START + 60 * MINUTE, policy) == 3
    assert moved(history, START + 95 * MINUTE, 0).moves == ()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_history_survives_a_restart(wishes):
    _, history, _ = drive(wishes, ScalingPolicy(scale_down_dwell=3 * MINUTE))
    assert ScalingHistory.from_json(history.to_json()) == history


def test_what_a_restart_finds_is_what_was_kept_and_what_is_missing_is_empty():
    history = ScalingHistory((Wish(START, 3),), (Change(START, 2, 5),), ((START + MINUTE, 4),))
    kept = history.to_json()
    assert ScalingHistory.from_json(kept) == history
    for gone in ("wishes", "changes", "moves"):
        rest = ScalingHistory.from_json({key: value for key, value in kept.items() if key != gone})
        assert getattr(rest, gone) == ()
        assert sum(len(getattr(rest, name)) for name in ("wishes", "changes", "moves")) == 2


def test_moves_are_remembered_for_an_hour_beside_everything_else():
    history = ScalingHistory((Wish(START, 3),), (Change(START, 2, 5),), ((START, 4), (START + MINUTE, 2)))
    later = moved(history, START + 60 * MINUTE, 7)
    assert (later.wishes, later.changes) == (history.wishes, history.changes)
    assert later.moves == ((START + MINUTE, 2), (START + 60 * MINUTE, 7))
    assert moved(history, START + 60 * MINUTE, 0).moves == ((START + MINUTE, 2),)


def ago(*wishes, changes=()):
    """History of wishes (minutes ago, members) and of changes by one (minutes ago)."""
    return ScalingHistory(
        tuple(Wish(START - minutes * MINUTE, n) for minutes, n in wishes),
        tuple(Change(START - minutes * MINUTE, 3, 4) for minutes in changes),
    )


QUIET = ((3, 2), (2, 2), (1, 2))  # a dwell of two minutes is covered, and nothing more than two was wanted


@pytest.mark.parametrize(
    ("wanted", "history", "now_is", "size", "reason"),
    [
        (4, ago(), {}, 4, None),
        (5, ago(), {}, 5, None),
        (70, ago(), {}, 64, None),
        (5, ago(changes=(2.99,)), {}, 4, "no second change within the cooldown of 180 s"),
        (5, ago(changes=(3,)), {}, 5, None),
        (5, ago(changes=(2,)), {"urgent": True}, 5, None),
        (5, ago(changes=(90, 80)), {}, 5, None),
        (5, ago(changes=(90, 80, 70)), {}, 4, "3 changes a day are used up; a climb that is not urgent waits"),
        (5, ago(changes=(1440, 80, 70)), {}, 5, None),  # a day ago is no more within the day
        (5, ago(changes=(1439.9, 80, 70)), {}, 4, "3 changes a day are used up; a climb that is not urgent waits"),
        (5, ago(changes=(90, 80)), {"urgent": True}, 5, None),
        (5, ago(changes=(90, 80, 70)), {"urgent": True}, 5,
         "3 changes a day are used up; climbs all the same: records are late"),
        (1, ago((1, 1)), {}, 4, "3 members less wait: fewer than 4 must be wanted for 120 s"),
        (1, ago((1.99, 1), (1, 1)), {}, 4, "3 members less wait: fewer than 4 must be wanted for 120 s"),
        (1, ago((2, 1), (1, 1)), {}, 1, None),
        (0, ago((2, 1), (1, 1)), {}, 1, None),
        (1, ago((3, 4), (2, 1), (1, 1)), {}, 1, None),  # what was wanted before the dwell counts no more
        (1, ago((3, 1), (1, 4)), {}, 4, "3 members less wait: fewer than 4 must be wanted for 120 s"),
        (1, ago((3, 1), (1, 3)), {}, 3, "3 members stay: so many were wanted within the last 120 s"),
        (2, ago(*QUIET), {}, 2, None),
        (2, ago(*QUIET, changes=(1.99,)), {}, 4, "2 members less wait: 120 s from the last change"),
        (2, ago(*QUIET, changes=(2,)), {}, 4, "no second change within the cooldown of 180 s"),
        (2, ago(*QUIET, changes=(3,)), {}, 2, None),
        (2, ago(*QUIET), {"backlog_falls": True}, 4, "2 members less wait until the backlog is worked off"),
        (2, ago(*QUIET, changes=(90,)), {}, 2, None),
        (2, ago(*QUIET, changes=(90, 80)), {}, 4, "3 changes a day are used up; a fall waits"),
    ],
)  # fmt: skip
def test_every_answer_says_what_it_waits_for(wanted, history, now_is, size, reason):
    policy = ScalingPolicy(scale_down_dwell=2 * MINUTE, cooldown=3 * MINUTE, rescales_per_day=3)
    answer = stabilize(wanted, 4, START, history, policy, **now_is)
    assert (answer.replicas, answer.reasons) == (size, () if reason is None else (reason,))


@pytest.mark.parametrize(
    ("dwell_s", "gap_s", "falls"),
    [(600, 300, True), (600, 300.1, False), (120, 120, True), (180, 120, True), (180, 120.1, False)],
)
def test_only_a_planner_that_looked_often_enough_vouches_for_a_dwell(dwell_s, gap_s, falls):
    policy = ScalingPolicy(scale_down_dwell=timedelta(seconds=dwell_s))
    ticks = [START - timedelta(seconds=s) for s in (dwell_s + 1, dwell_s, gap_s) if s >= gap_s]
    while ticks[-2] < ticks[-1] - MINUTE:  # looked every minute until the gap began
        ticks.insert(-1, ticks[-2] + MINUTE)
    history = ScalingHistory(tuple(Wish(at, 2) for at in ticks))
    assert (stabilize(2, 4, START, history, policy).replicas == 2) is falls


def test_a_dwell_of_nothing_falls_at_once_whatever_was_wanted_before():
    policy = ScalingPolicy(scale_down_dwell=timedelta(0))
    assert stabilize(2, 4, START, ago((1, 4)), policy).replicas == 2
    assert stabilize(2, 4, START, ago(), policy).replicas == 2


def test_what_is_remembered_is_the_dwell_and_the_wish_that_vouches_for_its_beginning():
    policy = ScalingPolicy(scale_down_dwell=2 * MINUTE, max_replicas=9)
    history = ago((4, 1), (3, 2), (2, 3), (1, 4), changes=(1440, 1439))
    history = ScalingHistory(history.wishes, history.changes, ((START - MINUTE, 5),))
    after = stabilize(70, 5, START, history, policy).history
    assert after.wishes == (*history.wishes[2:], Wish(START, 9))
    assert (after.changes, after.moves) == (history.changes[1:], history.moves)
    assert stabilize(6, 5, START + 30 * timedelta(seconds=1), after, policy).history.wishes[0] == history.wishes[2]


def test_of_two_wishes_at_one_instant_the_later_one_counts():
    policy = ScalingPolicy(scale_down_dwell=2 * MINUTE)
    first = stabilize(9, 4, START, ago((1, 3)), policy).history
    again = stabilize(3, 4, START, first, policy).history
    assert again.wishes == (Wish(START - MINUTE, 3), Wish(START, 3))


def test_changes_are_remembered_for_a_day_beside_everything_else():
    history = ScalingHistory((Wish(START, 3),), (Change(START, 2, 5), Change(START + MINUTE, 5, 6)), ((START, 4),))
    later = changed(history, START + timedelta(days=1), 6, 7)
    assert (later.wishes, later.moves) == (history.wishes, history.moves)
    assert later.changes == (history.changes[1], Change(START + timedelta(days=1), 6, 7))
    assert changed(history, START + timedelta(days=1), 6, 6) is history
