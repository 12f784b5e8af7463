"""Members and partitions by name."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.assignment import AssignmentResult, assign
from balancer.group import Member
from balancer.movement import difference, worth_moving
from forecaster.topics import TopicPartition
from tests.unit.balancer.invariants import check_result

P = [TopicPartition("orders", n) for n in range(40)]


def team(*owned, **kwargs):
    return [Member(f"m{n}", tuple(P[i] for i in indices), **kwargs) for n, indices in enumerate(owned)]


@settings(max_examples=50)
@given(st.data())
def test_every_assignment_keeps_the_invariants(data):
    partitions = data.draw(st.integers(0, 20))
    members = data.draw(st.integers(1, 6))
    owner = data.draw(st.lists(st.integers(-2, members - 1), min_size=partitions, max_size=partitions))
    unknown = st.one_of(st.none(), st.floats(0, 150)) if data.draw(st.booleans()) else st.floats(0, 150)
    loads = {P[i]: data.draw(unknown) for i in range(partitions)}
    group = [
        Member(
            f"m{n}",
            capacity=data.draw(st.sampled_from([None, 50.0, 200.0])),
            draining=n > 0 and data.draw(st.booleans()),
            rack=data.draw(st.sampled_from([None, "a", "b"])),
        )
        for n in range(members)
    ]
    current = {m.id: tuple(P[i] for i in range(partitions) if owner[i] == n) for n, m in enumerate(group)}
    current["gone"] = tuple(P[i] for i in range(partitions) if owner[i] == -2)
    capacity = data.draw(st.sampled_from([None, 100.0]))
    budget = data.draw(st.one_of(st.none(), st.integers(0, 4)))
    racks = dict.fromkeys(loads, "a")
    result = assign(loads, group, capacity=capacity, current=current, move_budget=budget, racks=racks)
    check_result(result, loads, group, current)
    if result.hold:
        stays = [m for m in result.moves if m.source not in (None, "gone")]
        assert all(next(g for g in group if g.id == m.source).draining for m in stays)


def test_members_that_vanish_hand_their_partitions_over():
    group = team([0, 1])
    current = {"m0": (P[0], P[1]), "m1": (P[2], P[3])}
    result = assign(dict.fromkeys(P[:4], 10.0), group, capacity=100.0, current=current)
    check_result(result, dict.fromkeys(P[:4], 10.0), group, current)
    assert result.assignment == {"m0": tuple(P[:4])}
    assert "m1 left" in result.reasons


def test_unknown_capacity_holds_and_places_only_what_has_no_owner():
    group = team([0, 1, 2], [])
    loads = {P[0]: 500.0, P[1]: 500.0, P[2]: 1.0, P[3]: 5.0}
    result = assign(loads, group, capacity=None)
    check_result(result, loads, group, {m.id: m.partitions for m in group})
    assert result.hold and result.rscore is None and result.lower_bound is None
    assert [(m.partition, m.source) for m in result.moves] == [(P[3], None)]
    assert "capacity of m0 is not known" in result.reasons[-1]


def test_zero_capacity_is_refused():
    with pytest.raises(ValueError, match="capacity of m0 is 0"):
        assign({P[0]: 1.0}, team([0]), capacity=0.0)
    with pytest.raises(ValueError, match="capacity of m0 is nan"):
        assign({P[0]: 1.0}, team([0]), capacity=float("nan"))


def test_a_forecast_with_missing_partitions_leaves_them_where_they_are():
    group = team([0, 1, 2], [3])
    loads = {P[0]: 90.0, P[1]: 60.0, P[2]: None, P[3]: 10.0}
    result = assign(loads, group, capacity=100.0)
    check_result(result, loads, group, {m.id: m.partitions for m in group})
    assert P[2] in result.assignment["m0"] and result.moves
    assert any("orders:2 is not known" in r for r in result.reasons)


def test_nobody_left_is_refused():
    with pytest.raises(ValueError, match="nobody may own"):
        assign({P[0]: 1.0}, [Member("a", draining=True)], capacity=1.0)
    with pytest.raises(ValueError, match="share an id"):
        assign({P[0]: 1.0}, [Member("a"), Member("a")], capacity=1.0)
    with pytest.raises(ValueError, match="owned by a and by b"):
        assign({P[0]: 1.0}, [Member("a", (P[0],)), Member("b", (P[0],))], capacity=1.0)
    with pytest.raises(ValueError, match="the load of orders:0"):
        assign({P[0]: -1.0}, [Member("a")], capacity=1.0)


def test_faster_members_get_more():
    group = [Member("slow", capacity=50.0), Member("fast", capacity=200.0)]
    loads = dict.fromkeys(P[:10], 20.0)
    result = assign(loads, group, capacity=None)
    check_result(result, loads, group, {})
    assert result.utilization["slow"] == pytest.approx(result.utilization["fast"], abs=0.25)
    assert result.lower_bound == 1


def test_e1_skewed_topic_the_heavy_partition_is_alone():
    loads = {P[n]: (240.0 if n == 0 else 10.0) for n in range(25)}
    group = team(range(0, 25, 4), range(1, 25, 4), range(2, 25, 4), range(3, 25, 4))
    result = assign(loads, group, capacity=250.0)
    check_result(result, loads, group, {m.id: m.partitions for m in group})
    assert result.assignment["m0"] == (P[0],)
    assert result.hot == ()
    assert result.skew == pytest.approx(2.0)


def test_e2_a_hot_partition_is_named():
    result = assign({P[7]: 130.0, P[1]: 1.0}, team([7], [1]), capacity=100.0)
    assert result.hot == (P[7],) and not result.moves


def test_exact_is_an_option():
    loads = {P[n]: v for n, v in enumerate([60.0, 30.0, 20.0, 50.0, 40.0])}
    group = team([0, 1, 2], [3], [4])
    quick = assign(loads, group, capacity=100.0, skew_limit=4.0)
    best = assign(loads, group, capacity=100.0, skew_limit=4.0, exact=True)
    check_result(best, loads, group, {m.id: m.partitions for m in group})
    assert best.rscore is not None and quick.rscore is not None
    assert best.rscore == pytest.approx(0.2) and quick.rscore >= best.rscore


def test_racks_are_a_wish_and_never_a_reason():
    racks = {P[0]: "b", P[1]: "a"}
    here = [Member("a1", (P[0],), rack="a"), Member("b1", (P[1],), rack="b")]
    assert not assign({P[0]: 50.0, P[1]: 50.0}, here, capacity=100.0, racks=racks).moves
    empty = [replace(m, partitions=()) for m in here]
    assert assign({P[0]: 50.0, P[1]: 50.0}, empty, capacity=100.0, racks=racks).assignment == {
        "a1": (P[1],),
        "b1": (P[0],),
    }


def test_what_moves_between_two_assignments():
    before, after = {"a": (P[0], P[1])}, {"a": (P[0],), "b": (P[1], P[2])}
    moves = difference(before, after)
    assert [(m.partition, m.source, m.target) for m in moves] == [(P[1], "a", "b"), (P[2], None, "b")]


@given(st.floats(0, 5), st.integers(0, 600), st.integers(0, 50), st.floats(0, 1), st.floats(0, 2))
def test_a_dearer_movement_is_never_worth_more(saved, minutes, stops, each, once):
    span = timedelta(minutes=minutes)
    if worth_moving(saved, span, stops + 1, each, once):
        assert worth_moving(saved, span, stops, each, once)
        assert worth_moving(saved, 2 * span, stops, each, once)


def test_a_price_of_change_is_to_be_earned_too():
    hour = timedelta(hours=1)
    assert worth_moving(1, hour, stops=0, price_per_move_hours=1.0)
    assert not worth_moving(1, hour, stops=10, price_per_move_hours=0.1)  # what it costs is not earned by the same
    assert worth_moving(1, hour, stops=10, price_per_move_hours=0.05, price_of_change_hours=0.4)
    assert not worth_moving(1, hour, stops=10, price_per_move_hours=0.05, price_of_change_hours=0.5)


def test_each_reason_for_a_move_is_told_once():
    loads = {P[0]: 90.0, P[1]: 60.0, P[2]: 10.0, P[3]: 5.0}
    went = assign(
        loads, [Member("c", (P[0],)), Member("d")], capacity=100.0, current={"a": (P[1],), "b": (P[2],), "c": (P[0],)}
    )
    assert went.reasons[:2] == ("1 partitions had no owner", "a, b left")
    away = assign(
        {P[0]: 10.0, P[1]: 10.0},
        [Member("a", (P[0],), draining=True), Member("b", (P[1],), draining=True), Member("c")],
        capacity=100.0,
    )
    assert away.reasons == ("a, b gives everything away",)
    over = assign({P[0]: 90.0, P[1]: 60.0}, [Member("a", (P[0], P[1])), Member("b")], capacity=100.0)
    assert over.reasons == ("a would carry 150 % of its capacity",)
    level = assign(dict.fromkeys(P[:4], 22.0), [Member("a", tuple(P[:4])), Member("b")], capacity=100.0, skew_limit=1.5)
    assert level.reasons == ("the busiest member was above 1.5 times the mean",)


def test_what_is_refused_says_which_and_why():
    for loads, group, capacity, line in (
        ({P[0]: 1.0}, [Member("a"), Member("b", draining=True), Member("a")], 1.0, "two members share an id"),
        ({P[0]: 1.0}, [], 1.0, "nobody may own a partition: every member is draining or there is none"),
        ({P[0]: 1.0}, team([0], [0]), 1.0, "orders:0 is owned by m0 and by m1"),
        ({P[0]: math.inf}, team([0]), 1.0,
         "the load of orders:0 is inf; it must be finite and not negative, None if unknown"),
        ({P[0]: 1.0}, team([0]), math.inf, "the capacity of m0 is inf; it must be a positive number of records/s"),
        ({P[0]: 1.0}, [Member("a"), Member("b", capacity=-1.0)], 1.0,
         "the capacity of b is -1.0; it must be a positive number of records/s"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as refused:
            assign(loads, group, capacity=capacity)
        assert str(refused.value) == line


def test_small_figures_are_figures():
    result = assign({P[0]: 0.25, P[1]: 0.0}, team([0, 1]), capacity=0.5)
    assert (result.utilization, result.hot, result.moves) == ({"m0": 0.5}, (), ())


def test_a_result_is_priced_in_members_and_bounded():
    loads = {P[0]: 90.0, P[1]: 60.0, P[2]: 40.0, P[3]: 5.0}
    leaver = Member("b", (P[1], P[2]), draining=True)
    result = assign(loads, [Member("a", (P[0],)), leaver, Member("c"), Member("d")], capacity=200.0)
    assert result.assignment == {"a": (P[0],), "b": (), "c": (P[1],), "d": (P[2], P[3])}
    assert result.rscore == pytest.approx(0.5)  # 60 and 40 stop; what nobody owned stops nobody
    assert result.utilization == pytest.approx({"a": 0.45, "c": 0.3, "d": 0.225})
    assert result.skew == pytest.approx(0.45 / 0.325)
    assert (result.lower_bound, result.hot, result.hold) == (1, (), False)
    assert result.reasons == ("1 partitions had no owner", "b gives everything away")


def test_members_that_say_their_own_capacity_are_priced_in_the_fastest():
    group = [Member("slow", (P[0], P[1]), capacity=50.0), Member("fast", capacity=200.0)]
    result = assign({P[0]: 30.0, P[1]: 40.0}, group, capacity=None)
    stopped = sum({P[0]: 30.0, P[1]: 40.0}[m.partition] for m in result.moves)
    assert stopped > 0 and result.rscore == pytest.approx(stopped / 200.0)
    assert not result.hold
    usual = assign({P[0]: 30.0, P[1]: 40.0}, group, capacity=100.0)
    assert usual.moves == result.moves and usual.rscore == pytest.approx(stopped / 100.0)


def test_what_is_not_known_stops_at_no_price():
    group = [Member("a", (P[0], P[1]), draining=True), Member("b")]
    result = assign({P[0]: 50.0, P[1]: None}, group, capacity=200.0)
    assert len(result.moves) == 2 and result.rscore == pytest.approx(0.25)


def test_a_partition_that_fills_a_member_is_not_hot_and_an_unknown_one_never_is():
    group = team([0], [1], [2])
    assert assign({P[0]: 100.0, P[1]: 1.0, P[2]: 1.0}, group, capacity=100.0).hot == ()
    assert assign({P[0]: 100.1, P[1]: 1.0, P[2]: 1.0}, group, capacity=100.0).hot == (P[0],)
    assert assign({P[0]: 300.0, P[1]: None, P[2]: 300.0}, group, capacity=100.0).hot == (P[0], P[2])
    mixed = [replace(group[0], capacity=120.0), group[1], group[2]]
    assert assign({P[0]: 110.0, P[1]: 1.0, P[2]: 1.0}, mixed, capacity=100.0).hot == ()


def test_an_unknown_load_counts_as_the_mean_of_the_known_ones_where_it_must_be_placed():
    group = team([0], [1])
    loads = {P[0]: 60.0, P[1]: 10.0, P[2]: None, P[3]: None}
    result = assign(loads, group, capacity=1000.0)
    assert result.reasons == (
        "2 partitions had no owner", "the load of orders:2, orders:3 is not known: they stay where they are",
    )  # fmt: skip
    assert result.utilization == pytest.approx({"m0": 0.06, "m1": 0.08})
    assert result.rscore == 0.0
    nothing = assign(dict.fromkeys(P[:4]), team([], []), capacity=4.0)
    assert nothing.utilization == {"m0": 0.5, "m1": 0.5}  # of nothing known, all count one


def test_without_a_capacity_what_has_no_owner_is_spread_by_load():
    group = [Member("a", (P[0],)), Member("b"), Member("c", draining=True), Member("d")]
    loads = {P[0]: 0.9, P[1]: 0.5, P[2]: 0.2, P[3]: 0.2}
    result = assign(loads, group, capacity=None)
    assert result.assignment == {"a": (P[0],), "b": (P[1],), "c": (), "d": (P[2], P[3])}
    assert (result.utilization, result.skew, result.rscore, result.lower_bound) == ({}, None, None, None)
    assert (result.hot, result.hold) == ((), True)
    assert result.reasons == ("3 partitions had no owner", "the capacity of a is not known: hold what is owned")
    known = [replace(m, capacity=None if m.draining else 9.0) for m in group]
    assert not assign(loads, known, capacity=None).hold  # who leaves needs no capacity


def test_the_bare_assignment_is_the_same_without_its_explanation():
    loads = {P[0]: 90.0, P[1]: 60.0, P[2]: 40.0, P[3]: None}
    for capacity in (100.0, None):
        told = assign(loads, team([0, 1], [], [2]), capacity=capacity)
        bare = assign(loads, team([0, 1], [], [2]), capacity=capacity, explain=False)
        assert bare == AssignmentResult(told.assignment, told.moves, None, None, {}, (), (), told.hold)


def test_what_is_tolerated_unless_said_otherwise():
    def moved(loads, **kwargs):
        return bool(assign(loads, team([0, 1], [2, 3]), capacity=100.0, **kwargs).moves)

    level = {P[0]: 50.0, P[1]: 22.0, P[2]: 24.0, P[3]: 24.0}  # 72 over a mean of 60: 1.2
    tilted = {P[0]: 40.0, P[1]: 40.0, P[2]: 15.0, P[3]: 20.0}  # 80 over 57.5: 1.39
    assert not moved(level)
    assert moved(tilted)
    assert not moved(tilted, skew_limit=1.5)
    assert not moved(tilted, move_budget=0)


def test_skew_is_unknown_where_nothing_flows():
    assert assign(dict.fromkeys(P[:2], 0.0), team([0], [1]), capacity=1.0).skew is None
    assert assign({P[0]: 0.3, P[1]: 0.1}, team([0], [1]), capacity=1.0).skew == pytest.approx(1.5)


def test_racks_count_only_where_both_sides_name_one():
    loads, empty = dict.fromkeys(P[:2], 50.0), [Member("a1"), Member("b1")]
    plain = assign(loads, empty, capacity=100.0).assignment
    assert assign(loads, empty, capacity=100.0, racks={P[0]: "b"}).assignment == plain
    some = [Member("a1"), Member("b1", rack="b")]
    assert assign(loads, some, capacity=100.0, racks={P[0]: "b"}).assignment == {"a1": (P[1],), "b1": (P[0],)}
    assert assign(loads, some, capacity=100.0, racks={P[0]: "z"}).assignment == plain


def test_a_draining_member_is_no_reason_of_balance():
    group = [Member("a", (P[0],), draining=True), Member("b", (P[1],))]
    result = assign({P[0]: 500.0, P[1]: 60.0}, group, capacity=100.0)
    assert result.reasons == ("a gives everything away",)
    full = assign(dict.fromkeys(P[:4], 25.0), team(range(4), []), capacity=100.0)
    assert full.reasons == ("the busiest member was above 1.25 times the mean",)  # full is not over
