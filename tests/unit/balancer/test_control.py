"""The one tick over ports: in-memory twins, failures on the way, and the same loop over simulated members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from balancer.actuation import Actuation, ActuationState
from balancer.actuators.board import ScalerBoard
from balancer.control import CAPACITY, KNOBS, LEAD_TIME, MEMORY, ControlLoop
from balancer.errors import ObserverUnavailable, PlanStoreUnavailable, StaleLeader, TargetUnavailable
from balancer.group import GroupSnapshot
from balancer.knobs import Knobs
from balancer.member_capacity import MemberInterval
from balancer.memory import PlannerMemory
from balancer.plan import BoundKind, ScalingPlan
from balancer.plans.base import LeaderToken
from balancer.plans.memory import MemoryPlanStore
from balancer.policy import ScalingPolicy
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.group import SimulatedGroup
from balancer.simulator.outcome import conclude
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.topics import GroupId

T0 = datetime(2026, 1, 5, tzinfo=UTC)
G = GroupId("orders")
POLICY = ScalingPolicy(capacity_per_member=10.0, lead_time=timedelta(seconds=120), cap_at_partitions=False)


def nothing(group: GroupId, now: datetime) -> NoForecast:
    return NoForecast(str(group), now, "no history")


def make(
    rate: float | NDArray[np.float64] = 30.0, mode: str = "act"
) -> tuple[ControlLoop, SimulatedGroup, MemoryPlanStore, LeaderToken]:
    trace = ArrivalTrace(T0, 60, np.full((1, 240), 60.0 * rate))
    group = SimulatedGroup(G, trace, capacity=10.0, start_s=120, pause_s=6, at=T0, working=1)
    store = MemoryPlanStore()
    token = store.lead(G, "me", timedelta(hours=9))
    assert token is not None
    return ControlLoop(G, group, nothing, store, group, POLICY, mode=mode), group, store, token


def run(loop: ControlLoop, group: SimulatedGroup, token: LeaderToken, minutes: int) -> None:
    for _ in range(minutes):
        group.advance_to(group.elapsed_s + 60)
        loop.tick(group.now, token)


def test_a_tick_observes_plans_publishes_actuates_and_verifies() -> None:
    loop, group, store, token = make()
    run(loop, group, token, 6)
    assert group.fleet.working >= 4
    latest = store.latest(G)
    assert latest is not None
    assert latest[1].replicas == group.fleet.requested
    decisions = store.decisions(G, T0)
    assert len(decisions) == 6
    assert decisions[0].actuation is not None
    assert loop.pending is None  # verified as effective


@pytest.mark.parametrize("mode", ["off", "recommend", "shadow"])
def test_only_mode_act_acts(mode: str) -> None:
    loop, group, store, token = make(mode=mode)
    run(loop, group, token, 5)
    assert group.fleet.requested == 1
    assert (store.latest(G) is None) == (mode == "off")


def test_b26_a_restart_goes_on_with_what_was_learned() -> None:
    loop, group, store, token = make()
    store.learn(G, KNOBS, Knobs(near_level=0.9).to_json(), token)
    run(loop, group, token, 8)
    again = ControlLoop(G, group, nothing, store, group, POLICY)
    again.tick(group.now, token)
    assert again.knobs is not None
    assert again.knobs.near_level == 0.9
    assert again.memory is not None
    assert len(again.memory.history.wishes) >= 8
    assert store.learned(G, MEMORY) is not None


class Blind(SimulatedGroup):
    def observe(self, group: GroupId) -> GroupSnapshot:
        raise ObserverUnavailable("the brokers do not answer")


class Stuck(SimulatedGroup):
    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        raise TargetUnavailable("the target does not answer")


class Deaf(MemoryPlanStore):
    def publish(self, plan: ScalingPlan, token: LeaderToken) -> int:
        raise PlanStoreUnavailable("the plan store does not answer")


@pytest.mark.parametrize("fault", ["observer", "actuator", "plans"])
def test_a_failure_on_the_way_holds_and_says_so(fault: str) -> None:
    loop, group, store, token = make(rate=5.0)
    kind = {"observer": Blind, "actuator": Stuck}.get(fault, SimulatedGroup)
    other = kind(G, group.trace, capacity=10.0, start_s=0, pause_s=0, at=T0, working=9)
    plans = Deaf() if fault == "plans" else store
    if fault == "plans":
        token = plans.lead(G, "me", timedelta(hours=1))  # type: ignore[assignment]
    loop = ControlLoop(G, other, nothing, plans, other, POLICY, knobs=Knobs(dwell=timedelta(minutes=1)))
    said = []
    for _ in range(120):
        other.advance_to(other.elapsed_s + 60)
        said.append(loop.tick(other.now, token).error)
    assert other.fleet.requested == 9
    assert any(error is not None and error.startswith("hold: the ") for error in said)


def test_a_stale_leader_is_told_so() -> None:
    loop, group, store, token = make()
    store.resign(token)
    assert store.lead(G, "other", timedelta(hours=1)) is not None
    with pytest.raises(StaleLeader):
        loop.tick(group.now, token)
    assert group.fleet.requested == 1


def no_answer(group: GroupId) -> str:
    raise TargetUnavailable("no answer from the API server")


@pytest.mark.parametrize(
    ("not_ready", "said"),
    [
        (lambda group: "", " s"),
        (lambda group: "orders-x (CrashLoopBackOff, 7 restarts)", "; orders-x (CrashLoopBackOff, 7 restarts)"),
        (no_answer, "; which ones, the target does not say: no answer from the API server"),
    ],
)
def test_b29_an_action_without_effect_is_reported(not_ready: Callable[[GroupId], str], said: str) -> None:
    trace = ArrivalTrace(T0, 60, np.full((1, 240), 1800.0))
    group = SimulatedGroup(G, trace, capacity=10.0, start_s=36000, pause_s=6, at=T0, working=1)
    store = MemoryPlanStore()
    token = store.lead(G, "me", timedelta(hours=9))
    assert token is not None
    loop = ControlLoop(G, group, nothing, store, group, replace(POLICY, max_replicas=5), not_ready=not_ready)
    vain = []
    for _ in range(20):
        group.advance_to(group.elapsed_s + 60)
        tick = loop.tick(group.now, token)
        if tick.verdict and tick.verdict.actuation.state is ActuationState.INEFFECTIVE:
            vain.append(tick.verdict.actuation)
    assert vain[0].detail.startswith("acted, not effective: ")
    assert vain[0].detail.endswith(said)
    kept = [d.actuation for d in store.decisions(G, T0) if d.actuation and d.actuation["state"] == "ineffective"]
    assert [acted["detail"] for acted in kept] == [a.detail for a in vain]


@pytest.mark.parametrize("partitions", [1, 12])
def test_k9_a_bottleneck_behind_the_members_stops_the_climb_and_takes_them_back(partitions: int) -> None:
    counts = np.full((partitions, 300), 60 * 80.0 / partitions)  # 80 records/s; eight members would do, were it not
    trace = ArrivalTrace(T0, 60, counts, partitioned=partitions > 1)
    group = SimulatedGroup(
        G, trace, capacity=10.0, start_s=120, pause_s=6, at=T0, working=2, downstream=20.0, pause_moved_only=True
    )
    store = MemoryPlanStore()
    token = store.lead(G, "me", timedelta(hours=9))
    assert token is not None
    policy = replace(POLICY, cap_at_partitions=partitions > 1, max_replicas=12, rescales_per_day=200)
    loop = ControlLoop(G, group, nothing, store, group, policy, knobs=Knobs(trust_forecast=False))
    bounds, sizes = [], []
    for _ in range(40):
        group.advance_to(group.elapsed_s + 60)
        tick = loop.tick(group.now, token)
        assert tick.plan is not None
        bounds.append(tick.plan.bound_by.kind)
        sizes.append(group.fleet.requested)
        if bounds[-1] is BoundKind.DOWNSTREAM:
            break
    assert max(sizes) > 2  # it climbed, as it had to
    assert bounds[-1] is BoundKind.DOWNSTREAM  # found out that this brings nothing
    assert sizes[-1] == 2  # and stepped back to what brought as much
    assert tick.plan is not None
    assert any("downstream is the bound" in reason for reason in tick.plan.reasons)
    kept = PlannerMemory.from_json(store.learned(G, MEMORY) or {})
    assert kept.downstream.limit == 2  # the next leader knows


def test_b5_nobody_leaves_while_a_backlog_is_worked_off() -> None:
    loop, group, _, token = make(rate=30.0)
    loop.knobs = Knobs(trust_forecast=False, utilization=0.9, dwell=timedelta(minutes=3))
    group.queues.backlog[:] = 9000.0
    waited = []
    for _ in range(60):
        group.advance_to(group.elapsed_s + 60)
        lag, before = float(group.queues.backlog.sum()), group.fleet.requested
        loop.tick(group.now, token)
        if group.fleet.requested < before:
            assert lag <= 0.5 * 60 * before * 10.0
        waited.append(lag)
    assert max(waited) > 1000 and waited[-1] < 1.0
    assert group.fleet.requested == 4


def test_forecasts_scale_ahead_of_the_rise() -> None:
    loop, group, _, token = make(rate=30.0)

    def rising(name: GroupId, now: datetime) -> Forecast:
        minutes = np.arange(0, 360, 5) + (now - T0).total_seconds() / 60
        total = np.where(minutes < 60, 30.0, 90.0)[:, None] * np.array([1.0, 1.05])
        levels = (0.5, 0.99)
        return Forecast(str(name), now, timedelta(minutes=5), (0,), levels, total[None], total, "test", Rung.OWN_MODEL)

    loop.forecast = rising
    run(loop, group, token, 50)
    assert group.fleet.working == 4
    run(loop, group, token, 10)
    assert group.fleet.working == 10  # before the rise at minute 60


def test_a_retry_flood_is_demand_of_its_own_beside_the_forecast() -> None:
    rates = np.full(240, 30.0)
    rates[30:45] = 90.0  # what fails is produced anew, twice; no forecast knows
    loop, group, _, token = make(rates)

    def usual(name: GroupId, now: datetime) -> Forecast:
        total = np.full((72, 1), 30.0) * np.array([1.0, 1.05])
        return Forecast(
            str(name), now, timedelta(minutes=5), (0,), (0.5, 0.99), total[None], total, "t", Rung.OWN_MODEL
        )

    loop.forecast = usual
    run(loop, group, token, 30)
    assert group.fleet.requested == 4
    group.advance_to(group.elapsed_s + 60)
    tick = loop.tick(group.now, token)
    assert tick.plan is not None and any("more to drain the backlog" in reason for reason in tick.plan.reasons)
    run(loop, group, token, 2)
    assert group.fleet.requested >= 9  # the flood, and what waits by now
    run(loop, group, token, 12)
    assert group.fleet.working >= 9 and group.queues.backlog.sum() < 90.0  # drained while it goes on
    drained = group.fleet.requested
    run(loop, group, token, 15)
    assert 4 <= group.fleet.requested <= 10 < drained  # who came to drain has left; the margin remembers the surprise


def busy(minute: int, consumed: int = 600) -> MemberInterval:
    return MemberInterval("a", T0 + timedelta(minutes=minute), 60.0, consumed, 900, 900)


def test_capacity_is_learned_from_busy_intervals_and_outlives_a_restart() -> None:
    loop, group, store, token = make()
    loop.policy = replace(POLICY, capacity_per_member=None)
    said: list[list[MemberInterval]] = [[MemberInterval("a", T0, 60.0, 300, 0, 0)], [busy(1)], [busy(2), busy(3)]]
    loop.intervals = lambda snapshot: said.pop(0) if said else []
    holds, unlocks = [], []
    for _ in range(4):
        group.advance_to(group.elapsed_s + 60)
        tick = loop.tick(group.now, token)
        assert tick.plan is not None
        assert loop.capacity is not None
        holds.append(tick.plan.hold)
        unlocks.append(loop.capacity.unlock)
    assert holds == [True, True, True, False]
    assert "at least 5 records/s): no member was busy yet" in str(unlocks[0])
    assert "1 of 3 busy intervals were seen; it is learned from 3 steps" in str(unlocks[1])
    assert unlocks[2:] == [None, None]
    kept = store.learned(G, CAPACITY)
    assert kept is not None
    assert kept["records_per_s"] == 10.0
    again = ControlLoop(G, group, nothing, store, group, loop.policy)
    assert again.learned_policy().capacity_per_member == 10.0
    configured = ControlLoop(G, group, nothing, store, group, POLICY)
    assert configured.learned_policy().capacity_per_member == POLICY.capacity_per_member


def test_lead_times_are_measured_by_verification_and_outlive_a_restart() -> None:
    loop, group, store, token = make()
    loop.policy = replace(POLICY, lead_time=None)
    run(loop, group, token, 6)
    kept = store.learned(G, LEAD_TIME)
    assert kept is not None
    assert kept["measured_s"][0] == 120.0
    again = ControlLoop(G, group, nothing, store, group, loop.policy)
    assert again.learned_policy().lead_time == timedelta(seconds=kept["seconds"])


def test_a_group_sleeps_through_the_silence_and_wakes_before_the_first_record() -> None:
    """Zero is a size, end to end: the loop, its simulated members, and what KEDA's scaler would be told meanwhile."""
    minutes = np.array([0.0] * 120 + [1800.0] * 60 + [0.0] * 120)  # two hours of silence, one of 30 records/s, silence
    group = SimulatedGroup(
        G, ArrivalTrace(T0, 60, minutes[None]), capacity=10.0, start_s=120, pause_s=6, at=T0, working=2
    )
    board, store = ScalerBoard(), MemoryPlanStore()
    token = store.lead(G, "me", timedelta(hours=9))
    assert token is not None

    def known(name: GroupId, now: datetime) -> Forecast:
        begin = int((now - T0).total_seconds() // 60)
        ahead = np.array(
            [minutes[begin + m : begin + m + 5].mean() if begin + m < 300 else 0.0 for m in range(0, 360, 5)]
        )
        total = np.repeat(ahead[:, None] / 60, 3, axis=1)
        return Forecast(
            "orders", now, timedelta(minutes=5), (0,), (0.5, 0.9, 0.99), total[None], total, "t", Rung.OWN_MODEL
        )

    policy = replace(POLICY, min_replicas=0)
    loop = ControlLoop(G, group, known, store, group, policy, knobs=Knobs(dwell=timedelta(minutes=5), price_h=0.05))
    active: list[bool] = []
    for minute in range(300):
        if minute:
            group.advance_to(minute * 60.0)
        tick = loop.tick(group.now, token)
        assert tick.plan is not None
        board.scale(G, tick.plan.replicas, group.now)
        posted = board.fresh(G, group.now)
        active.append(posted is not None and posted.replicas > 0)  # IsActive, as the external scaler answers it
        if minute == 120:
            assert group.fleet.working >= 3  # awake when the first record comes
    outcome = conclude(group, T0, 2, 60.0)
    assert outcome.late_share == 0.0
    assert not any(active[10:110]) and all(active[119:180]) and not any(active[200:])
    assert group.fleet.requested == 0


def test_a_record_that_nobody_foresaw_activates_a_sleeping_group_at_once() -> None:
    minutes = np.array([0.0] * 30 + [60.0] + [0.0] * 29)
    group = SimulatedGroup(
        G, ArrivalTrace(T0, 60, minutes[None]), capacity=10.0, start_s=30, pause_s=0, at=T0, working=0
    )
    store = MemoryPlanStore()
    token = store.lead(G, "me", timedelta(hours=9))
    assert token is not None
    loop = ControlLoop(G, group, nothing, store, group, replace(POLICY, min_replicas=0))
    run(loop, group, token, 30)
    assert group.fleet.requested == 0
    run(loop, group, token, 1)
    assert group.fleet.requested >= 1
    run(loop, group, token, 3)
    assert group.queues.backlog.sum() == 0
