"""Headway over the demo's cluster: the same recorder, control tick, mover and supervisor that ``headway serve`` wires.

Two things are the demo's own: the clock is the trace's, and forecasts are those of ``headway demo`` (one ridge per
lead, fitted on the recorded weeks), since a forecast that must first prove itself for a day cannot act in two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from balancer.actuators.base import Actuator
from balancer.control import ControlLoop, Tick
from balancer.knobs import Knobs
from balancer.observers.kafka import KafkaGroupObserver
from balancer.observers.planned import PlannedGroupObserver
from balancer.plans.base import LeaderToken
from benchmarks.demo_kafka.scene import MOST, OURS, SLO, START_TIME, Scene
from benchmarks.demo_kafka.tempo import PACE, TOPIC
from forecaster.forecast import Forecast, ForecastResult
from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.replay import load
from forecaster.offsets import CountingPolicy
from forecaster.topics import GroupId
from headway.application import Application
from headway.configuration.settings import Settings
from headway.consumers.moving import Caretaker, open_planned_group
from headway.consumers.planned_groups import plan_to_follow
from headway.demo import ShortLeads
from headway.status.board import GroupView, ReplicaPoint
from headway.wiring import open_forecasts
from headway.work.facts import recorded_states

GROUP = GroupId(OURS)
LEASE, RENEW_S = timedelta(seconds=60), 10.0

CONFIG = """\
cluster = "demo-kafka"
state = "{folder}/state"
[store]
url = "{store}"
[kafka]
bootstrap_servers = "{kafka}"
[models]
path = "{folder}/state/models"
[api]
port = {port}
[groups.{group}]
topics = ["{topic}"]
mode = "act"
assignment = "planned"
timezone = "{zone}"
capacity_per_member = {capacity}
start_time = "{start_s}s"
pause = "20s"
slo = "{slo_s}s"
max_replicas = {most}
lease_ttl = "6s"
moves_per_hour = 10000
rescales_per_day = 96
"""


def write_config(folder: Path, store: str, kafka: str, port: int, scene: Scene) -> Path:
    """Write the settings that Headway and its workers read; return the file."""
    path = folder / "headway.toml"
    text = CONFIG.format(
        folder=folder, store=store, kafka=kafka, port=port, group=OURS, topic=TOPIC, most=MOST,
        zone=scene.series.grid.timezone, capacity=round(scene.capacity, 4), slo_s=round(SLO.total_seconds()),
        start_s=round(START_TIME.total_seconds()),
    )  # fmt: skip
    path.write_text(text)
    return path


class Ours:
    """One planned group under Headway; :meth:`step` is called whenever the trace's clock has moved on a little."""

    def __init__(self, app: Application, settings: Settings, scene: Scene, target: Actuator, knobs: Knobs) -> None:
        self.app, self.scene = app, scene
        load(app.store, scene.series, TOPIC, now=scene.world.start)
        self._leads = ShortLeads(open_forecasts(settings, app.store), TOPIC)
        self._leads.fit(scene.world.start)
        counts = scene.series.counts[:, : scene.world.first_minute]
        self._shares = np.nan_to_num(counts).sum(axis=1) / np.nansum(counts)
        properties = settings.kafka_properties()
        self.source = KafkaOffsetSource(properties, clock=app.clock)
        self._recorder = Recorder(
            app.store, self.source, {GROUP: (TOPIC,)}, policy=CountingPolicy(60, 20.0, 1800.0), clock=app.clock
        )
        self.parts = open_planned_group(settings, OURS)
        self._caretaker = Caretaker(self.parts, lambda: plan_to_follow(app, OURS), look_every_s=0.2)
        seen = KafkaGroupObserver(
            properties,
            facts=lambda group: recorded_states(app.store, group, (TOPIC,), app.clock()),
            replicas=target.current,
            clock=app.clock,
        )
        self.loop = ControlLoop(
            GROUP,
            PlannedGroupObserver(seen, self.parts.store, lambda: None),
            self.forecast,
            app.plans,
            target,
            settings.policy(OURS),
            mode="act",
            knobs=knobs,
            timezone=scene.series.grid.timezone,
        )
        self._token: LeaderToken | None = None
        self._renewed = 0.0
        self._minute: datetime | None = None
        app.view(OURS).gate = (True, ("the demo's forecasts act from the first minute on",))

    def start(self) -> None:
        """Begin to grant partitions to workers."""
        self._caretaker.start()

    def stop(self) -> None:
        """End; members keep what they have."""
        self._caretaker.stop()
        self.loop.observer.close()
        self._recorder.close()

    def forecast(self, group: GroupId, now: datetime) -> ForecastResult:
        """Return the forecast of the next six hours, spread over the partitions as they were in the recorded weeks."""
        total = self._leads.forecast(group, now)
        if not isinstance(total, Forecast):
            return total
        rates = self._shares[:, None, None] * total.total[None]
        return replace(total, partitions=tuple(range(self._shares.size)), rates=rates)

    def step(self) -> Tick:
        """Record what a minute of the trace brought, then observe, forecast, plan, publish, actuate, verify."""
        now = self.app.clock()
        minute = now.replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute = minute
            self._recorder.tick()
        tick = self.loop.tick(self.app.clock(), self._lead())
        self._show(now, tick)
        return tick

    def _lead(self) -> LeaderToken:
        if self._token is None or time.monotonic() - self._renewed > RENEW_S:
            self._token, self._renewed = self.app.plans.lead(GROUP, "demo-kafka", LEASE), time.monotonic()
        assert self._token is not None  # nobody else knows this store
        return self._token

    def _show(self, now: datetime, tick: Tick) -> None:
        def change(view: GroupView) -> None:
            if tick.snapshot is not None:
                view.snapshot = tick.snapshot
                view.at["snapshot"] = view.at["arrivals"] = now
                view.replicas.append(ReplicaPoint(now, tick.snapshot.replicas, tick.snapshot.working or None))
            if tick.forecast is not None:
                view.forecasts[TOPIC] = tick.forecast
                view.at["forecast"] = now
            if tick.plan is not None:
                view.plan, view.plan_version = tick.plan, tick.version

        self.app.board.update(OURS, "plan", change, now)
        if tick.error is not None:
            self.app.board.problem(OURS, "plan", tick.error)


def every(seconds: float, so_long: Callable[[], bool]) -> None:
    """Sleep until the next multiple of ``seconds``, if ``so_long`` holds."""
    if so_long():
        time.sleep(seconds - time.monotonic() % seconds)


TICK_S = 30.0 / PACE
"""Between two ticks: half a minute of the trace."""
