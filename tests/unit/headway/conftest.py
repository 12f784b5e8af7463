"""An application over in-memory twins, with a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from fastapi.testclient import TestClient

from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.plan import Bound, BoundKind, PlannedStep, ScalingPlan
from balancer.plans.base import Decision
from balancer.plans.memory import MemoryPlanStore
from forecaster.forecast import Forecast, Rung
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import TopicPartition
from headway.api.server import create_app
from headway.application import Application
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.status.board import Board
from headway.status.metrics import Metrics

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@pytest.fixture
def settings():
    return Settings(groups={"orders": {"topics": ["orders"]}, "bills": {"topics": ["bills"]}})


@pytest.fixture
def application(settings):
    plans, audit = MemoryPlanStore(clock=lambda: NOW), Audit()
    board = Board()
    for name in settings.named_groups:
        board.add(name, settings.group(name).topics)
    return Application(
        settings,
        MemorySeriesStore(clock=lambda: NOW),
        plans,
        board,
        Operations(plans, audit),
        Metrics(),
        clock=lambda: NOW,
        audit_entries=audit.entries,
    )


@pytest.fixture
def client(application):
    return TestClient(create_app(application), raise_server_exceptions=False)


def a_forecast(topic="orders", partitions=2, steps=60):
    levels = (0.5, 0.9, 0.95)
    rates = np.full((partitions, steps, 3), [10.0, 20.0, 25.0])
    step, numbers = timedelta(minutes=1), tuple(range(partitions))
    return Forecast(topic, NOW, step, numbers, levels, rates, rates.sum(axis=0), "blend", Rung.OWN_MODEL)


def a_plan(group="orders", replicas=3, later=5):
    steps = (PlannedStep(NOW, replicas, 40.0), PlannedStep(NOW + timedelta(hours=1), later, 90.0))
    return ScalingPlan(group, NOW, steps, Bound(BoundKind.PARTITION, "orders:1", NOW), ("q95 is 40 records/s",), 3)


def a_decision(group="orders", id="d1", at=NOW):
    return Decision(id, group, at, "recommend", a_plan(group), {"capacity": 20.0})


def a_snapshot(group="orders"):
    members = (Member("a", (TopicPartition("orders", 0),)), Member("b", ready=False))
    return GroupSnapshot(group, NOW, 2, members, {TopicPartition("orders", 0): PartitionState(7, 12.5)})
