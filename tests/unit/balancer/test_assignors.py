"""Kafka's own assignors, and the sizes that help under them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.assignors import (
    owner_under,
    paces,
    range_owner,
    roundrobin_owner,
    sticky_owner,
    uniform_owner,
)
from balancer.capacity import assigned_curve

KAFKAS = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")
OWNERS = st.lists(st.integers(-1, 12), max_size=40).map(lambda values: np.array(values, dtype=np.intp))


@pytest.mark.parametrize("name", KAFKAS)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 20))
def test_every_partition_has_one_owner_and_counts_are_even(name, topics, members):
    owner = owner_under(name, topics, members)
    assert owner.size == sum(topics) and ((owner >= 0) & (owner < members)).all()
    if name != "range":
        assert np.ptp(np.bincount(owner, minlength=members)) <= 1
    else:
        start = 0
        for partitions in topics:
            assert np.ptp(np.bincount(owner[start : start + partitions], minlength=members)) <= 1
            start += partitions


@pytest.mark.parametrize("deal", [sticky_owner, uniform_owner])
@given(OWNERS, st.integers(1, 12))
def test_sticky_ones_keep_counts_even_and_stay(deal, current, members):
    owner = deal(current, members)
    assert np.ptp(np.bincount(owner, minlength=members)) <= 1
    np.testing.assert_array_equal(deal(owner, members), owner)
    held = (current >= 0) & (current < members)
    quota = -(-current.size // members)
    least = sum(min(int((current[held] == m).sum()), quota) for m in range(members)) - members
    assert (owner[held] == current[held]).sum() >= least  # all but the surplus stays


def test_range_as_the_client_does_it():
    assert range_owner([7], 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert range_owner([2, 2], 3).tolist() == [0, 1, 0, 1]  # the third member idles


def test_sticky_from_nothing_is_round_robin_and_uniform_fills_runs():
    nobody = np.full(7, -1, dtype=np.intp)
    assert sticky_owner(nobody, 3).tolist() == roundrobin_owner([7], 3).tolist()
    assert uniform_owner(nobody, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_b27_members_beyond_the_partitions_idle():
    assert np.unique(owner_under("range", [4], 6)).size == 4
    shares = paces(np.ones(4), 6, "range")[0]
    assert shares[3] == shares[4] == shares[5] == 0.25


def test_b16_sized_by_the_busiest_member_not_by_the_mean():
    loads = np.array([90.0, 90.0, 1.0, 1.0, 1.0, 1.0])
    curve = assigned_curve(100.0, loads, 6, "range")
    assert curve.need(np.array([loads.sum()])) == 6  # ceil(184 / 100) = 2 would put 181 on the first one
    assert np.bincount(range_owner([6], 5), loads).max() > 100 >= np.bincount(range_owner([6], 6), loads).max()


def test_e2_no_extra_members_where_one_partition_is_the_bound():
    curve = assigned_curve(100.0, np.array([500.0] + [1.0] * 31), 64, "planned")
    assert curve.need(np.array([531.0])) == 2 and curve.rates[-1] < 531


def test_sizes_that_divide_evenly_are_preferred():
    curve = assigned_curve(100.0, np.ones(32), 64, "roundrobin")
    assert np.unique(curve.useful[1:]).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 32]
    assert curve.need(np.array([1700.0, 3000.0])).tolist() == [32, 32]  # 31 members leave two partitions on one


@given(st.lists(st.floats(0, 100), min_size=1, max_size=24), st.sampled_from([*KAFKAS, "planned"]))
def test_the_busiest_member_has_at_least_the_mean(values, assignor):
    busiest, shared = paces(np.array(values), 30, assignor)
    assert busiest[0] == pytest.approx(1.0)
    assert (busiest >= 1 / np.arange(1, 31) - 1e-9).all()
    assert (shared <= busiest).all()


def test_several_topics_and_none():
    shares = paces(np.ones(4), 6, "range", [2, 2])[0]
    assert shares.tolist() == [1.0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert paces(np.empty(0), 2, "range")[0].tolist() == [1.0, 0.5]
    assert paces(np.zeros(4), 2, "range")[0].tolist() == [1.0, 0.5]
    many = paces(np.ones(3000), 50, "planned")[0]
    assert (np.diff(many) <= 0).all()


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError):
        owner_under("fair", [3], 2)
    with pytest.raises(ValueError, match="depends on loads"):
        owner_under("planned", [3], 2)
    with pytest.raises(ValueError, match="members=0"):
        range_owner([3], 0)
    with pytest.raises(ValueError, match="finite"):
        paces(np.array([-1.0]), 2, "range")[0]
