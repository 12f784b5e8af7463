"""Who goes on a scale-down of a planned group: chosen first, drained, and only then named to the target."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.actuation import Actuation, ActuationState
from balancer.control import DRAINED_WITHIN, ControlLoop
from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.knobs import Knobs
from balancer.ownership import leavers
from balancer.plan import ScalingPlan
from balancer.plans.base import LeaderToken
from balancer.plans.memory import MemoryPlanStore
from balancer.policy import AssignmentKind, ScalingPolicy
from forecaster.forecast import NoForecast
from forecaster.topics import GroupId, TopicPartition

G = GroupId("orders")
T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
TICK = timedelta(seconds=15)
POLICY = ScalingPolicy(
    capacity_per_member=10.0, lead_time=timedelta(seconds=60), assignment=AssignmentKind.PLANNED, moves_per_hour=10_000
)


class Ring:
    """Four members of a planned group with sixteen partitions; moves follow the published plan one tick later."""

    def __init__(self, pods: bool = True, moves: bool = True) -> None:
        self.now, self.rate, self.replicas, self.moves = T0, 20.0, 4, moves
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.members = [
            Member(f"{n}#1.n{n}", self._owned(n - 1), pod=f"orders-{n - 1}" if pods else None) for n in (1, 2, 3, 4)
        ]

    def _owned(self, n: int) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition("t", p) for p in range(n, 16, 4))

    def observe(self, group: GroupId) -> GroupSnapshot:
        states = {TopicPartition("t", p): PartitionState(0, self.rate / 16) for p in range(16)}
        return GroupSnapshot(G, self.now, self.replicas, tuple(self.members), states, GroupProtocol.PLANNED)

    def follow(self, plan: ScalingPlan) -> None:
        owned = plan.steps[0].assignment
        if self.moves and owned is not None:
            self.members = [replace(m, partitions=owned.get(m.id, ())) for m in self.members]

    def current(self, group: GroupId) -> int | None:
        return self.replicas

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        before, self.replicas = self.replicas, replicas
        self.asked.append((replicas, leaving))
        gone = {name.partition("@")[0] for name in leaving}
        assert self.moves is False or not any(m.partitions for m in self.members if m.id in gone)
        self.members = [m for m in self.members if m.id not in gone]
        return Actuation(group, now, replicas, before, ActuationState.PENDING)

    def close(self) -> None:
        """Nothing is held."""


def started(ring: Ring) -> tuple[ControlLoop, LeaderToken]:
    plans = MemoryPlanStore(clock=lambda: ring.now)
    token = plans.lead(G, "me", timedelta(days=1))
    assert token is not None
    nothing = NoForecast("t", T0, "no history")
    knobs = Knobs(dwell=timedelta(minutes=1))
    loop = ControlLoop(G, ring, lambda g, now: nothing, plans, ring, POLICY, knobs=knobs, on_plan=ring.follow)
    return loop, token


def run(ring: Ring, loop: ControlLoop, token: LeaderToken, until: timedelta) -> list[str]:
    said = []
    end = ring.now + until
    while ring.now < end and len(ring.asked) < 1:
        tick = loop.tick(ring.now, token)
        assert tick.error is None
        assert tick.snapshot is not None
        said.append(f"{tick.plan and tick.plan.replicas} {tick.snapshot.replicas}")
        ring.now += TICK
    return said


def test_the_highest_ordinal_hands_over_before_the_target_hears_of_it() -> None:
    ring = Ring()
    loop, token = started(ring)
    loop.tick(ring.now, token)
    ring.rate = 8.0
    run(ring, loop, token, timedelta(hours=2))
    (asked,) = ring.asked
    assert asked[0] < 4
    assert asked[1] == tuple(f"{n}#1.n{n}@orders-{n - 1}" for n in range(asked[0] + 1, 5))
    assert {p for m in ring.members for p in m.partitions} == {TopicPartition("t", p) for p in range(16)}


def test_who_cannot_be_drained_does_not_hold_the_scale_down_up_for_ever() -> None:
    ring = Ring(moves=False)
    loop, token = started(ring)
    loop.tick(ring.now, token)
    ring.rate = 8.0
    before = ring.now
    decided = None
    while not ring.asked and ring.now < before + timedelta(hours=2):
        plan = loop.tick(ring.now, token).plan
        if decided is None and plan is not None and plan.replicas < 4:
            decided = ring.now
        ring.now += TICK
    assert ring.asked
    assert decided is not None
    assert timedelta(0) <= ring.now - decided - DRAINED_WITHIN <= 2 * TICK


def test_a_rise_while_somebody_drains_keeps_them() -> None:
    ring = Ring(moves=False)
    loop, token = started(ring)
    loop.tick(ring.now, token)
    ring.rate = 8.0
    while (plan := loop.tick(ring.now, token).plan) is not None and plan.replicas == 4:
        ring.now += TICK
    ring.rate = 22.0
    for _ in range(40):
        ring.now += TICK
        loop.tick(ring.now, token)
    assert all(replicas >= 4 for replicas, _ in ring.asked)


@pytest.mark.parametrize("mode", ["recommend", "shadow"])
def test_nobody_is_drained_for_a_target_that_is_not_acted_on(mode: str) -> None:
    ring = Ring(moves=False)
    loop, token = started(ring)
    loop.mode = mode
    ring.rate = 8.0
    run(ring, loop, token, timedelta(minutes=30))
    assert ring.asked == []
    assert loop._draining is None


@given(
    st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=20, unique_by=lambda m: m[0]),
    st.integers(0, 25),
)
def test_whoever_stays_has_a_lower_ordinal_than_whoever_goes(made: list[tuple[int, bool]], replicas: int) -> None:
    members = [Member(f"{i + 1}#1.x", pod=f"web-{n}", draining=gone) for i, (n, gone) in enumerate(made)]
    going = leavers(members, replicas)
    staying = [m for m in members if m not in going and not m.draining]
    assert len(staying) == min(replicas, sum(not gone for _, gone in made))
    ordinals = [int((m.pod or "").rpartition("-")[2]) for m in going]
    assert all(int((m.pod or "").rpartition("-")[2]) < n for m in staying for n in ordinals)
    assert not any(m.draining for m in going)
