"""Members and partitions by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.assignment import assign, leavers
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


def test_who_leaves_is_who_carries_least():
    owner = np.array([0, 0, 1, 2])
    assert leavers(np.array([5.0, 5.0, 1.0, 8.0]), np.full(4, 10.0), owner, 2).tolist() == [3, 1]
    with pytest.raises(ValueError, match="count=5"):
        leavers(np.ones(4), np.full(4, 10.0), owner, 5)


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


def test_all_or_nobody_may_leave_and_who_has_no_room_is_nobody():
    owner, room = np.array([0, 1, 2]), np.array([0.5, 9.0, 0.0])
    assert leavers(np.ones(3), room, owner, 0).tolist() == []
    assert leavers(np.ones(3), room, owner, 2).tolist() == [1, 0]  # of equals the last
    with pytest.raises(ValueError, match="within 0 and 2"):
        leavers(np.ones(3), room, owner, 3)
    with pytest.raises(ValueError, match="count=-1"):
        leavers(np.ones(3), room, owner, -1)


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
