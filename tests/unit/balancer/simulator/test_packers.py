"""The published packing algorithms as policies of a simulation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.packing.rivals import RIVALS
from balancer.rivals.tuning import Wish
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.compare import run_rival
from balancer.simulator.packers import PACKERS, _served, numbered, run_packer
from balancer.simulator.world import World

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def world(rates, **more):
    """Return half an hour of steady partitions (records/s each) after an hour of history."""
    counts = np.repeat(60.0 * np.array(rates, dtype=float)[:, None], 90, axis=1)
    trace = ArrivalTrace(T0, 60, counts, True)
    return World(trace, T0 + 60 * MINUTE, T0 + 90 * MINUTE, 10.0, **more)


@pytest.mark.parametrize("name", PACKERS)
def test_steady_partitions_take_the_members_that_the_algorithm_opens_and_no_record_waits(name):
    rates = np.array([6.0, 5.0, 4.0, 3.0, 2.0])
    steady = world(rates, start_s=0.0, pause_s=0.0)
    owner = steady.group().owners.astype(np.intp)
    outcome = run_packer(name, steady)
    opened = np.unique(RIVALS[name](rates, owner, 10.0, np.arange(5))).size
    assert outcome.late_share == 0.0
    assert outcome.changes[1 if outcome.rescales else 0][1] == opened
    assert 2 <= outcome.changes[-1][1] <= 3  # 20 records/s onto members of 10


def test_what_is_packed_onto_members_that_start_waits_where_it_is():
    """Load rises tenfold: the members come a start time later, and until then records wait with those who are there."""
    counts = np.full((4, 90), 60.0)
    counts[:, 75:] = 480.0
    trace = ArrivalTrace(T0, 60, counts, True)
    steady = World(trace, T0 + 60 * MINUTE, T0 + 90 * MINUTE, 10.0, start_s=300.0, slo_s=30.0)
    outcome = run_packer("mwf", steady)
    assert outcome.late_share > 0.05
    quick = World(trace, T0 + 60 * MINUTE, T0 + 90 * MINUTE, 10.0, start_s=10.0, slo_s=30.0)
    assert run_packer("mwf", quick).late_share < outcome.late_share


def test_the_limit_holds_and_every_partition_has_an_owner():
    outcome = run_packer("bfd", world([9.0] * 6, max_replicas=3))
    assert outcome.hours <= 3 * 0.5 + 1e-9


def test_a_pool_has_nothing_to_pack():
    trace = ArrivalTrace(T0, 60, np.full((1, 90), 600.0))
    with pytest.raises(ValueError, match="--partitions"):
        run_packer("mwf", World(trace, T0 + 60 * MINUTE, T0 + 90 * MINUTE, 10.0))


def test_it_is_a_rival_by_name():
    same = world([6.0, 5.0, 4.0])
    assert run_rival("mbf", same, Wish(late_share=1e-4)).hours == run_packer("mbf", same).hours


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20))
def test_numbers_are_without_a_gap_and_who_can_keep_one_does(owner):
    given_, count = numbered(np.array(owner))
    assert set(given_.tolist()) == set(range(count))
    for old, new in zip(owner, given_.tolist(), strict=True):
        assert new == old or old >= count
    assert len({(old, new) for old, new in zip(owner, given_.tolist(), strict=True)}) == count


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 6)), min_size=1, max_size=12), st.integers(0, 7))
def test_only_members_that_work_own_something(pairs, working):
    packed, owners = np.array([p for p, _ in pairs]), np.array([o for _, o in pairs])
    served = _served(packed, owners, working)
    if working == 0:
        assert (served == -1).all()
        return
    assert ((served >= 0) & (served < working)).all()
    assert (served[packed < working] == packed[packed < working]).all()
