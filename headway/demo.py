"""The demo: a real trace as history, then replayed fast through the real recorder, forecast, plan and control tick.

Only time and members are simulated. Arrivals are recorded minute by minute into the embedded store, forecast from what
the store holds, planned and carried out by the same control tick that runs in production. A run that was cut off goes
on where the store's last acknowledged minute ends; what had been decided until then is read from the decision log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.control import KNOBS, ControlLoop, Tick
from balancer.errors import BalancerError
from balancer.knobs import Knobs
from balancer.learning import Past, frame_of, learn_knobs
from balancer.plans.base import LeaderToken
from balancer.prescaling import Rule
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.compare import compare
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.group import SimulatedGroup
from balancer.simulator.outcome import Outcome, conclude
from balancer.simulator.world import World
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.replay import ReplaySource, load
from forecaster.methods.lead_ridge import DAY, LEVELS, STEP_MINUTES, LeadRidge
from forecaster.offsets import CountingPolicy
from forecaster.series import ArrivalSeries
from forecaster.serving import ForecastService
from forecaster.topics import GroupId
from headway.application import Application
from headway.errors import NotReady
from headway.reports.what_if import planned_again
from headway.status.board import GroupView, ReplicaPoint
from headway.status.wire import Document

TOPIC = "worldcup"
GROUP = GroupId(TOPIC)
LEASE = timedelta(seconds=60)
RENEW_S = 10.0
RIVALS = ("rate_reactive", "keda_lag", "cron_last_week", "static_peak", "perfect")
RIVAL_OUTCOMES = "rival_outcomes"
SCORED_MINUTES = 60
MEMBERS_AT_PEAK = 12


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What is played: the trace, from when on it is replayed, and one member's capacity in records/s."""

    series: ArrivalSeries
    trace: ArrivalTrace
    world: World

    @property
    def minutes(self) -> NDArray[np.float64]:
        """Records per minute of the whole trace."""
        return self.world.minutes


def make_scene(series: ArrivalSeries, days: float = 2.0) -> Scene:
    """Cut a trace into history and the days to replay, and size members so that the history's peak needs a dozen.

    Raises
    ------
    ValueError
        If less than eight days would be left as history.
    """
    series = _whole(series.total())
    end = _floor_minute(series.end)
    start = end - timedelta(days=days)
    if start - series.start < timedelta(days=8):
        raise ValueError(f"{series.topic} spans {(series.end - series.start).days} days; the demo needs 10 or more")
    trace = ArrivalTrace(series.start, series.grid.step_s, _filled(series)[None, :])
    minutes = trace.minutes()[0]
    before = int((start - series.start).total_seconds() // 60)
    peak = float(np.quantile(minutes[:before], 0.999)) / 60
    capacity = float(f"{max(peak / MEMBERS_AT_PEAK, 1e-3):.2g}")
    world = World(trace, start, end, capacity, max_replicas=4 * MEMBERS_AT_PEAK)
    return Scene(series, trace, world)


def _whole(series: ArrivalSeries) -> ArrivalSeries:
    return replace(series, counts=np.round(series.counts), partitions=(0,), names=None)


def _floor_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _filled(series: ArrivalSeries) -> NDArray[np.float64]:
    """Return counts with gaps bridged in a straight line, for simulated arrivals; the store keeps the gaps."""
    at = np.arange(series.steps)
    known = series.known[0]
    filled: NDArray[np.float64] = np.interp(at, at[known], series.counts[0, known])
    return filled


def learned_on_history(world: World, days: int = 3) -> Knobs:
    """Learn the planner's knobs on the days before the replay, with forecasts that each of them could have had."""
    begins = [world.first_minute - DAY * (k + 1) for k in range(days)]
    model = LeadRidge().fit(world.history, min(begins))
    cells = [model.quantiles(world.history, np.arange(b, b + DAY)) for b in begins]
    past = Past(
        np.array([world.history[b : b + DAY] for b in begins]),
        np.array([world.history[b - 4 : b] for b in begins]),
        np.array([ForecastBatch(b, STEP_MINUTES * 60, LEVELS, c).cells() for b, c in zip(begins, cells, strict=True)]),
        LEVELS,
    )
    frame = frame_of(world.capacity, world.start_s, world.slo_s, world.limit_replicas)
    knobs, _ = learn_knobs(past, world.setting(past.minutes, past.before[:, -1]), frame)
    return knobs


class ShortLeads:
    """Forecasts of the next six hours from what the store holds, every minute, by one ridge per lead."""

    def __init__(self, service: ForecastService, topic: str) -> None:
        self._service, self._topic = service, topic
        self._model: LeadRidge | None = None
        self._last: Forecast | None = None

    def minutes(self, now: datetime) -> NDArray[np.float64] | None:
        """Return what is recorded until ``now`` as records per minute, or None if nothing is."""
        history = self._service.history(self._topic, now)
        if history is None or not history.known.all(axis=0).any():
            return None
        trace = ArrivalTrace(history.start, history.grid.step_s, _filled(history.total())[None, :])
        minutes: NDArray[np.float64] = trace.minutes()[0]
        return minutes

    def fit(self, now: datetime) -> None:
        """Learn from what lies before ``now``."""
        minutes = self.minutes(now)
        if minutes is not None and minutes.size >= LeadRidge.least_minutes():
            self._model = LeadRidge().fit(minutes, minutes.size)

    def forecast(self, group: GroupId, now: datetime) -> ForecastResult:
        """Forecast from ``now`` on, anew every five minutes; between them the last one holds, with its origin."""
        if self._last is not None and timedelta(0) <= now - self._last.origin < timedelta(minutes=STEP_MINUTES):
            return self._last
        minutes = self.minutes(now)
        if self._model is None or minutes is None:
            return NoForecast(self._topic, now, "no model is fitted yet", now + timedelta(minutes=1))
        total = self._model.quantiles(minutes, np.array([minutes.size]))[0]
        step = timedelta(minutes=STEP_MINUTES)
        made = Forecast(self._topic, now, step, (0,), LEVELS, total[None], total, "lead_ridge", Rung.OWN_MODEL)
        self._last = made
        return made


@dataclass(slots=True)
class Score:
    """Error and coverage of the next hour, over all origins; and of what people use instead, at the same origins."""

    levels: tuple[float, ...] = LEVELS
    errors: dict[str, float] = field(default_factory=dict)
    actual: float = 0.0
    covered: int = 0
    points: int = 0

    def add(self, minutes: NDArray[np.float64], origin: int, total: NDArray[np.float64]) -> None:
        """Score one forecast made at minute ``origin`` of the trace: steps of five minutes, records/s."""
        steps = SCORED_MINUTES // STEP_MINUTES
        truth = minutes[origin : origin + SCORED_MINUTES]
        if truth.size < SCORED_MINUTES:
            return
        truth = truth.reshape(steps, STEP_MINUTES).mean(axis=1) / 60

        def ago(days: int) -> NDArray[np.float64]:
            first = origin - days * 1440
            values = minutes[first : first + SCORED_MINUTES]
            return np.asarray(values.reshape(steps, STEP_MINUTES).mean(axis=1) / 60)

        rivals = {
            "headway": total[:steps, self.levels.index(0.5)],
            "last value": np.full(steps, minutes[origin - STEP_MINUTES : origin].mean() / 60),
            "yesterday": ago(1),
            "last week": ago(7),
        }
        for name, values in rivals.items():
            self.errors[name] = self.errors.get(name, 0.0) + float(np.abs(values - truth).sum())
        self.actual += float(truth.sum())
        self.covered += int((truth <= total[:steps, self.levels.index(0.95)]).sum())
        self.points += steps

    def wape(self, name: str) -> float | None:
        """Return the weighted absolute percentage error of a method, as a fraction."""
        return self.errors[name] / self.actual if self.actual and name in self.errors else None

    @property
    def coverage(self) -> float | None:
        """Share of five-minute rates at or below the forecast q95."""
        return self.covered / self.points if self.points else None


class Replay:
    """One run of the demo over an application; :meth:`step` plays one minute.

    Parameters
    ----------
    app
        Stores, board and operations; its clock is the replay's.
    scene
        What is played.
    at
        The clock's holder: ``at[0]`` is now, and is moved here.
    """

    def __init__(self, app: Application, scene: Scene, service: ForecastService, at: list[datetime]) -> None:
        self.app, self.scene, self.at = app, scene, at
        world = scene.world
        self.leads = ShortLeads(service, TOPIC)
        self.group = SimulatedGroup(
            GROUP, scene.trace, capacity=world.capacity, start_s=world.start_s, pause_s=world.pause_s, at=world.start
        )
        self.first = self.group.fleet.requested
        self.score = Score()
        self.reactive: Sequence[tuple[datetime, int]] = ()
        self.recorder = Recorder(
            app.store,
            ReplaySource(scene.series, topic=TOPIC, clock=app.clock),
            {},
            policy=CountingPolicy(step_s=scene.series.grid.step_s),
            topics=(TOPIC,),
            clock=app.clock,
        )
        self.control = ControlLoop(
            GROUP,
            self.group,
            self.leads.forecast,
            app.plans,
            self.group,
            app.settings.policy(TOPIC),
            mode="act",
            rules=lambda now: self._rules,
            timezone=scene.series.grid.timezone,
        )
        self._token: LeaderToken | None = None
        self._rules: tuple[Rule, ...] = ()
        self._renewed = -math.inf

    # -- before the first minute -----------------------------------------------------------------------------------

    def prepare(self) -> datetime:
        """Load the history, or find what an earlier run had recorded; return from when on to replay."""
        store, world = self.app.store, self.scene.world
        meta = store.meta(TOPIC)
        step = self.scene.series.grid.step
        recorded = None
        if meta is not None and meta.step_s == step.total_seconds() and meta.last_index is not None:
            recorded = self.scene.series.grid.start_of(meta.last_index + 1)
        if recorded is None or not world.start <= recorded < world.end:
            if meta is not None:
                store.forget(TOPIC)
            load(store, self.scene.series, TOPIC, now=world.start)
            recorded = world.start
        if recorded > world.start:
            self._catch_up(recorded)
        self.at[0] = recorded
        return recorded

    def _catch_up(self, until: datetime) -> None:
        """Bring the simulated members to where an earlier run left them, by the decisions that it kept."""
        for decision in self.app.plans.decisions(GROUP, self.scene.world.start, limit=100_000):
            if decision.at > until:
                break
            self.group.advance(decision.at)
            if decision.actuation is not None:
                self.group.scale(GROUP, decision.plan.replicas, decision.at)
            self._note(decision.at)

    def learn(self) -> None:
        """Fit the forecast, and learn the planner's knobs on the history, or read what was learned before."""
        self.leads.fit(self.scene.world.start)
        token = self._lead()
        kept = self.app.plans.learned(GROUP, KNOBS)
        if kept and kept.get("scene") == self._scene_name:
            self.control.knobs = Knobs.from_json({k: v for k, v in kept.items() if k != "scene"})
            return
        self.control.knobs = learned_on_history(self.scene.world)
        self.app.plans.learn(GROUP, KNOBS, {**self.control.knobs.to_json(), "scene": self._scene_name}, token)

    @property
    def _scene_name(self) -> str:
        world = self.scene.world
        return (
            f"{world.start.isoformat()} {world.end.isoformat()} {world.capacity:g} {self.scene.series.counts.sum():.0f}"
        )

    def rivals(self) -> dict[str, Outcome]:
        """Run the rivals on the same arrivals, tuned on the same history; kept, since the same scene gives the same."""
        kept = self.app.plans.learned(GROUP, RIVAL_OUTCOMES)
        if kept and kept["scene"] == self._scene_name:
            return {name: _outcome_from_json(values) for name, values in kept["outcomes"].items()}
        outcomes = compare(self.scene.world, RIVALS)
        values = {name: _outcome_to_json(outcome) for name, outcome in outcomes.items()}
        document = {"scene": self._scene_name, "outcomes": values}
        self.app.plans.learn(GROUP, RIVAL_OUTCOMES, document, self._lead())
        return outcomes

    # -- minute by minute ------------------------------------------------------------------------------------------

    def step(self) -> Tick:
        """Play the minute that ends now: record it, forecast, plan, act; then let the next one begin."""
        now = self.at[0]
        report = self.recorder.tick()
        if report.why or report.written.why:
            self.app.board.problem(TOPIC, "arrivals", report.why or report.written.why or "")
        self.group.advance(now)
        try:
            tick = self.control.tick(now, self._lead())
        except BalancerError as error:
            self._renewed = -math.inf
            tick = Tick(now, error=f"hold: {error}")
        self._note(now)
        self._show(now, tick)
        if isinstance(tick.forecast, Forecast) and tick.forecast.origin == now:
            origin = int((now - self.scene.trace.start).total_seconds() // 60)
            self.score.add(self.scene.minutes, origin, tick.forecast.total)
        self.at[0] = now + timedelta(minutes=1)
        return tick

    def what_if(self, group: str, changes: Mapping[str, Any], now: datetime) -> Document:
        """Plan again from what is on the board, under other assumptions; nothing is kept or changed.

        Raises
        ------
        NotReady
            Before the first minute.
        """
        view = self.app.view(group)
        forecast = view.forecasts.get(TOPIC)
        if view.snapshot is None or forecast is None:
            raise NotReady(f"group {group} has not been seen yet; the replay begins within a minute")
        return planned_again(
            view.snapshot,
            forecast,
            self.control.policy,
            changes,
            now,
            knobs=self.control.knobs,
            rules=self._rules,
            timezone=self.control.timezone,
        )

    def _lead(self) -> LeaderToken:
        if self._token is None or time.monotonic() - self._renewed > RENEW_S:
            self._rules = self.app.operations.rules(TOPIC)
            token = self.app.plans.lead(GROUP, "demo", LEASE)
            assert token is not None  # one demo a folder: its lock is held
            self._token, self._renewed = token, time.monotonic()
        return self._token

    def _note(self, now: datetime) -> None:
        fleet = self.group.fleet
        reactive = [n for at, n in self.reactive if at <= now]
        point = ReplicaPoint(now, fleet.requested, fleet.working, reactive[-1] if reactive else None)
        view = self.app.view(TOPIC)
        view.replicas.append(point)
        behind = float(self.group.queues.backlog.sum())
        able = fleet.working * self.scene.world.capacity
        view.latencies.append((now, behind / able if able else 0.0))

    def _show(self, now: datetime, tick: Tick) -> None:
        def change(view: GroupView) -> None:
            if tick.snapshot is not None:
                view.snapshot = tick.snapshot
                view.at["snapshot"] = view.at["arrivals"] = now
            if tick.forecast is not None:
                view.forecasts[TOPIC] = tick.forecast
                view.at["forecast"] = now
            if tick.plan is not None:
                view.plan, view.plan_version = tick.plan, tick.version
                view.at["plan"] = now
            if tick.actuation is not None:
                view.acting_until = now + timedelta(seconds=self.scene.world.start_s)
            view.quality[TOPIC] = {"wape": self.score.wape("headway"), "coverage": self.score.coverage}
            view.gates[TOPIC] = (True, ("members are simulated: the demo acts from its first minute on",))
            if tick.error is None:
                view.problems.clear()

        self.app.board.update(TOPIC, "plan", change, now)
        if tick.error is not None:
            self.app.board.problem(TOPIC, "plan", tick.error)

    # -- afterwards ------------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Close the run and return its figures."""
        world = self.scene.world
        self.group.advance(world.end)
        return conclude(self.group, world.start, self.first, world.slo_s)


_FIGURES = (
    "late_share", "p50_s", "p99_s", "p999_s", "hours", "rescales", "rescales_per_day", "movement_rscore",
    "hours_vs_limit",
)  # fmt: skip


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    figures = {name: getattr(outcome, name) for name in _FIGURES}
    return {**figures, "changes": [[at.isoformat(), n] for at, n in outcome.changes], "notes": list(outcome.notes)}


def _outcome_from_json(values: Mapping[str, Any]) -> Outcome:
    changes = tuple((datetime.fromisoformat(at), int(n)) for at, n in values["changes"])
    return Outcome(**{name: values[name] for name in _FIGURES}, changes=changes, notes=tuple(values["notes"]))
