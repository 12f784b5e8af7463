"""Knobs from a group's own weeks: kept, planned with at once, learned again a week later; and why there are none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from balancer.actuators.memory import MemoryActuator
from balancer.control import KNOBS
from balancer.knobs import Knobs
from balancer.policy import ScalingPolicy
from forecaster.series import ArrivalSeries
from forecaster.serving import ForecastService
from forecaster.stores.base import Cells, SeriesKey
from forecaster.timegrid import TimeGrid
from headway.configuration.settings import Settings
from headway.work import lessons
from headway.work.lessons import knobs_from
from headway.work.loops import GroupRunner, RecordedObserver
from headway.work.retraining import retrain_topics
from tests.unit.headway.conftest import NOW

POLICY = ScalingPolicy(capacity_per_member=10.0, max_replicas=16)


def weeks(days=26, partitions=2, step_s=1800):
    steps = days * 86_400 // step_s
    at = np.arange(steps) * step_s / 86_400
    counts = np.round((30 + 20 * np.sin(2 * np.pi * at)) * step_s / partitions)
    first = int(NOW.timestamp()) // step_s - steps
    known = np.ones((partitions, steps), dtype=bool)
    return ArrivalSeries(
        "orders", TimeGrid(step_s), first, tuple(range(partitions)), np.tile(counts, (partitions, 1)), known
    )


@pytest.fixture
def lesson(monkeypatch):
    """Note what the learner is given; which knobs it chooses is the concern of its own tests."""
    given = []

    def choose(past, setting, frame, *, late_target, budget):
        given.append((past, setting, frame, late_target, budget))
        return Knobs(near_level=0.95, learned_on="three weeks"), None

    monkeypatch.setattr(lessons, "learn_knobs", choose)
    monkeypatch.setattr(lessons, "ridge_forecaster", lambda minutes: lambda first, end: None)
    return given


@pytest.mark.parametrize(
    ("history", "policy", "why"),
    [
        (weeks(days=20), POLICY, "20 days are recorded, knobs are learned from 25 on"),
        (weeks(), replace(POLICY, capacity_per_member=None), "capacity of a member is not known"),
        (weeks(), replace(POLICY, min_replicas=2), "nothing to choose between 2 and 2"),
        (replace(weeks(), known=np.zeros((2, 1248), dtype=bool), counts=np.zeros((2, 1248))), POLICY, "0% of the"),
    ],
)
def test_what_cannot_be_learned_on_yet_says_why(history, policy, why):
    said = knobs_from(history, policy)
    assert isinstance(said, str)
    assert why in said


def test_three_weeks_are_learned_on_with_what_the_busiest_member_sustains(lesson):
    skewed = weeks()
    skewed.counts[0] *= 3
    assert isinstance(knobs_from(skewed, replace(POLICY, lead_time=timedelta(seconds=90))), Knobs)
    ((past, setting, frame, late_target, budget),) = lesson
    assert past.minutes.shape == (3, 7 * 1440)
    assert past.minutes.sum() == pytest.approx(skewed.counts[:, -21 * 48 - 1 : -1].sum(), rel=0.01)
    assert setting.curve.rates.round(2).tolist() == [0.0, 10.0, 13.33]
    assert (frame.lead_s, late_target, budget) == (90.0, POLICY.late_target, POLICY.rescales_per_day)


def test_the_retrain_job_keeps_knobs_and_the_next_tick_plans_with_them(application, lesson):
    group = {"topics": ["orders"], "capacity_per_member": 10.0, "cap_at_partitions": False, "max_replicas": 16}
    application.settings = Settings(groups={"orders": group})
    history = weeks()
    application.store.backfill(
        SeriesKey("orders", "arrivals", None, 1800),
        Cells(history.first_index, history.counts.astype(np.int64), history.known),
    )
    target = MemoryActuator({"orders": 4})
    runner = GroupRunner(
        application,
        "orders",
        RecordedObserver(application, ("orders",), target),
        target,
        ForecastService(application.store),
        timedelta(seconds=15),
    )
    assert runner.learn() == "knobs: three weeks"
    kept = application.plans.learned("orders", KNOBS)
    assert Knobs.from_json(kept) == runner.loop.knobs
    runner.act()
    assert application.plans.decisions("orders", NOW)[0].inputs["knobs"] == kept
    assert "not due" in runner.learn()
    application.clock = lambda: NOW + timedelta(days=8)
    assert "of the history is known" in runner.learn()  # eight days without a record: the old ones stay
    assert application.plans.learned("orders", KNOBS) == kept
    assert len(lesson) == 1


def test_a_topic_too_young_to_train_is_no_failure_and_leaves_no_other_out(application):
    history = weeks()
    for topic, steps in (("young", 48), ("orders", history.steps)):
        cells = Cells(history.end_index - steps, history.counts[:, -steps:].astype(np.int64), history.known[:, -steps:])
        application.store.backfill(SeriesKey(topic, "arrivals", None, 1800), cells)
    said = retrain_topics(
        application.settings, ForecastService(application.store), application.store, ("young", "silent"), NOW
    )
    assert "not yet" in said[0] and "training needs" in said[0]
    assert said[1] == "silent: nothing is recorded yet"
