"""One tick of one group over ports: observe, forecast, plan, publish, actuate, verify."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from balancer.actuation import Actuation, ActuationState
from balancer.actuators.base import Actuator
from balancer.bounding import UNROUTED, Routing
from balancer.errors import ActuationError, ObserverUnavailable, PlanStoreUnavailable
from balancer.group import GroupSnapshot, Member
from balancer.knobs import Knobs
from balancer.leadtime import DEFAULT_LEAD_TIME, lead_time
from balancer.leadtime import KEPT as KEPT_LEAD_TIMES
from balancer.member_capacity import KEPT, CapacityEstimate, MemberInterval, learn_capacity
from balancer.memory import PlannerMemory
from balancer.observers.base import GroupObserver
from balancer.ownership import leavers
from balancer.plan import ScalingPlan
from balancer.plans.base import Decision, LeaderToken, PlanStore
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.prescaling import Rule
from balancer.replay import Inputs, abridged, forecast_bytes, forecast_name, inputs_bytes, planned
from balancer.verification import Verdict, verify
from forecaster.forecast import Forecast, ForecastResult
from forecaster.topics import GroupId

T = TypeVar("T")
ForecastSource = Callable[[GroupId, datetime], ForecastResult]
"""(group, now) → its forecast, or why there is none."""

PATIENCE_IN_LEADS = 3
"""An actuation that has not taken effect within so many lead times is reported as ineffective."""

DRAINED_WITHIN = timedelta(minutes=2)
"""How long a scale-down waits until those who go own nothing."""

MEMORY, KNOBS, CAPACITY, LEAD_TIME, PENDING = "planner_memory", "knobs", "capacity", "lead_time", "pending"
"""Names under which the plan store keeps what was learned, and the actuation that has not ended yet."""


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
    routing
        Which topics' producers are routed, and which keys are known to be hot, asked at every tick.
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
    routing: Callable[[], Routing] = lambda: UNROUTED
    knobs: Knobs | None = None
    timezone: str = "UTC"
    on_plan: Callable[[ScalingPlan], None] = lambda made: None
    advise: Callable[[ScalingPlan, datetime], ScalingPlan] = lambda made, now: made
    """Adds to a plan what is known beside the group itself: splits of routed topics."""
    on_decision: Callable[[Decision], None] = lambda decision: None
    """Told of every decision that was written to the log."""
    not_ready: Callable[[GroupId], str] = lambda group: ""
    """Who of the target's members is not ready, and why; asked when an actuation was in vain."""
    keeps_log: bool = True
    """Whether decisions and memory go to the plan store; a simulation of a month does without."""
    explains: bool = True
    """Whether plans say why; a simulation whose plans nobody reads does without."""
    keep_inputs: timedelta = timedelta(days=14)
    """For how long the whole inputs of a decision that changed, refused or held something stay replayable."""
    keep_quiet_inputs: timedelta = timedelta(minutes=15)
    """For how long those of a decision that left everything as it was do."""
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
    _pending_recalled: bool = False
    _draining: tuple[int, int | None, datetime] | None = None
    """A scale-down that waits for its members to hand over: to how many, from how many, since when."""
    _numbers: tuple[str, datetime] | None = None
    """The name of the forecast's numbers that were attached last, and until when they are kept."""

    def tick(self, now: datetime, token: LeaderToken) -> Tick:
        """Observe, forecast, plan, publish, actuate, verify; a failure on the way holds what is there."""
        if self.mode == "off":
            return Tick(now)
        try:
            snapshot = self.observer.observe(self.group)
        except ObserverUnavailable as gone:
            return Tick(now, error=f"hold: {gone}")
        inputs = Inputs(
            self._as_decided(snapshot),
            self._used(self.forecast(self.group, now)),
            self.learned_policy(),
            now,
            self._knobs(),
            self._recall().until(now),
            tuple(self.rules(now)),
            self.timezone,
            self.routing(),
        )
        forecast, made = inputs.forecast, planned(inputs, explain=self.explains)
        advised = self.advise(made.plan, now)
        if advised is not made.plan:
            made = replace(made, plan=advised)
        try:
            version = self.plans.publish(made.plan, token)
        except PlanStoreUnavailable as gone:
            return Tick(now, snapshot, forecast, made.plan, error=f"hold: {gone}")
        verdict = self._verify(snapshot, token)
        self._learn_capacity(snapshot, token)
        actuation, error = self._actuate(made.plan, snapshot, now, token)
        self.memory = made.memory
        self.on_plan(made.plan)
        if self.keeps_log:
            self._keep(made.plan, actuation, error, inputs, token)
        return Tick(now, snapshot, forecast, made.plan, version, actuation, verdict, error)

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
            taught = self._kept(CAPACITY, lambda kept: [MemberInterval.from_json(i) for i in kept["intervals"]])
            self._taught = taught or []
            self.capacity = learn_capacity(self._taught)
        if self.policy.lead_time is None and self.lead_time is None:
            measured = self._kept(LEAD_TIME, lambda kept: [timedelta(seconds=s) for s in kept["measured_s"]])
            self._lead_times = measured or []
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
            self.knobs = self._kept(KNOBS, Knobs.from_json) or Knobs()
        return self.knobs

    def _recall(self) -> PlannerMemory:
        if self.memory is None:
            self.memory = self._kept(MEMORY, PlannerMemory.from_json) or PlannerMemory()
        return self.memory

    def _kept(self, name: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Return what is kept under a name; what cannot be read is not there, and beginning anew is safe."""
        kept = self.plans.learned(self.group, name)
        try:
            return read(kept) if kept else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _used(self, forecast: ForecastResult | None) -> ForecastResult | None:
        """Return the forecast to plan from: where decisions are kept, only what is kept of it."""
        if not self.keeps_log or not isinstance(forecast, Forecast):
            return forecast
        return abridged(forecast, self._knobs().near_level)

    def _actuate(
        self, made: ScalingPlan, snapshot: GroupSnapshot, now: datetime, token: LeaderToken
    ) -> tuple[Actuation | None, str | None]:
        if self.mode != "act" or made.hold or made.replicas == snapshot.replicas:
            self._draining = None
            return None, None
        going = self._going(made, snapshot)
        if self._waits_for(going, made.replicas, snapshot, now):
            return None, None
        leaving = tuple(m.id if m.pod is None else f"{m.id}@{m.pod}" for m in going)
        try:
            actuation = self.actuator.scale(self.group, made.replicas, now, leaving=leaving)
        except ActuationError as refused:
            return None, f"hold: {refused}"
        self._draining = None
        before = self.pending
        self._await(actuation if actuation.state is ActuationState.PENDING else None, token)
        if before is not None:
            detail = f"superseded by a request for {actuation.replicas}"
            self._ended(replace(before, state=ActuationState.SUPERSEDED, detail=detail), token)
        return actuation, None

    def _going(self, made: ScalingPlan, snapshot: GroupSnapshot) -> tuple[Member, ...]:
        """Return who goes: of a planned group, the members that the plan gives nothing to."""
        if self.policy.assignment is not AssignmentKind.PLANNED or made.steps[0].assignment is None:
            return ()
        if snapshot.replicas is None or made.replicas >= snapshot.replicas:
            return ()
        return leavers(snapshot.members, made.replicas)

    def _waits_for(self, going: Sequence[Member], replicas: int, snapshot: GroupSnapshot, now: datetime) -> bool:
        """Whether members that go still own partitions: the target hears of it once they have handed over.

        Not for ever: whoever is told to end hands over as well.
        """
        if not any(m.partitions for m in going):
            return False
        if self._draining is None or self._draining[0] != replicas:
            self._draining = (replicas, snapshot.replicas, now)
        return now - self._draining[2] < DRAINED_WITHIN

    def _as_decided(self, snapshot: GroupSnapshot) -> GroupSnapshot:
        """Return the group as if the target had heard already of the scale-down whose members still hand over."""
        if self._draining is None or self.mode != "act" or snapshot.replicas != self._draining[1]:
            self._draining = None
            return snapshot
        return replace(snapshot, replicas=self._draining[0])

    def _await(self, actuation: Actuation | None, token: LeaderToken) -> None:
        """Remember, for the next leader as well, which actuation has not ended yet."""
        if actuation == self.pending:
            return
        moved = actuation is None or self.pending is None or actuation.requested_at != self.pending.requested_at
        self.pending = actuation
        if self.keeps_log and moved:
            self.plans.learn(self.group, PENDING, {} if actuation is None else _actuation_to_json(actuation), token)

    def _ended(self, actuation: Actuation, token: LeaderToken) -> None:
        """Write an actuation's end into the decision that asked for it."""
        if not self.keeps_log:
            return
        kept = self.plans.decision(self.group, decision_id(self.group, actuation.requested_at))
        if kept is not None:
            ended = dict(kept.actuation or {}) | {"state": actuation.state.value, "detail": actuation.detail}
            self.plans.record(replace(kept, actuation=ended), token)

    def _verify(self, snapshot: GroupSnapshot, token: LeaderToken) -> Verdict | None:
        if self.pending is None and self.keeps_log and not self._pending_recalled:
            self.pending = self._kept(PENDING, lambda kept: _actuation_from_json(self.group, kept))
        self._pending_recalled = True
        if self.pending is None:
            return None
        lead = self.learned_policy().lead_time or DEFAULT_LEAD_TIME  # none at all would be no patience
        verdict = verify(self.pending, snapshot, PATIENCE_IN_LEADS * lead, snapshot.replicas)
        if verdict.actuation.state is ActuationState.INEFFECTIVE:
            verdict = replace(verdict, actuation=self._explained(verdict.actuation))
        self._await(None if verdict.is_final else verdict.actuation, token)
        if verdict.is_final:
            self._ended(verdict.actuation, token)
        if verdict.lead_time is not None and self.policy.lead_time is None:
            self._lead_times = [*self._lead_times, verdict.lead_time][-KEPT_LEAD_TIMES:]
            self.lead_time = lead_time(self._lead_times).value
            measured = [took.total_seconds() for took in self._lead_times]
            learned = {"seconds": self.lead_time.total_seconds(), "measured_s": measured}
            self.plans.learn(self.group, LEAD_TIME, learned, token)
        return verdict

    def _explained(self, actuation: Actuation) -> Actuation:
        """Add what the target says of members that never became ready."""
        try:
            said = self.not_ready(self.group)
        except ActuationError as error:
            said = f"which ones, the target does not say: {error}"
        return replace(actuation, detail=f"{actuation.detail}; {said}") if said else actuation

    def _keep(
        self,
        made: ScalingPlan,
        actuation: Actuation | None,
        error: str | None,
        inputs: Inputs,
        token: LeaderToken,
    ) -> None:
        """Write the decision log and the memory, so that the next leader goes on where this one stopped."""
        if self.memory is not None:
            self.plans.learn(self.group, MEMORY, self.memory.to_json(), token)
        snapshot = inputs.snapshot
        lag, covered = snapshot.lag
        rate, _ = snapshot.arrival_rate
        identity = decision_id(self.group, inputs.now)
        quiet = actuation is None and error is None and not made.hold and made.replicas == snapshot.replicas
        keep = self.keep_quiet_inputs if quiet else self.keep_inputs
        name = self._attach_numbers(inputs, keep, token)
        self.plans.attach(self.group, identity, inputs_bytes(inputs, name), keep, token)
        summary: Mapping[str, Any] = {
            "replicas": snapshot.replicas,
            "working": snapshot.working,
            "lag": lag,
            "coverage": covered,
            "arrival_rate": rate,
            "knobs": inputs.knobs.to_json(),
            "replayable_until": (inputs.now + keep).isoformat(),
        }
        acted = None if actuation is None else _actuation_to_json(actuation)
        if error is not None:
            acted = {"replicas": made.replicas, "previous": snapshot.replicas, "state": "failed", "detail": error}
        decision = Decision(identity, self.group, inputs.now, self.mode, made, summary, acted)
        self.plans.record(decision, token)
        self.on_decision(decision)

    def _attach_numbers(self, inputs: Inputs, keep: timedelta, token: LeaderToken) -> str | None:
        """Keep the numbers of the forecast, once for all ticks that use it; return their name."""
        used = inputs.forecast
        if not isinstance(used, Forecast):
            return None
        body = forecast_bytes(used, inputs.knobs.near_level)
        name = forecast_name(body)
        until = self._numbers[1] if self._numbers is not None and self._numbers[0] == name else inputs.now
        if until < inputs.now + keep:
            until = inputs.now + keep + timedelta(minutes=2)  # so that the next ticks, which use it too, need not write
            self.plans.attach(self.group, name, body, until - inputs.now, token)
            self._numbers = (name, until)
        return name


def decision_id(group: GroupId, at: datetime) -> str:
    """Return the name of the decision that a group's tick at an instant took."""
    return f"{group}@{at.isoformat()}"


def _actuation_to_json(actuation: Actuation) -> dict[str, Any]:
    return {
        "requested_at": actuation.requested_at.isoformat(),
        "replicas": actuation.replicas,
        "previous": actuation.previous,
        "state": actuation.state.value,
        "detail": actuation.detail,
    }


def _actuation_from_json(group: GroupId, value: Mapping[str, Any]) -> Actuation:
    asked = datetime.fromisoformat(value["requested_at"])
    state = ActuationState(value["state"])
    return Actuation(group, asked, value["replicas"], value["previous"], state, value["detail"])
