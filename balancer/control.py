"""One tick of one group over ports: observe, forecast, plan, publish, actuate, verify."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from balancer.actuation import Actuation, ActuationState
from balancer.actuators.base import Actuator
from balancer.errors import ActuationError, ObserverUnavailable, PlanStoreUnavailable
from balancer.group import GroupSnapshot
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.observers.base import GroupObserver
from balancer.plan import ScalingPlan
from balancer.planner import DEFAULT_LEAD, plan
from balancer.plans.base import Decision, LeaderToken, PlanStore
from balancer.policy import ScalingPolicy
from balancer.prescaling import Rule
from balancer.verification import Verdict, verify
from forecaster.forecast import ForecastResult
from forecaster.topics import GroupId

ForecastSource = Callable[[GroupId, datetime], ForecastResult]
"""(group, now) → its forecast, or why there is none."""

PATIENCE_IN_LEADS = 3
"""An actuation that has not taken effect within so many lead times is reported as ineffective."""

MEMORY, KNOBS = "planner_memory", "knobs"


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick saw, chose and did; ``error`` says what went wrong, and then nothing was changed."""

    at: datetime
    snapshot: GroupSnapshot | None = None
    forecast: ForecastResult | None = None
    plan: ScalingPlan | None = None
    version: int | None = None
    actuation: Actuation | None = None
    verdict: Verdict | None = None
    error: str | None = None


@dataclass(slots=True)
class ControlLoop:
    """The control loop of one group; call :meth:`tick` once a minute while leading.

    Parameters
    ----------
    group
        Whom it controls.
    observer, actuator, plans
        Ports.
    forecast
        (group, now) → forecast.
    policy
        What the user wants.
    mode
        ``off`` does nothing, ``recommend`` and ``shadow`` plan and publish, ``act`` also actuates.
    rules
        Pre-scaling rules in force, asked at every tick.
    knobs
        Learned settings; None reads them from the plan store, and takes the defaults where there are none.
    timezone
        Zone in which reasons name hours.
    on_plan
        Told of every plan after it was published: the page's board, simulated members.
    """

    group: GroupId
    observer: GroupObserver
    forecast: ForecastSource
    plans: PlanStore
    actuator: Actuator
    policy: ScalingPolicy
    mode: str = "act"
    rules: Callable[[datetime], Sequence[Rule]] = lambda now: ()
    knobs: Knobs | None = None
    timezone: str = "UTC"
    on_plan: Callable[[ScalingPlan], None] = lambda made: None
    keeps_log: bool = True
    """Whether decisions and memory go to the plan store; a simulation of a month does without."""
    memory: PlannerMemory | None = None
    pending: Actuation | None = None
    lead_time: timedelta | None = field(default=None)
    """Measured lead time, when the policy sets none."""

    def tick(self, now: datetime, token: LeaderToken) -> Tick:
        """Observe, forecast, plan, publish, actuate, verify; a failure on the way holds what is there."""
        if self.mode == "off":
            return Tick(now)
        try:
            snapshot = self.observer.observe(self.group)
        except ObserverUnavailable as gone:
            return Tick(now, error=f"hold: {gone}")
        forecast = self.forecast(self.group, now)
        planned = plan(
            snapshot,
            forecast,
            self._policy(),
            now,
            knobs=self._knobs(),
            memory=self._recall(),
            rules=self.rules(now),
            timezone=self.timezone,
        )
        try:
            version = self.plans.publish(planned.plan, token)
        except PlanStoreUnavailable as gone:
            return Tick(now, snapshot, forecast, planned.plan, error=f"hold: {gone}")
        verdict = self._verify(snapshot, token)
        actuation, error = self._actuate(planned.plan, snapshot, now)
        self.memory = planned.memory
        self.on_plan(planned.plan)
        if self.keeps_log:
            self._keep(planned.plan, actuation, snapshot, now, token)
        return Tick(now, snapshot, forecast, planned.plan, version, actuation, verdict, error)

    def _policy(self) -> ScalingPolicy:
        if self.policy.lead_time is not None or self.lead_time is None:
            return self.policy
        return replace(self.policy, lead_time=self.lead_time)

    def _knobs(self) -> Knobs:
        if self.knobs is None:
            kept = self.plans.learned(self.group, KNOBS)
            self.knobs = Knobs.from_json(kept) if kept else Knobs()
        return self.knobs

    def _recall(self) -> PlannerMemory:
        if self.memory is None:
            kept = self.plans.learned(self.group, MEMORY)
            self.memory = PlannerMemory.from_json(kept) if kept else PlannerMemory()
        return self.memory

    def _actuate(
        self, made: ScalingPlan, snapshot: GroupSnapshot, now: datetime
    ) -> tuple[Actuation | None, str | None]:
        if self.mode != "act" or made.hold or made.replicas == snapshot.replicas:
            return None, None
        try:
            actuation = self.actuator.scale(self.group, made.replicas, now)
        except ActuationError as refused:
            return None, f"hold: {refused}"
        self.pending = actuation if actuation.state is ActuationState.PENDING else None
        return actuation, None

    def _verify(self, snapshot: GroupSnapshot, token: LeaderToken) -> Verdict | None:
        if self.pending is None:
            return None
        lead = self._policy().lead_time or DEFAULT_LEAD
        verdict = verify(self.pending, snapshot, PATIENCE_IN_LEADS * lead, snapshot.replicas)
        self.pending = None if verdict.is_final else verdict.actuation
        if verdict.lead_time is not None and self.policy.lead_time is None:
            self.lead_time = verdict.lead_time
            self.plans.learn(self.group, "lead_time", {"seconds": verdict.lead_time.total_seconds()}, token)
        return verdict

    def _keep(
        self,
        made: ScalingPlan,
        actuation: Actuation | None,
        snapshot: GroupSnapshot,
        now: datetime,
        token: LeaderToken,
    ) -> None:
        """Write the decision log and the memory, so that the next leader goes on where this one stopped."""
        if self.memory is not None:
            self.plans.learn(self.group, MEMORY, self.memory.to_json(), token)
        lag, covered = snapshot.lag
        rate, _ = snapshot.arrival_rate
        inputs: Mapping[str, Any] = {
            "replicas": snapshot.replicas,
            "working": snapshot.working,
            "lag": lag,
            "coverage": covered,
            "arrival_rate": rate,
            "knobs": self._knobs().to_json(),
        }
        acted = None
        if actuation is not None:
            acted = {
                "replicas": actuation.replicas,
                "previous": actuation.previous,
                "state": actuation.state.value,
                "detail": actuation.detail,
            }
        identity = f"{self.group}@{now.isoformat()}"
        self.plans.record(Decision(identity, self.group, now, self.mode, made, inputs, acted), token)
