"""The real control tick over simulated members: what Headway itself would have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from balancer.control import ControlLoop
from balancer.group import Assignment
from balancer.knobs import Knobs
from balancer.plan import ScalingPlan
from balancer.plans.base import Decision, LeaderToken
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.simulator.forecasts import ForecastBatch, shares_at
from balancer.simulator.group import SimulatedGroup
from balancer.simulator.outcome import Outcome, conclude
from balancer.simulator.world import SIMULATED, World
from forecaster.forecast import ForecastResult, NoForecast
from forecaster.topics import GroupId

TOKEN = LeaderToken(SIMULATED, 1, "simulated", "simulator")


@dataclass(slots=True)
class LastPlan:
    """The plan store of a simulation: keeps the last plan and nothing else, so that a month takes seconds.

    Use :class:`balancer.plans.memory.MemoryPlanStore` where decisions should be kept.
    """

    version: int = 0
    plan: ScalingPlan | None = None
    settings: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def lead(self, group: GroupId, holder: str, ttl: timedelta) -> LeaderToken | None:
        """Everybody leads."""
        return TOKEN

    def resign(self, token: LeaderToken) -> None:
        """Nothing to give back."""

    def publish(self, plan: ScalingPlan, token: LeaderToken) -> int:
        """Keep the plan."""
        self.version += 1
        self.plan = plan
        return self.version

    def latest(self, group: GroupId) -> tuple[int, ScalingPlan] | None:
        """Return the last plan."""
        return None if self.plan is None else (self.version, self.plan)

    def record(self, decision: Decision, token: LeaderToken) -> None:
        """Decisions are not kept."""

    def decision(self, group: GroupId, id: str) -> Decision | None:
        """Return nothing: decisions are not kept."""

    def attach(self, group: GroupId, name: str, body: bytes, keep: timedelta, token: LeaderToken) -> None:
        """Nothing is attached."""

    def attached(self, group: GroupId, name: str) -> bytes | None:
        """Return nothing: nothing is attached."""

    def decisions(self, group: GroupId, since: datetime, limit: int = 1000) -> Sequence[Decision]:
        """Return nothing: decisions are not kept."""
        return ()

    def learn(self, group: GroupId, name: str, value: Mapping[str, Any], token: LeaderToken) -> None:
        """The control loop remembers by itself while it lives."""

    def learned(self, group: GroupId, name: str) -> Mapping[str, Any] | None:
        """Return None: nothing is kept."""
        return None

    def setting(self, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return an operator's setting."""
        return self.settings.get((scope, name))

    def set_setting(self, scope: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Keep or drop an operator's setting."""
        if value is None:
            self.settings.pop((scope, name), None)
        else:
            self.settings[scope, name] = value

    def swap_setting(
        self, scope: str, name: str, expected: Mapping[str, Any] | None, value: Mapping[str, Any] | None
    ) -> bool:
        """Keep or drop a setting if it still is what was read."""
        if self.setting(scope, name) != expected:
            return False
        self.set_setting(scope, name, value)
        return True

    def close(self) -> None:
        """Nothing to close."""


def policy_of(world: World, **changes: Any) -> ScalingPolicy:
    """Return the policy that fits a world; ``changes`` override its fields."""
    fields: dict[str, Any] = {
        "capacity_per_member": world.capacity,
        "lead_time": timedelta(seconds=world.start_s),
        "pause": timedelta(seconds=world.pause_s),
        "moves_stall_group": not world.pause_moved_only,
        "slo": timedelta(seconds=world.slo_s),
        "min_replicas": world.min_replicas,
        "max_replicas": world.max_replicas,
        "cap_at_partitions": world.trace.partitioned,
        "assignment": AssignmentKind.PLANNED if world.trace.partitioned else AssignmentKind.SCALE_ONLY,
    }
    return ScalingPolicy(**(fields | changes))


def forecast_source(world: World, batch: ForecastBatch | None) -> Callable[[GroupId, datetime], ForecastResult]:
    """Return the forecast port of a world from forecasts that were computed in batch."""
    minutes = world.trace.minutes() if world.trace.partitioned else None
    kept: dict[str, Any] = {"hour": -1, "shares": np.ones(1)}

    def forecast(group: GroupId, now: datetime) -> ForecastResult:
        minute = int((now - world.trace.start).total_seconds() // 60)
        if batch is None or not 0 <= minute - batch.first_minute < batch.total.shape[0]:
            return NoForecast(str(group), now, "too little history before the run")
        if minutes is not None and minute // 60 != kept["hour"]:
            kept["hour"], kept["shares"] = minute // 60, shares_at(minutes, minute)
        return batch.at(minute, now, kept["shares"])

    return forecast


def run_headway(
    world: World,
    batch: ForecastBatch | None,
    knobs: Knobs,
    policy: ScalingPolicy | None = None,
    *,
    on_tick: Callable[[SimulatedGroup, ScalingPlan], None] | None = None,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """Run Headway's own control tick once a minute in a world."""
    group = world.group()
    first = group.fleet.requested
    loop = control_loop(group, world, batch, knobs, policy, explains=on_tick is not None)
    for minute in range(world.run_minutes):
        group.advance_to(minute * 60.0)
        tick = loop.tick(group.now, TOKEN)
        if on_tick is not None and tick.plan is not None:
            on_tick(group, tick.plan)
    group.advance_to(world.run_minutes * 60.0)
    return conclude(group, world.start, first, world.slo_s, (f"knobs: {describe(knobs)}", *notes))


def control_loop(
    group: SimulatedGroup,
    world: World,
    batch: ForecastBatch | None,
    knobs: Knobs,
    policy: ScalingPolicy | None = None,
    *,
    explains: bool = True,
) -> ControlLoop:
    """Return the real control loop over a simulated group."""

    def follow(made: ScalingPlan) -> None:
        assignment: Assignment | None = made.steps[0].assignment
        if assignment is not None:
            group.follow(assignment)

    return ControlLoop(
        SIMULATED,
        group,
        forecast_source(world, batch),
        LastPlan(),
        group,
        policy or policy_of(world),
        knobs=knobs,
        on_plan=follow,
        keeps_log=False,
        explains=explains,
    )


def describe(knobs: Knobs) -> str:
    """Return knobs in words."""
    dwell = knobs.dwell.total_seconds() / 60
    if not knobs.trust_forecast:
        return f"from what is seen alone, utilization {knobs.utilization:g}, dwell {dwell:g} min"
    return (
        f"levels {knobs.near_level:g} / {knobs.far_level:g}, price {knobs.price_h:g} h, slack {knobs.slack:g}, "
        f"dwell {dwell:g} min, floor {knobs.floor:g}, correction {knobs.correction:g}"
    )
