"""One configured group at work: what is seen of it, its forecast, its control loop, and what guards its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from balancer.actuation import ActuationState
from balancer.actuators.base import Actuator, SeesMembers
from balancer.control import KNOBS, ControlLoop, Tick
from balancer.errors import BalancerError, ObserverUnavailable, PlanStoreUnavailable
from balancer.group import GroupSnapshot
from balancer.knobs import Knobs
from balancer.observers.base import GroupObserver
from balancer.plans.base import Decision, LeaderToken
from balancer.policy import ScalingPolicy
from balancer.prescaling import Rule
from balancer.trust import FORECAST_MAX_AGE
from forecaster.errors import ForecasterError
from forecaster.forecast import Forecast, ForecastResult, NoForecast
from forecaster.joining import joined_forecast
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.serving import ForecastService
from forecaster.stores.base import SeriesStore
from forecaster.topics import GroupId
from headway.application import Application
from headway.configuration.sections import Mode
from headway.consumers.lane_desk import lanes_of, with_splits
from headway.errors import HeadwayError, NotReady
from headway.operation.guards import ActGate, Guarded, frozen
from headway.operation.posting import Posting
from headway.reports.what_if import changed_policy, planned_again
from headway.status.board import UNSCORED, GroupView, ReplicaPoint
from headway.status.logs import logger
from headway.status.wire import Document, instant, parse_instant
from headway.work.facts import recorded_states
from headway.work.footprint import give_back
from headway.work.jobs import LEASE_TICKS
from headway.work.learned_series import LearnedSeries
from headway.work.member_watch import MemberWatch

if TYPE_CHECKING:
    from forecaster.desk import ForecastDesk

LEARN_EVERY = timedelta(days=7)
LEARNED_AT = "knobs_learned"
SHOWN_LEVELS = (0.1, *DEFAULT_LEVELS)
"""What is forecast: the levels that are planned with, and the lower edge of the band that is drawn."""


class RecordedObserver:
    """Sees a group by what was recorded alone, where no cluster can be asked (arrivals by push or from files)."""

    def __init__(self, app: Application, topics: tuple[str, ...], target: Actuator) -> None:
        self._app, self._topics, self._target = app, topics, target

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return lag and rates as recorded, and what the target is set to; members are not known."""
        now = self._app.clock()
        try:
            partitions = recorded_states(self._app.store, group, self._topics, now)
        except ForecasterError as error:
            raise ObserverUnavailable(f"group {group}: {error}") from error
        return GroupSnapshot(group, now, self._target.current(group), (), partitions)

    def close(self) -> None:
        """Nothing is held."""


class WithReplicas:
    """An observer that takes the number of members for the target's setting where no target can be asked."""

    def __init__(self, observer: GroupObserver) -> None:
        self._observer = observer

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return the snapshot with its replicas filled in."""
        snapshot = self._observer.observe(group)
        return snapshot if snapshot.replicas is not None else replace(snapshot, replicas=len(snapshot.members))

    def close(self) -> None:
        """Close the observer."""
        self._observer.close()


def desk_of(service: ForecastService, store: SeriesStore) -> ForecastDesk:
    """Return a desk over the service: it scores what was said, and its gate chooses what is served."""
    from forecaster.desk import ForecastDesk
    from forecaster.scorekeeping import Scorekeeper

    return ForecastDesk(service, Scorekeeper(store))


class GroupRunner:
    """Runs one group's jobs: forecast, plan and act; shows what came of it on the board.

    Parameters
    ----------
    app
        What runs.
    name
        The group, on the board with the topics that it reads.
    observer, target
        How it is seen, and what is acted on.
    service
        Who forecasts.
    every
        How often :meth:`act` is called; the lease of leading outlives two of them.
    posting
        Keeps the number that scalers poll, where something polls it.
    """

    def __init__(
        self,
        app: Application,
        name: str,
        observer: GroupObserver,
        target: Actuator,
        service: ForecastService,
        every: timedelta,
        posting: Posting | None = None,
    ) -> None:
        self.app, self.name, self.service, self.every, self.posting = app, name, service, every, posting
        self.observer = observer
        own = app.settings.group(name)
        self.topics = app.view(name).topics
        self.series = LearnedSeries(app.store, GroupId(name), self.topics)
        self.target = Guarded(target, app, bool(own is not None and own.approval))
        self._token: LeaderToken | None = None
        self.gate = ActGate(lambda: app.target_gate(name))
        self.desk = desk_of(service, app.store)
        self.lanes = lanes_of(app, name)
        self.loop = ControlLoop(
            GroupId(name),
            observer,
            self.latest_forecast,
            app.plans,
            self.target,
            app.settings.policy(name),
            rules=self.rules,
            routing=self.lanes.routing,
            timezone=app.settings.grid(name).timezone,
            intervals=MemberWatch(app.store, GroupId(name), self.topics),
            advise=lambda made, now: with_splits(made, self.lanes.advice(now)),
            on_decision=self._decided,
            not_ready=target.not_ready if isinstance(target, SeesMembers) else lambda group: "",
        )

    def _decided(self, decision: Decision) -> None:
        """Remember a decision, and say it: one event each."""
        self.app.view(self.name).remember(decision)
        made, acted = decision.plan, decision.actuation or {}
        said = {"replicas": made.replicas, "held": made.hold, "reason": made.reasons[0] if made.reasons else ""}
        said |= {"outcome": acted.get("state"), "detail": acted.get("detail")}
        logger("decision").info("decision", group=self.name, id=decision.id, mode=decision.mode, **said)

    def forecast(self) -> str:
        """Forecast every topic of the group anew."""
        now, said = self.app.clock(), []
        for topic in self.topics:
            said.append(f"{topic}: {self._forecast(topic, now)}")
            give_back()
        return "; ".join(said) or "no topics"

    def _forecast(self, topic: str, now: datetime) -> str:
        try:
            served = self.desk.forecast(topic, now, self.app.settings.jobs.horizon, SHOWN_LEVELS)
        except ForecasterError as error:
            self.app.board.problem(self.name, "forecast", str(error))
            raise

        def change(view: GroupView) -> None:
            view.forecasts[topic] = served.result
            if served.verdict is not None:
                health = served.verdict.health
                view.gates[topic] = (served.verdict.may_act, served.verdict.reasons)
                scores = {"wape": health.wape, "bias": health.bias, "coverage": health.coverage.get(0.95)}
                view.quality[topic] = scores

        self.app.board.update(self.name, "forecast", change, now)
        result = served.result
        return result.reason if isinstance(result, NoForecast) else result.method

    def latest_forecast(self, group: GroupId, now: datetime) -> ForecastResult:
        """Return the forecast that the group is planned by; none while the gate is closed, so that it cannot act."""
        if not self.topics:
            return NoForecast(str(group), now, "no topic of the group is known yet")
        told = [self.lanes.laid_out(self._told(topic, now), now) for topic in self.topics]
        old = (f for f in told if isinstance(f, Forecast) and now - f.origin > FORECAST_MAX_AGE + f.step)
        # one that is too old is what is planned by, so that its age is said and nobody is given up
        return next(old, None) or joined_forecast(told)

    def _told(self, topic: str, now: datetime) -> ForecastResult:
        view = self.app.view(self.name)
        found = view.forecasts.get(topic)
        if found is None:
            return NoForecast(topic, now, "no forecast has been made yet")
        may_act, reasons = view.gates.get(topic, UNSCORED)
        return found if may_act or isinstance(found, NoForecast) else NoForecast(topic, now, f"gate: {reasons[0]}")

    def rules(self, now: datetime) -> tuple[Rule, ...]:
        """Return what operators asked for: windows and events, and what is there while scale-in is frozen."""
        rules = self.app.operations.rules(self.name)
        windows = self.app.settings.freezes(self.name)
        return (*rules, *frozen(windows, self.target.current(GroupId(self.name)), now)) if windows else rules

    def look(self) -> None:
        """Put what is seen of the group now on the board, without planning.

        Raises
        ------
        ObserverUnavailable
            If nothing can be said.
        """
        snapshot = self.observer.observe(GroupId(self.name))

        def change(view: GroupView) -> None:
            view.snapshot = snapshot

        self.app.board.update(self.name, "snapshot", change, snapshot.at)

    def what_if(self, changes: Mapping[str, Any], now: datetime) -> Document:
        """Plan again from what is on the board, under other assumptions; nothing is kept or changed.

        Parameters
        ----------
        changes
            ``policy`` (fields of :class:`ScalingPolicy`; durations as text), ``capacity`` (records/s of a member)
            and ``demand_factor``; None leaves each as it is. With ``history`` (``from``, ``to``: the last four weeks
            by default) the answer is what that span would have cost, instead of a plan.
        now
            Aware UTC.

        Raises
        ------
        NotReady
            Before the group was seen once.
        PolicyRefused
            If a field is unknown or outside its bound.
        """
        view = self.app.view(self.name)
        if view.snapshot is None:
            raise NotReady(f"group {self.name} has not been seen yet; the first tick comes within seconds")
        if changes.get("history") is not None:
            return self._past_cost(changes, now)
        forecast, knobs = self.latest_forecast(GroupId(self.name), now), self.loop.knobs
        again = partial(planned_again, knobs=knobs, rules=self.rules(now), timezone=self.loop.timezone)
        again = partial(again, routing=self.loop.routing())
        asked = (view.snapshot, forecast, self.loop.learned_policy(), dict(changes), now)
        return again(*asked) if self.app.thinkers is None else self.app.thinkers.run(again, *asked)

    def lesson(self) -> str | tuple[tuple[str, ...], ScalingPolicy, datetime]:
        """Return what to learn the planner's knobs from (topics, policy, now), or why there is nothing to learn now."""
        now = self.app.clock()
        kept = self.app.plans.learned(GroupId(self.name), LEARNED_AT)
        if kept is not None and now - parse_instant(kept["at"]) < LEARN_EVERY:
            return f"knobs: not due, learned at {kept['at']}"
        return self.topics, self.loop.learned_policy(), now

    def _past_cost(self, changes: Mapping[str, Any], now: datetime) -> Document:
        from headway.reports.past_cost import past_cost
        from headway.work.lessons import history_of

        policy = changed_policy(self.loop.learned_policy(), changes.get("policy") or {}, changes.get("capacity"))
        history = history_of(self.service, self.topics, now)
        if isinstance(history, str):
            raise NotReady(history)
        span, factor = changes["history"], changes.get("demand_factor")
        start, end = (None if span.get(k) is None else parse_instant(span[k]) for k in ("from", "to"))
        asked = (history, policy, self.loop.knobs or Knobs(), start, end, 1.0 if factor is None else factor)
        told = past_cost(*asked) if self.app.thinkers is None else self.app.thinkers.run(past_cost, *asked)
        return {"group": self.name, "history": told}

    def learn(self) -> str:
        """Learn the planner's knobs anew once a week, keep them, and plan with them from the next tick on."""
        from headway.work.lessons import history_of, knobs_from

        due = self.lesson()
        if isinstance(due, str):
            return due
        topics, policy, now = due
        history = history_of(self.service, topics, now)
        return self.keep_knobs(history if isinstance(history, str) else knobs_from(history, policy), now)

    def keep_knobs(self, knobs: Knobs | str, now: datetime) -> str:
        """Keep what was learned, and plan with it from the next tick on; or say why there is nothing."""
        group = GroupId(self.name)
        if isinstance(knobs, str):
            return f"knobs: {knobs}"
        token = self.app.plans.lead(group, self.app.holder, LEASE_TICKS * self.every)
        if token is None:
            return "knobs: another instance leads"
        self.app.plans.learn(group, KNOBS, knobs.to_json(), token)
        self.app.plans.learn(group, LEARNED_AT, {"at": instant(now)}, token)
        self.loop.knobs = knobs
        return f"knobs: {knobs.learned_on}"

    def plan(self) -> str:
        """Run one control tick that only plans and publishes, whatever the mode."""
        return self._turn(may_act=False)

    def act(self) -> str:
        """Run one control tick, if this instance leads the group.

        Raises
        ------
        HeadwayError
            With what went wrong; nothing was changed then.
        """
        return self._turn(may_act=True)

    def _turn(self, may_act: bool) -> str:
        try:
            return self._tried(may_act)
        except (BalancerError, ForecasterError, NotReady) as error:
            self.app.board.problem(self.name, "plan", str(error))
            raise

    def _tried(self, may_act: bool) -> str:
        now = self.app.clock()
        mode = self.app.operations.mode(self.name, self.app.settings.mode(self.name))
        pause = self.app.operations.paused(self.name, now)
        self._show_operators(mode, pause is not None, pause.until if pause is not None else None)
        if mode is Mode.OFF:
            return "off"
        if self.posting is not None:
            self.posting.follow()
        token = self.app.plans.lead(GroupId(self.name), self.app.holder, LEASE_TICKS * self.every)
        if token is None:
            self.app.ready = True
            return "another instance leads"
        honoured, against = self.gate.honoured(mode, now)
        self._show_gate(against)
        self.loop.mode = str(honoured if may_act or honoured is not Mode.ACT else Mode.RECOMMEND)
        self.target.token = self._token = token
        return self._ticked(self.loop, now, token)

    def resign(self) -> None:
        """Give the lead back, so that another instance goes on with its next tick; the group stays as it is."""
        token, self._token = self._token, None
        if token is not None:
            try:
                self.app.plans.resign(token)
            except (PlanStoreUnavailable, ForecasterError):  # then the lease ends by itself
                return

    def _show_gate(self, against: tuple[str, ...]) -> None:
        if against:
            self.app.board.problem(self.name, "gate", f"may not act yet: {'; '.join(against)}")
        elif "gate" in self.app.view(self.name).problems:
            self.app.board.solved(self.name, "gate")

    def _ticked(self, loop: ControlLoop, now: datetime, token: LeaderToken) -> str:
        tick = loop.tick(now, token)
        if self.posting is not None and loop.mode == Mode.ACT:
            self.posting.affirm(tick, now, token)
        self._show(now, tick)
        self.app.ready = True
        if tick.error is not None:
            self.app.board.problem(self.name, "plan", tick.error)
            raise HeadwayError(tick.error)
        planned = tick.plan
        return "nothing to plan" if planned is None else f"{planned.replicas} members: {planned.reasons[0]}"

    def _show_operators(self, mode: Mode, paused: bool, until: datetime | None) -> None:
        view = self.app.view(self.name)
        if (view.mode, view.paused, view.paused_until) == (str(mode), paused, until):
            return

        def change(view: GroupView) -> None:
            view.mode, view.paused, view.paused_until = str(mode), paused, until

        self.app.board.update(self.name, "mode", change)

    def _show(self, now: datetime, tick: Tick) -> None:
        snapshot, outcome = tick.snapshot, "held" if tick.error else "unchanged"
        policy, estimate = self.loop.learned_policy(), self.loop.capacity

        def change(view: GroupView) -> None:
            if snapshot is not None:
                view.snapshot = snapshot
                view.at["snapshot"] = snapshot.at
                view.saw(ReplicaPoint(now, snapshot.replicas, snapshot.working or None))
            else:
                view.saw(ReplicaPoint(now, None, None))
            if tick.plan is not None:
                view.plan, view.plan_version = tick.plan, tick.version
            view.capacity_per_member = policy.capacity_per_member
            if policy.capacity_per_member is not None:
                view.problems.pop("capacity", None)
            lead = policy.expected_lead_time
            view.lead_time = lead
            if tick.actuation is not None and tick.actuation.state is ActuationState.PENDING:
                view.acting_until = now + lead

        self.app.board.update(self.name, "plan", change, now if tick.plan is not None else None)
        self.series.note(policy.capacity_per_member, policy.lead_time)
        if estimate is not None and estimate.unlock is not None:
            self.app.board.problem(self.name, "capacity", estimate.unlock)
        if tick.actuation is not None:
            outcome = tick.actuation.state.value
        self.app.metrics.decisions.labels(self.name, self.loop.mode, outcome).inc()
