from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.actuation import Actuation, ActuationState
from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.verification import Verdict, verify
from forecaster.topics import GroupId, TopicPartition

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ORDERS = GroupId("orders")
PATIENCE = timedelta(minutes=5)


def asked(replicas, previous=1):
    return Actuation(ORDERS, NOON, replicas, previous, ActuationState.PENDING)


def seen(owned, after_s=60, partitions=12, ready=True, draining=0):
    """Members that own so many partitions each; the first ``draining`` of them are on their way out."""
    members, first = [], 0
    for i, count in enumerate(owned):
        mine = tuple(TopicPartition("orders", p) for p in range(first, first + count))
        first += count
        members.append(Member(f"m{i}", mine, ready=ready, draining=i < draining))
    states = {TopicPartition("orders", p): PartitionState(0, 1.0) for p in range(partitions)}
    return GroupSnapshot(ORDERS, NOON + timedelta(seconds=after_s), len(owned), tuple(members), states)


def test_b27_members_that_own_nothing_are_not_capacity():
    after = verify(asked(5), seen([4, 4, 4, 0, 0], after_s=301), PATIENCE)
    assert after.actuation.state is ActuationState.INEFFECTIVE
    assert after.actuation.detail == "acted, not effective: 3 of 5 members own partitions after 301 s"
    assert verify(asked(5), seen([4, 4, 4, 0, 0], after_s=300), PATIENCE).actuation.state is ActuationState.PENDING


def test_b10_the_lead_time_ends_when_every_wanted_member_owns_something_not_at_a_tick():
    looks = [seen([12], 10), seen([6, 6], 47), seen([6, 6, 0], 61.5), seen([4, 4, 4], 95.25), seen([4, 4, 4], 120)]
    told = [verify(asked(3), look, PATIENCE).lead_time for look in looks]
    assert told[:4] == [None, None, None, timedelta(seconds=95.25)]  # well before a stabilization window is over


def test_b17_more_members_than_partitions_need_not_own_one_each():
    assert verify(asked(5), seen([1, 1, 1, 0, 0], partitions=3), PATIENCE).actuation.state is ActuationState.EFFECTIVE


def test_a_scale_down_is_effective_when_the_surplus_is_gone_and_measures_no_lead_time():
    assert verify(asked(2, previous=3), seen([6, 3, 3]), PATIENCE).actuation.state is ActuationState.PENDING
    done = verify(asked(2, previous=3), seen([6, 6]), PATIENCE)
    assert (done.actuation.state, done.lead_time) == (ActuationState.EFFECTIVE, None)


@pytest.mark.parametrize("previous", [None, 2])
def test_only_a_climb_from_a_known_size_measures_a_lead_time(previous):
    done = verify(asked(2, previous=previous), seen([6, 6]), PATIENCE)
    assert (done.actuation.state, done.lead_time) == (ActuationState.EFFECTIVE, None)


@pytest.mark.parametrize(
    ("snapshot", "missing"),
    [
        (seen([6, 3, 3]), "3 members live, 2 wanted"),
        (seen([6, 6], ready=False), "0 of 2 members are ready"),
        (seen([12]), "1 of 2 members are ready"),
        (seen([12, 0]), "1 of 2 members own partitions"),
        (seen([0, 0], partitions=1), "0 of 2 members own partitions"),
        (seen([2, 0], partitions=0), "1 of 2 members own partitions"),  # only the members say what there is
        (seen([6, 6], draining=1), "1 of 2 members are ready"),
    ],
)
def test_what_is_missing_is_told_from_the_first_tick(snapshot, missing):
    waits = verify(asked(2), snapshot, PATIENCE)
    assert not waits.is_final
    assert waits == Verdict(replace(asked(2), detail=missing))


@pytest.mark.parametrize(
    "snapshot",
    [
        seen([6, 6]),
        seen([0, 6, 6], draining=1),  # on its way out: neither one too many nor one of those asked for
        seen([1, 0], partitions=0),
        seen([0, 0], partitions=0),
    ],
)
def test_what_is_there_is_effective_and_says_after_how_long(snapshot):
    done = verify(asked(2), snapshot, PATIENCE)
    effective = replace(asked(2), state=ActuationState.EFFECTIVE, detail="effective after 60 s")
    assert done == Verdict(effective, timedelta(seconds=60))
    assert done.is_final


def test_a_snapshot_from_before_the_request_proves_nothing():
    assert verify(asked(2), seen([6, 6], after_s=-1), PATIENCE) == Verdict(asked(2))
    assert verify(asked(2), seen([6, 6], after_s=-0.5), PATIENCE) == Verdict(asked(2))
    assert verify(asked(2), seen([6, 6], after_s=0), PATIENCE).lead_time == timedelta(0)


def test_a_later_request_supersedes():
    verdict = verify(asked(2), seen([6, 6]), PATIENCE, requested_since=4)
    detail = "superseded by a request for 4"
    assert verdict == Verdict(replace(asked(2), state=ActuationState.SUPERSEDED, detail=detail))
    assert verify(asked(2), seen([6, 6]), PATIENCE, requested_since=2).actuation.state is ActuationState.EFFECTIVE


@pytest.mark.parametrize("state", [s for s in ActuationState if s is not ActuationState.PENDING])
def test_what_has_ended_stays_ended(state):
    ended = Actuation(ORDERS, NOON, 2, 1, state)
    assert verify(ended, seen([6, 6]), PATIENCE).actuation == ended


@given(
    wanted=st.integers(0, 8),
    owned=st.lists(st.integers(0, 3), max_size=8),
    ready=st.booleans(),
    after=st.integers(0, 900),
)
def test_every_actuation_is_final_once_patience_is_over(wanted, owned, ready, after):
    verdict = verify(asked(wanted), seen(owned, after_s=after, partitions=sum(owned), ready=ready), PATIENCE)
    if after > 300:
        assert verdict.is_final
    if verdict.lead_time is not None:
        assert verdict.actuation.state is ActuationState.EFFECTIVE
        assert wanted > 1
