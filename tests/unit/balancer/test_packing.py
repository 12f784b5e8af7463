"""Packing onto given members, and its bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from balancer.packing.bounds import fewest_members, l2_bound
from balancer.packing.exact import fewest_bins, pack_exactly
from balancer.packing.members import pack
from balancer.packing.rivals import best_fit_decreasing
from balancer.packing.search import cheapest_sufficient
from tests.unit.balancer.invariants import check_packing

LOAD = st.one_of(st.just(0.0), st.floats(0.01, 150.0))


@st.composite
def situations(draw, max_partitions=20, max_members=8):
    partitions = draw(st.integers(0, max_partitions))
    members = draw(st.integers(1, max_members))
    loads = draw(hnp.arrays(float, partitions, elements=LOAD))
    capacity = draw(hnp.arrays(float, members, elements=st.sampled_from([0.0, 50.0, 100.0, 100.0, 400.0])))
    capacity[draw(st.integers(0, members - 1))] = 100.0
    owner = draw(hnp.arrays(np.intp, partitions, elements=st.integers(-1, members - 1)))
    return loads, capacity, owner


def overload(loads, capacity, owner):
    return np.maximum(np.bincount(owner, loads, capacity.size) - capacity, 0).sum()


@settings(max_examples=40)
@given(situations(), st.one_of(st.none(), st.integers(0, 5)), st.randoms(use_true_random=False))
def test_every_packing_keeps_the_invariants(situation, budget, random):
    loads, capacity, owner = situation
    pinned = np.array([random.random() < 0.2 for _ in loads], dtype=bool)
    preferred = np.array([[random.random() < 0.5 for _ in capacity] for _ in loads]).reshape(loads.size, capacity.size)
    packing = pack(loads, capacity, owner, budget=budget, pinned=pinned, preferred=preferred)
    check_packing(packing, loads, capacity, owner)
    usable = (owner >= 0) & (capacity[owner] > 0) if owner.size else np.array([], bool)
    assert not (packing.moved & usable & pinned).any()
    if budget is not None:
        assert (packing.moved & usable).sum() <= budget


@settings(max_examples=40)
@given(situations())
def test_packing_again_moves_nothing(situation):
    loads, capacity, owner = situation
    once = pack(loads, capacity, owner)
    again = pack(loads, capacity, once.owner)
    check_packing(again, loads, capacity, once.owner)
    # A second look may still improve (each cures one reason), but it must come to rest.
    for _ in range(20):
        if not again.moved.any():
            break
        before = again
        again = pack(loads, capacity, before.owner)
    assert not again.moved.any()


@settings(max_examples=40)
@given(situations())
def test_what_moves_makes_it_better(situation):
    loads, capacity, owner = situation
    if owner.size == 0 or not ((owner >= 0) & (capacity[owner] > 0)).all():
        return
    packing = pack(loads, capacity, owner)
    check_packing(packing, loads, capacity, owner)
    if packing.moved.any():
        before = np.bincount(owner, loads, capacity.size)[capacity > 0] / capacity[capacity > 0]
        assert overload(loads, capacity, packing.owner) < overload(loads, capacity, owner) + 1e-9 * loads.sum() or (
            packing.utilization.max() < before.max()
        )
        assert before.max() > 0.5 * 0.999  # nothing moves for nobody's good


@settings(max_examples=25)
@given(situations(max_partitions=8, max_members=4))
def test_exact_is_never_worse_than_the_heuristic(situation):
    loads, capacity, owner = situation
    quick, best = pack(loads, capacity, owner), pack_exactly(loads, capacity, owner)
    check_packing(quick, loads, capacity, owner)
    check_packing(best, loads, capacity, owner)
    scale = 1e-5 * max(loads.sum(), 1.0)
    assert overload(loads, capacity, best.owner) <= overload(loads, capacity, quick.owner) + scale


@settings(max_examples=40)
@given(hnp.arrays(float, st.integers(1, 9), elements=st.integers(0, 130).map(float)))
def test_bounds_enclose_the_optimum(loads):
    optimum = fewest_bins(loads, 100.0)
    by_volume = math.ceil(float(np.minimum(loads, 100.0).sum()) / 100.0)
    assert by_volume <= l2_bound(loads, 100.0) <= optimum
    assert optimum <= len(np.unique(best_fit_decreasing(loads, np.full(loads.size, -1), 100.0)[loads > 0]))
    assert l2_bound(loads, 100.0) >= 2 / 3 * optimum - 1e-9
    slow = l2_slow(loads.tolist(), 100.0)
    assert l2_bound(loads, 100.0) == slow


def l2_slow(loads, capacity):
    """The definition, word by word."""
    s = [min(x, capacity) for x in loads if x > 0]
    best = 0
    for alpha in [0.0] + [x for x in s if x <= capacity / 2]:
        j1 = [x for x in s if x > capacity - alpha + 1e-9]
        j2 = [x for x in s if capacity / 2 + 1e-9 < x <= capacity - alpha + 1e-9]
        j3 = [x for x in s if alpha <= x <= capacity / 2 + 1e-9]
        rest = (sum(j3) - (len(j2) * capacity - sum(j2))) / capacity
        best = max(best, len(j1) + len(j2) + max(0, int(np.ceil(rest - 1e-9))))
    return best


def test_a_member_that_must_go_gives_everything_away():
    loads, owner = np.array([10.0, 20.0, 30.0]), np.array([0, 0, 1])
    packing = pack(loads, np.array([0.0, 100.0]), owner)
    check_packing(packing, loads, np.array([0.0, 100.0]), owner)
    assert packing.owner.tolist() == [1, 1, 1]


def test_b30_small_unevenness_moves_nothing():
    loads, owner = np.full(8, 10.0), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    loads[0] = 14.0
    capacity = np.array([60.0, 60.0])
    packing = pack(loads, capacity, owner)
    check_packing(packing, loads, capacity, owner)
    assert not packing.moved.any()


def test_e1_a_heavy_partition_gets_a_member_alone():
    loads = np.array([240.0] + [10.0] * 15)
    capacity = np.full(3, 250.0)
    packing = pack(loads, capacity, np.arange(16) % 3)
    check_packing(packing, loads, capacity, np.arange(16) % 3)
    assert (packing.owner == packing.owner[0]).sum() == 1
    assert packing.utilization.max() <= 1.0


def test_a_hot_partition_is_isolated_and_then_left_alone():
    loads, capacity, owner = np.array([300.0, 10.0, 10.0, 50.0]), np.full(2, 100.0), np.array([0, 0, 0, 1])
    packing = pack(loads, capacity, owner)
    check_packing(packing, loads, capacity, owner)
    assert packing.owner.tolist() == [0, 1, 1, 1]
    assert not pack(loads, capacity, packing.owner).moved.any()


def test_idle_partitions_are_spread_by_count():
    packing = pack(np.zeros(9), np.full(3, 100.0), np.full(9, -1))
    check_packing(packing, np.zeros(9), np.full(3, 100.0), np.full(9, -1))
    assert np.bincount(packing.owner).tolist() == [3, 3, 3]


def test_a_near_member_is_preferred_but_never_overloaded():
    loads, capacity, owner = np.array([60.0, 60.0]), np.full(2, 100.0), np.full(2, -1)
    near = np.array([[False, True], [False, True]])
    packing = pack(loads, capacity, owner, preferred=near)
    check_packing(packing, loads, capacity, owner)
    assert sorted(packing.owner.tolist()) == [0, 1]
    one = pack(loads[:1], capacity, owner[:1], preferred=near[:1])
    assert one.owner.tolist() == [1]


def test_a_fresh_packing_is_taken_where_moves_and_swaps_end():
    rng = np.random.default_rng(3)
    loads = rng.uniform(20, 60, 24)
    capacity = np.full(10, loads.sum() / 10 / 0.97)
    owner = np.zeros(24, dtype=np.intp)
    packing = pack(loads, capacity, owner)
    check_packing(packing, loads, capacity, owner)
    assert packing.utilization.max() < 1.03


def test_no_capacity_is_refused():
    with pytest.raises(ValueError, match="no member has capacity"):
        pack(np.ones(2), np.zeros(2), np.zeros(2, dtype=np.intp))
    with pytest.raises(ValueError, match="finite"):
        pack(np.array([np.nan]), np.ones(1), np.zeros(1, dtype=np.intp))


@given(hnp.arrays(float, st.integers(1, 14), elements=st.floats(0.1, 50)), st.floats(0.1, 100))
def test_what_is_given_away_is_sufficient_and_the_cheapest(sizes, excess):
    gone = cheapest_sufficient(sizes, excess)
    if sizes.size == 1:
        assert gone.size == 0
        return
    assert len(set(gone.tolist())) == gone.size
    if sizes.sum() > excess:
        assert sizes[gone].sum() >= excess * (1 - 1e-6)
        single = sizes[sizes >= excess]
        if single.size and sizes.size <= 12:
            assert sizes[gone].sum() <= single.min() * (1 + 1e-6)


def test_unequal_members_are_bound_by_volume():
    assert fewest_members(np.array([60.0, 60.0, 60.0]), np.full(2, 100.0)) is None
    assert fewest_members(np.array([60.0, 60.0, 60.0]), np.full(4, 100.0)) == 3
    assert fewest_members(np.array([150.0, 60.0]), np.array([50.0, 200.0, 50.0])) == 2
    assert fewest_members(np.zeros(3), np.zeros(2)) == 0
