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
from balancer.leadtime import KEPT as KEPT_LEAD_TIMES
from balancer.leadtime import lead_time
from balancer.member_capacity import KEPT, CapacityEstimate, MemberInterval, learn_capacity
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

MEMORY, KNOBS, CAPACITY, LEAD_TIME = "planner_memory", "knobs", "capacity", "lead_time"
"""Names under which the plan store keeps what was learned."""


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
    advise: Callable[[ScalingPlan, datetime], ScalingPlan] = lambda made, now: made
    """Adds to a plan what is known beside the group itself: splits of routed topics."""
    keeps_log: bool = True
    """Whether decisions and memory go to the plan store; a simulation of a month does without."""
    memory: PlannerMemory | None = None
    pending: Actuation | None = None
    lead_time: timedelta | None = field(default=None)
    """Measured lead time, when the policy sets none."""
    intervals: Callable[[GroupSnapshot], Sequence[MemberInterval]] = lambda snapshot: ()
    """What members did since the last tick, to learn capacity from where the policy sets none."""
    capacity: CapacityEstimate | None = None
    """What was learned of a member's capacity; None where the policy sets one."""
    _taught: list[MemberInterval] = field(default_factory=list)
    _lead_times: list[timedelta] = field(default_factory=list)
    _recalled: bool = False

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
            self.learned_policy(),
            now,
            knobs=self._knobs(),
            memory=self._recall().until(now),
            rules=self.rules(now),
            timezone=self.timezone,
        )
        planned = replace(planned, plan=self.advise(planned.plan, now))
        try:
            version = self.plans.publish(planned.plan, token)
        except PlanStoreUnavailable as gone:
            return Tick(now, snapshot, forecast, planned.plan, error=f"hold: {gone}")
        verdict = self._verify(snapshot, token)
        self._learn_capacity(snapshot, token)
        actuation, error = self._actuate(planned.plan, snapshot, now)
        self.memory = planned.memory
        self.on_plan(planned.plan)
        if self.keeps_log:
            self._keep(planned.plan, actuation, snapshot, now, token)
        return Tick(now, snapshot, forecast, planned.plan, version, actuation, verdict, error)

    def learned_policy(self) -> ScalingPolicy:
        """Return the policy, with what was learned where it sets nothing."""
        if self.policy.lead_time is not None and self.policy.capacity_per_member is not None:
            return self.policy
        self._recall_learned()
        capacity = self.policy.capacity_per_member
        if capacity is None and self.capacity is not None:
            capacity = self.capacity.usable
        lead = self.policy.lead_time if self.policy.lead_time is not None else self.lead_time
        return replace(self.policy, capacity_per_member=capacity, lead_time=lead)

    def _recall_learned(self) -> None:
        if self._recalled:
            return
        if self.policy.capacity_per_member is None:
            kept = self.plans.learned(self.group, CAPACITY) or {}
            self._taught = [MemberInterval.from_json(i) for i in kept.get("intervals", ())]
            self.capacity = learn_capacity(self._taught)
        if self.policy.lead_time is None and self.lead_time is None:
            kept = self.plans.learned(self.group, LEAD_TIME) or {}
            self._lead_times = [timedelta(seconds=s) for s in kept.get("measured_s", ())]
            self.lead_time = lead_time(self._lead_times).value if self._lead_times else None
        self._recalled = True

    def _learn_capacity(self, snapshot: GroupSnapshot, token: LeaderToken) -> None:
        if self.policy.capacity_per_member is not None:
            return
        seen = self.intervals(snapshot)
        if not seen:
            return
        self.capacity = learn_capacity([*self._taught, *seen])
        busy = [i for i in seen if i.is_busy()]
        if not busy:
            return
        self._taught = [*self._taught, *busy][-KEPT:]
        learned = {
            "records_per_s": self.capacity.usable,
            "confidence": self.capacity.confidence,
            "intervals": [i.to_json() for i in self._taught],
        }
        self.plans.learn(self.group, CAPACITY, learned, token)

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
        lead = self.learned_policy().lead_time or DEFAULT_LEAD
        verdict = verify(self.pending, snapshot, PATIENCE_IN_LEADS * lead, snapshot.replicas)
        self.pending = None if verdict.is_final else verdict.actuation
        if verdict.lead_time is not None and self.policy.lead_time is None:
            self._lead_times = [*self._lead_times, verdict.lead_time][-KEPT_LEAD_TIMES:]
            self.lead_time = lead_time(self._lead_times).value
            measured = [took.total_seconds() for took in self._lead_times]
            learned = {"seconds": self.lead_time.total_seconds(), "measured_s": measured}
            self.plans.learn(self.group, LEAD_TIME, learned, token)
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
