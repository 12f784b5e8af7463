"""Workers as members of the planner, and who of them is slow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from balancer.assignment import assign
from balancer.group import GroupSnapshot, PartitionState
from balancer.leases.base import GroupView, Lease, LeaseState, Owner, WorkerProfile, WorkerState
from balancer.moves.members import Roster
from balancer.planner import plan
from balancer.policy import AssignmentKind, ScalingPolicy
from forecaster.forecast import NoForecast
from forecaster.topics import GroupId, TopicPartition

TPS = [TopicPartition("orders", i) for i in range(6)]


def worker(instance: int, capacity: float | None, *, live: bool = True, draining: bool = False) -> WorkerState:
    beat = {} if capacity is None else {"capacity": capacity}
    return WorkerState(
        Owner(instance, 1, "aa"), live, timedelta(seconds=1), True, True, draining, WorkerProfile(), beat
    )


def group(*workers: WorkerState) -> GroupView:
    count = len(TPS) // len(workers)
    leases = {
        tp: Lease(tp, LeaseState.HELD, workers[min(i // count, len(workers) - 1)].owner, 1) for i, tp in enumerate(TPS)
    }
    return GroupView(1, 1, {w.owner.instance: w for w in workers}, leases, {})


def test_members_carry_what_the_leases_say() -> None:
    made = Roster().look(group(worker(1, None), worker(2, None, draining=True)), 500.0)
    assert [(m.id, m.partitions, m.capacity, m.ready, m.draining) for m in made] == [
        ("1#1.aa", tuple(TPS[:3]), None, True, False),
        ("2#1.aa", tuple(TPS[3:]), None, True, True),
    ]


def test_the_dead_are_no_members() -> None:
    assert [m.id for m in Roster().look(group(worker(1, None), worker(2, None, live=False)), None)] == ["1#1.aa"]


def test_a_worker_far_under_its_peers_is_slow_from_the_second_look_on_and_until_it_is_well_above() -> None:
    roster = Roster()
    slow = group(worker(1, 100.0), worker(2, 1000.0), worker(3, 1100.0))
    assert all(m.capacity is None for m in roster.look(slow, 500.0))  # one look may be chance
    assert [m.capacity for m in roster.look(slow, 500.0)] == [500.0 * 100 / 1050, None, None]
    assert roster.reasons == {1: "sustains 100 records/s, 1050 are usual"}
    better = group(worker(1, 600.0), worker(2, 1000.0), worker(3, 1100.0))
    assert roster.look(better, 500.0)[0].capacity == 500.0 * 600 / 1050  # not well above: stays
    well = group(worker(1, 900.0), worker(2, 1000.0), worker(3, 1100.0))
    assert roster.look(well, 500.0)[0].capacity is None
    assert roster.look(slow, 500.0)[0].capacity is None  # and it takes two looks again


def test_a_lone_worker_is_judged_by_what_its_forecast_counts_on() -> None:
    roster = Roster()
    for _ in range(2):
        (member,) = roster.look(group(worker(1, 100.0)), 500.0)
    assert member.capacity == 100.0
    for _ in range(3):
        (member,) = Roster().look(group(worker(1, 100.0)), None)
        assert member.capacity is None  # nothing to compare with


def test_a_slow_worker_gives_partitions_to_idle_ones() -> None:
    roster = Roster()
    view = group(worker(1, 60.0), worker(2, 600.0), worker(3, 600.0))
    roster.look(view, 500.0)
    members = roster.look(view, 500.0)
    result = assign(dict.fromkeys(TPS, 40.0), members, capacity=500.0)
    assert len(result.assignment["1#1.aa"]) <= 1  # 50 records/s would fit there
    assert {m.source for m in result.moves} == {"1#1.aa"}


def test_the_plan_says_who_is_slow_and_what_is_planned_onto_it() -> None:
    roster, now = Roster(), datetime(2026, 1, 5, 9, tzinfo=UTC)
    view = group(worker(1, 60.0), worker(2, 600.0), worker(3, 600.0))
    roster.look(view, 500.0)
    states = {tp: PartitionState(0, 40.0) for tp in TPS}
    seen = GroupSnapshot(GroupId("orders"), now, 3, roster.look(view, 500.0), states)
    policy = ScalingPolicy(capacity_per_member=500.0, min_replicas=3, max_replicas=3, assignment=AssignmentKind.PLANNED)
    made = plan(seen, NoForecast("orders", now, "one day of history, two are needed"), policy, now).plan
    assert "1#1.aa is slow: 50 of 500 records/s are planned onto it" in made.reasons
    assert made.steps[0].assignment is not None
    assert len(made.steps[0].assignment["1#1.aa"]) <= 1
