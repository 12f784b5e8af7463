"""Groups at work over in-memory twins: what is seen, planned, guarded and shown."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from balancer.actuators.memory import MemoryActuator
from balancer.errors import ObserverUnavailable, PlanStoreUnavailable, PolicyRefused, TargetRefused
from balancer.planner import plan
from forecaster.errors import StoreUnavailable
from forecaster.serving import ForecastService
from forecaster.stores.base import Cells, SeriesKey
from forecaster.topics import TopicPartition
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.errors import HeadwayError, NotReady
from headway.status import logs
from headway.work.loops import GroupRunner, Guarded, RecordedObserver
from tests.unit.headway.conftest import NOW


@pytest.fixture
def target():
    return MemoryActuator({"orders": 2})


@pytest.fixture
def runner(application, target):
    group = {"topics": ["orders"], "capacity_per_member": 10.0, "cap_at_partitions": False, "mode": "act"}
    application.settings = Settings(groups={"orders": group})
    observer = RecordedObserver(application, ("orders",), target)
    service = ForecastService(application.store)
    return GroupRunner(application, "orders", observer, target, service, timedelta(seconds=15))


def record(application, rates, lag=0, topic="orders"):
    """Record constant arrivals (records/s a partition) and lag for the last hour."""
    index = int(NOW.timestamp()) // 60 - 60
    counts = np.repeat(np.array(rates)[:, None] * 60, 60, axis=1).astype(np.int64)
    known = np.ones(counts.shape, dtype=bool)
    application.store.backfill(SeriesKey(topic, "arrivals"), Cells(index, counts, known))
    application.store.backfill(SeriesKey(topic, "lag", "orders"), Cells(index, np.full_like(counts, lag), known))


def test_a_group_is_seen_by_its_records_while_they_are_young(application, target):
    record(application, [5.0, 7.0], lag=3)
    observer = RecordedObserver(application, ("orders", "never"), target)
    seen = observer.observe("orders").partitions
    assert seen[TopicPartition("orders", 1)].arrival_rate == 7.0
    assert seen[TopicPartition("orders", 0)].lag == 3
    application.clock = lambda: NOW + timedelta(minutes=10)
    later = observer.observe("orders").partitions
    assert later[TopicPartition("orders", 0)].arrival_rate is None
    assert "no arrivals are recorded" in later[TopicPartition("orders", 0)].why


def test_a_turn_plans_acts_and_is_shown(application, runner, target):
    record(application, [30.0, 30.0])
    runner.forecast()
    said = runner.act()
    assert target.current("orders") > 6
    view = application.view("orders")
    assert view.plan.replicas == target.current("orders")
    assert view.state == "acting"
    assert said.startswith(f"{view.plan.replicas} members")
    kept = application.plans.decisions("orders", NOW - timedelta(hours=1))
    assert [d.actuation["state"] for d in kept] == ["pending"]
    assert [d.id for d in view.decisions] == [d.id for d in kept], "what is answered while the store is away"
    assert application.ready


@pytest.fixture
def log_again():
    """The standard library's loggers as they were, after a test that configures them as ``serve`` does."""
    root, ours = logging.getLogger(), logging.getLogger("headway")
    before = root.level, ours.level
    yield
    root.handlers.clear()
    root.setLevel(before[0])
    ours.setLevel(before[1])


def logged(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_target_that_sees_its_members_is_asked_about_them(application):
    class Seeing(MemoryActuator):
        def not_ready(self, group):
            return f"{group}-x (ImagePullBackOff, 0 restarts)"

    application.settings = Settings(groups={"orders": {"topics": ["orders"]}})
    for target, said in ((Seeing(), "orders-x (ImagePullBackOff, 0 restarts)"), (MemoryActuator(), "")):
        observer = RecordedObserver(application, ("orders",), target)
        service = ForecastService(application.store)
        made = GroupRunner(application, "orders", observer, target, service, timedelta(seconds=15))
        assert made.loop.not_ready("orders") == said


def test_every_decision_is_one_event_of_the_log(application, runner, target, capsys, log_again):
    logs.configure()
    record(application, [30.0, 30.0])
    for second in range(3):
        application.clock = lambda second=second: NOW + timedelta(seconds=second)
        runner.act()
    decisions = application.plans.decisions("orders", NOW - timedelta(hours=1))
    events = [event for event in logged(capsys) if event["event"] == "decision"]
    assert [event["id"] for event in events] == [d.id for d in decisions]
    wanted = {"part", "group", "mode", "replicas", "held", "reason", "outcome", "detail", "level", "timestamp"}
    assert wanted <= events[0].keys()
    assert (events[0]["group"], events[0]["mode"], events[0]["outcome"]) == ("orders", "act", "pending")
    assert events[0]["replicas"] == target.current("orders")
    assert events[0]["reason"] == decisions[0].plan.reasons[0]


def test_moves_are_events_of_the_log_and_the_chatter_of_clients_is_not(capsys, log_again):
    logs.configure()
    logging.getLogger("headway.moves").info("books of %s founded", "orders")
    logging.getLogger("kafka.conn").info("connected")
    (event,) = logged(capsys)
    assert (event["event"], event["level"]) == ("books of orders founded", "info")


def test_decisions_that_repeat_themselves_are_kept_once_in_memory(application, runner):
    record(application, [30.0, 30.0])
    application.operations.set_mode("orders", Mode.RECOMMEND, "test", NOW)
    for second in range(5):
        application.clock = lambda second=second: NOW + timedelta(seconds=second)
        runner.act()
    (kept,) = application.view("orders").decisions
    assert kept.at == NOW + timedelta(seconds=4)


def test_modes_below_act_change_nothing(application, runner, target):
    record(application, [30.0, 30.0])
    for mode in (Mode.RECOMMEND, Mode.SHADOW, Mode.OFF):
        application.operations.set_mode("orders", mode, "test", NOW)
        runner.act()
        assert target.current("orders") == 2
    assert runner.act() == "off"


def test_pause_all_stops_the_very_next_actuation(application, runner, target):
    record(application, [30.0, 30.0])
    application.operations.pause("*", "ann", NOW)
    with pytest.raises(HeadwayError, match="paused by ann"):
        runner.act()
    assert target.current("orders") == 2
    assert application.view("orders").plan.replicas > 2  # planning goes on
    application.operations.resume("*", "ann", NOW)
    runner.act()
    assert target.current("orders") > 2


def test_a_plan_that_needs_approval_waits_for_it(application, target):
    guarded = Guarded(target, application, needs_approval=True)
    with pytest.raises(TargetRefused, match="headway approve --group orders"):
        guarded.scale("orders", 7, NOW)
    application.plans.set_setting("orders", "approval", {"replicas": 7, "at": "2026-01-05T08:30:00Z"})
    assert guarded.scale("orders", 7, NOW).replicas == 7
    with pytest.raises(TargetRefused):
        guarded.scale("orders", 7, NOW + timedelta(hours=1))


def test_a16_a24_errors_hold_and_are_shown(application, runner, target, monkeypatch):
    record(application, [30.0, 30.0])

    def gone(*_args, **_kwargs):
        raise StoreUnavailable("redis://h does not answer")

    monkeypatch.setattr(application.store, "meta", gone)
    with pytest.raises(HeadwayError, match="does not answer"):
        runner.act()
    assert target.current("orders") == 2
    assert application.view("orders").state == "attention"
    assert application.view("orders").replicas[-1].numbers == (None, None, None), "a gap"
    with pytest.raises(ObserverUnavailable):
        RecordedObserver(application, ("orders",), target).observe("orders")
    monkeypatch.undo()

    def away(*_args, **_kwargs):
        raise PlanStoreUnavailable("no answer")

    monkeypatch.setattr(application.plans, "publish", away)
    with pytest.raises(HeadwayError, match="no answer"):
        runner.act()
    assert target.current("orders") == 2
    monkeypatch.undo()
    runner.act()
    assert target.current("orders") > 2
    assert application.view("orders").problems == {}


def test_only_the_leader_acts(application, runner, target):
    record(application, [30.0, 30.0])
    application.plans.lead("orders", "somebody else", timedelta(minutes=5))
    assert runner.act() == "another instance leads"
    assert target.current("orders") == 2


def test_what_if_changes_nothing(application, runner, target):
    record(application, [30.0, 30.0])
    with pytest.raises(NotReady):
        runner.what_if({}, NOW)
    runner.act()
    before = (target.current("orders"), application.plans.latest("orders"))
    as_it_is = runner.what_if({}, NOW)["replicas"]
    stronger = runner.what_if({"capacity": 40.0}, NOW)["replicas"]
    capped = runner.what_if({"policy": {"max_replicas": 3, "slo": "30s"}}, NOW)
    assert stronger <= as_it_is
    assert capped["steps"][-1]["replicas"] <= 3
    with pytest.raises(NotReady, match="no whole day"):
        runner.what_if({"history": {}}, NOW)
    assert (target.current("orders"), application.plans.latest("orders")) == before
    for wrong in (
        {"max_replica": 3},
        {"slo": 30},
        {"max_replicas": 2.5},
        {"max_replicas": 10**9},
        {"late_target": "x"},
    ):
        with pytest.raises(PolicyRefused):
            runner.what_if({"policy": wrong}, NOW)


def test_a_group_of_several_topics_is_planned_by_all_their_forecasts(application, target):
    topics = ("orders", "returns")
    group = {"topics": topics, "capacity_per_member": 10.0, "cap_at_partitions": False}
    application.settings = Settings(groups={"orders": group})
    application.view("orders").topics = topics
    observer, service = RecordedObserver(application, topics, target), ForecastService(application.store)
    runner = GroupRunner(application, "orders", observer, target, service, timedelta(seconds=15))
    record(application, [5.0, 7.0])
    record(application, [100.0], topic="returns")
    assert "no forecast has been made yet" in runner.latest_forecast("orders", NOW).reason
    runner.forecast()
    view = application.view("orders")
    view.gates = dict.fromkeys(topics, (True, ("good",)))
    told = runner.latest_forecast("orders", NOW)
    assert [str(row) for row in told.rows] == ["orders:0", "orders:1", "returns:0"]
    assert told.at_level(0.5).mean(axis=1) == pytest.approx([5.0, 7.0, 100.0], rel=0.2)
    runner.plan()
    assert view.plan.replicas >= 12  # 112 records/s by members of 10
    assert not any("no forecast" in reason for reason in view.plan.reasons)

    view.gates["returns"] = (False, ("error 40 %, the last value has 20 %",))
    assert view.gate == (False, ("returns: error 40 %, the last value has 20 %",))
    assert runner.latest_forecast("orders", NOW).reason == "returns: gate: error 40 %, the last value has 20 %"

    view.gates["returns"] = (True, ("good",))
    fresh = view.forecasts["returns"]
    long = replace(fresh, step=timedelta(minutes=30), origin=NOW - timedelta(minutes=29))
    view.forecasts["returns"] = long  # of steps of half an hour, made this minute: its origin is the last whole one
    view.forecasts["orders"] = replace(view.forecasts["orders"], origin=NOW - timedelta(minutes=29))
    assert runner.latest_forecast("orders", NOW).topic == "orders", "of minutes, and 29 of them old"
    view.forecasts["orders"] = replace(view.forecasts["orders"], origin=NOW + timedelta(minutes=1))
    assert runner.latest_forecast("orders", NOW).topic == "orders+returns"
    view.forecasts["returns"] = replace(fresh, origin=NOW - timedelta(hours=5))
    old = runner.latest_forecast("orders", NOW)
    assert old.topic == "returns", "a fresh one beside it does not make it young"
    target.scale("orders", 30, NOW)
    made = plan(observer.observe("orders"), old, runner.loop.learned_policy(), NOW).plan
    assert made.replicas == 30, "nobody is given up by what is known of one topic"
    assert any("the forecast was made 300 min ago" in reason for reason in made.reasons)
