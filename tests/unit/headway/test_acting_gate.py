"""The forecast's gate decides what may act: a bad forecast moves nothing, and is let back in only after a dwell."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from balancer.actuators.memory import MemoryActuator
from balancer.plans.memory import MemoryPlanStore
from forecaster.forecast import NoForecast
from forecaster.gate import GatePolicy
from forecaster.registry import ModelRegistry
from forecaster.retraining import RetrainPolicy, last_trained, retrain
from forecaster.serving import ForecastService
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.topics import StreamId
from forecaster.training import TrainingPolicy
from headway.application import Application
from headway.assembly import assemble
from headway.cli import main
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.errors import HeadwayError
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.status.board import Board
from headway.status.metrics import Metrics
from headway.wiring import open_target
from headway.work.loops import GroupRunner, RecordedObserver
from tests.unit.forecaster.naive_oracle import Yesterday
from tests.unit.forecaster.test_serving import KEY, NOW, STEP_S, CountingStore, _card, filled, index, tick

STEP = timedelta(seconds=STEP_S)
LAG = SeriesKey("orders", "lag", "orders", step_s=STEP_S)
STREAM = StreamId("main", "orders")


class House:
    """One group over two partitions of about 0.1 records/s each, with a clock that we turn."""

    def __init__(self, models: ModelRegistry, method: object) -> None:
        self.now = NOW
        self.store: CountingStore = filled()
        cells = self.store.read(KEY, index(NOW) - 288, index(NOW))
        self.store.backfill(LAG, Cells(cells.first_index, np.zeros_like(cells.values), cells.known))
        group = {"topics": ["orders"], "capacity_per_member": 0.1, "cap_at_partitions": False, "mode": "act"}
        settings = Settings(defaults={"step": "5m"}, groups={"orders": group})
        plans, board = MemoryPlanStore(clock=lambda: self.now), Board()
        board.add("orders", ("orders",), "act")
        self.app = Application(
            settings, self.store, plans, board, Operations(plans, Audit()), Metrics(), clock=lambda: self.now
        )
        self.target = MemoryActuator({"orders": 3})
        self.models = models
        self.serve(method)
        observer = RecordedObserver(self.app, ("orders",), self.target)
        service = ForecastService(self.store, models)
        self.runner = GroupRunner(self.app, "orders", observer, self.target, service, timedelta(seconds=15))
        self.runner.desk._gate = GatePolicy(min_points=10, dwell=timedelta(hours=2), window=timedelta(hours=3))
        self.rng = np.random.default_rng(2)

    def serve(self, method: object) -> None:
        card = self.models.save(STREAM, method, _card(step_s=STEP_S))  # type: ignore[arg-type]
        self.models.promote(STREAM, card.version, self.now)

    def step(self) -> None:
        """Forecast, plan and act, then let a step pass."""
        self.runner.forecast()
        self.runner.act()
        tick(self.store, self.now, self.rng.poisson(30, 2).tolist())
        column = (np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
        self.store.append([Tick("orders", STEP_S, index(self.now), {LAG: column})])
        self.now += STEP

    @property
    def said(self) -> str:
        plan = self.app.view("orders").plan
        return "" if plan is None else " ".join(plan.reasons)


def test_a_forecast_acts_only_once_it_has_been_scored(tmp_path: Path) -> None:
    house = House(ModelRegistry(tmp_path), Yesterday())
    house.step()
    assert "gate: 0 of 10 points are scored" in house.said
    assert isinstance(house.runner.latest_forecast("orders", house.now), NoForecast)


def test_a_bad_model_moves_nothing_and_its_successor_acts_after_the_dwell(tmp_path: Path) -> None:
    house = House(ModelRegistry(tmp_path), Yesterday(factor=50.0))
    most = 0
    for _ in range(20):
        house.step()
        most = max(most, house.target.current("orders") or 0)
    assert most < 12  # two records in ten seconds need two members; the model asks for a hundred
    assert "gate: closed since" in house.said
    house.serve(_Thirty())
    opened = None
    for k in range(90):
        house.step()
        if opened is None and house.app.view("orders").gate[0]:
            opened = k
    # three hours until the window is free of the old faults, and two of dwell
    assert opened is not None and opened >= 24
    assert "gate" not in house.said
    assert not isinstance(house.runner.latest_forecast("orders", house.now), NoForecast)


class _Thirty(Yesterday):
    """Says what is true: thirty records a step."""

    def predict(self, history, horizon_steps, levels=(0.5,)):  # type: ignore[no-untyped-def]
        from scipy.stats import poisson

        found = super().predict(history, horizon_steps, levels)
        rates = np.broadcast_to(np.array([poisson.ppf(q, 30) for q in levels]) / STEP_S, found.rates.shape).copy()
        return type(found)(
            found.topic, found.origin, found.step, found.partitions, found.levels, rates, rates.sum(axis=0), "thirty",
            found.rung,
        )  # fmt: skip


def test_mode_act_is_refused_while_the_gate_is_closed(tmp_path: Path) -> None:
    from contextlib import ExitStack

    from balancer.actuators.board import ScalerBoard

    house = House(ModelRegistry(tmp_path), Yesterday())
    app = house.app
    polled = Settings(state=tmp_path, groups={"orders": {"topics": ["orders"], "actuator": {"kind": "keda"}}})
    posts = ScalerBoard()
    assert open_target(polled, "orders", posts) is posts
    actuator = {"kind": "process", "command": [sys.executable]}
    app.settings = Settings(state=tmp_path, groups={"orders": {"topics": ["orders"], "actuator": actuator}})
    with ExitStack() as stack:
        assemble(app, stack, posts)
        with pytest.raises(HeadwayError, match="may not act yet: gate: no forecast has been scored yet"):
            app.set_mode("orders", Mode.ACT, "ann", NOW)
        app.board.update("orders", "forecast", lambda view: view.gates.update(orders=(True, ("fine",))))
        app.set_mode("orders", Mode.ACT, "ann", NOW)
        assert app.view("orders").mode == "act"


def test_drift_makes_training_due_and_the_command_line_shows_health(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = House(ModelRegistry(tmp_path), Yesterday(factor=2.0))
    for _ in range(40):
        house.step()
    drifted = house.runner.desk.drift("orders", house.now)
    assert drifted is not None and drifted.startswith("over-forecast by")
    history = house.runner.service.history("orders", house.now)
    assert history is not None
    first = retrain(history, STREAM, house.models, house.now, TrainingPolicy(method="median_blend", test_days=1))
    assert first.promoted  # it is better than what over-forecasts by half
    assert RetrainPolicy().due(last_trained(house.models, STREAM), house.now + timedelta(days=1), drifted) is not None
    assert house.models.rollback(STREAM, house.now) != first.card.version
    from headway.cli.sources import Recorded

    said = Recorded(house.store, house.runner.service).health("orders", house.now)
    assert said["drift"] == drifted and said["bias"] > 0.25 and said["points"] > 48
    assert set(json.loads(json.dumps(said))["coverage"]) == {"0.9", "0.95", "0.99"}


def test_headway_rollback_is_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ModelRegistry(tmp_path)
    versions = []
    for k in range(2):
        card = models.save(STREAM, Yesterday(), _card(step_s=STEP_S))
        models.promote(STREAM, card.version, datetime.fromisoformat(f"2026-01-0{k + 1}T00:00:00+00:00"))
        versions.append(card.version)
    assert main(["rollback", "--topic", "orders", "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == versions[0]
