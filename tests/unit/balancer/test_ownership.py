"""Moves that nothing forces are made only where they gain more than they cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.ownership import loads_of, with_owners
from balancer.plan import PlannedStep
from balancer.policy import AssignmentKind, ScalingPolicy
from forecaster.forecast import Forecast, Rung
from forecaster.topics import GroupId, TopicPartition

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
P = [TopicPartition("orders", n) for n in range(8)]
PLANNED = ScalingPolicy(assignment=AssignmentKind.PLANNED, moves_stall_group=False)


def owners(members, loads, *, minutes, price_h=1.0, policy=PLANNED, racks=None):
    """Place partitions with the next change of size so many minutes ahead."""
    step = PlannedStep(NOW, len(members), 100.0)
    after = PlannedStep(NOW + timedelta(minutes=minutes), len(members) + 1, 100.0)
    seen = GroupSnapshot(
        GroupId("orders"),
        NOW,
        len(members),
        tuple(members),
        {p: PartitionState(0, v) for p, v in zip(P, loads, strict=False)},
        racks=racks or {},
    )
    known = dict(zip(P, loads, strict=False))
    steps, memory, why = with_owners([step, after], seen, known, policy, PlannerMemory(), 100.0, NOW, price_h)
    return steps[0], memory, why


UNEVEN = [Member("1#1.a", tuple(P[:5])), Member("2#1.b", tuple(P[5:]))]
LOADS = [16, 16, 16, 16, 16, 8, 8, 8]  # 80 % and 24 %


def test_levelling_is_done_where_it_pays_until_the_next_change():
    step, memory, _ = owners(UNEVEN, LOADS, minutes=120)
    assert step.moves
    assert memory.history.moves


@pytest.mark.parametrize("policy", [PLANNED, ScalingPolicy(assignment=AssignmentKind.PLANNED)])
def test_levelling_is_left_where_it_costs_more_than_it_gains(policy):
    step, memory, why = owners(UNEVEN, LOADS, minutes=5, policy=policy)
    assert not step.moves
    assert step.assignment == {m.id: m.partitions for m in UNEVEN}
    assert not memory.history.moves
    assert "partitions stay: to move them costs" in why[-1]
    assert owners(UNEVEN, LOADS, minutes=5, price_h=0.0, policy=policy)[0].moves  # a backlog: whatever betters it


@pytest.mark.parametrize(
    ("members", "loads"),
    [
        pytest.param(UNEVEN, [25, 25, 25, 25, 25, 8, 8, 8], id="a member above its capacity"),
        pytest.param([Member("1#1.a", tuple(P)), Member("2#1.b")], [10] * 8, id="a member that has nothing to do"),
        pytest.param([UNEVEN[0], Member("2#1.b", tuple(P[5:7]))], LOADS, id="a partition without an owner"),
    ],
)
def test_what_is_forced_is_never_priced(members, loads):
    assert owners(members, loads, minutes=1, price_h=100.0)[0].moves


def test_an_unknown_load_counts_as_a_usual_one_here_as_in_the_assignment():
    """Three known partitions of 30 and an unknown one are 120 of 100: that is cured, whatever a move costs."""
    members = [Member("1#1.a", tuple(P[:4])), Member("2#1.b", tuple(P[4:5]))]
    step, _, why = owners(members, [30.0, 30.0, 30.0, None, 30.0], minutes=1, price_h=100.0)
    assert step.moves, why


def test_a_partition_without_an_owner_goes_to_the_rack_of_its_leader():
    members = [Member("1#1.a", (P[0],), rack="eu-1a"), Member("2#1.b", (P[1],), rack="eu-1b")]
    for rack, owner in (("eu-1a", "1#1.a"), ("eu-1b", "2#1.b")):
        step, _, _ = owners(members, [10.0, 10.0, 5.0], minutes=60, racks={P[2]: rack})
        assert P[2] in step.assignment[owner]


def test_the_load_of_a_partition_that_nobody_knows_is_not_known_and_not_nothing():
    """A partition that has just been added: not in the forecast yet, and its rate was not read."""
    rates = np.array([[[30.0]] * 12, [[20.0]] * 12])
    ahead = Forecast(
        "orders", NOW, timedelta(minutes=5), (0, 1), (0.5,), rates, rates.sum(axis=0), "test", Rung.OWN_MODEL
    )
    seen = {P[0]: PartitionState(0, 40.0), P[1]: PartitionState(0, None), P[2]: PartitionState(0, 5.0)}
    seen[P[3]] = PartitionState(None, None)
    snapshot = GroupSnapshot(GroupId("orders"), NOW, 1, (Member("a", tuple(P[:4])),), seen)
    steps = [PlannedStep(NOW, 1, 100.0)]
    assert loads_of(snapshot, ahead, Knobs(), steps, NOW) == {P[0]: 40.0, P[1]: 20.0, P[2]: 5.0, P[3]: None}
    assert loads_of(snapshot, None, Knobs(), steps, NOW) == {P[0]: 40.0, P[1]: None, P[2]: 5.0, P[3]: None}
