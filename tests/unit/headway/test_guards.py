"""What stands between plan and target, the numbers that scalers poll, and decisions computed again."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from balancer.actuators.board import Posted, ScalerBoard
from balancer.actuators.memory import MemoryActuator
from balancer.errors import StaleLeader, TargetRefused
from forecaster.serving import ForecastService
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.errors import HeadwayError, SettingsRefused
from headway.operation.guards import ActGate, Guarded
from headway.operation.posting import Posting
from headway.operation.replaying import compared, replay
from headway.work.loops import GroupRunner, RecordedObserver
from tests.unit.headway.conftest import NOW, a_forecast, a_plan
from tests.unit.headway.test_loops import record

GROUP = {"topics": ["orders"], "capacity_per_member": 10.0, "cap_at_partitions": False, "mode": "act"}


def run_by(application, target, posting=None, **more):
    application.settings = Settings(groups={"orders": GROUP | more})
    observer = RecordedObserver(application, ("orders",), target)
    service = ForecastService(application.store)
    return GroupRunner(application, "orders", observer, target, service, timedelta(seconds=15), posting)


def test_a_leader_that_was_slow_finds_out_before_the_target_does(application):
    target = MemoryActuator({"orders": 2})
    guarded = Guarded(target, application, needs_approval=False)
    guarded.token = application.plans.lead("orders", "a", timedelta(seconds=1))
    application.plans.resign(guarded.token)
    application.plans.lead("orders", "b", timedelta(minutes=1))
    with pytest.raises(StaleLeader):
        guarded.scale("orders", 9, NOW)
    assert target.current("orders") == 2


def test_act_is_honoured_only_once_nothing_speaks_against_it(application):
    record(application, [30.0, 30.0])
    target = MemoryActuator({"orders": 2})
    runner = run_by(application, target)
    against = ["may not patch deployments/scale in default"]
    application.target_gate = lambda name: against
    runner.act()
    assert target.current("orders") == 2
    assert application.view("orders").problems["gate"] == f"may not act yet: {against[0]}"
    against.clear()
    application.clock = lambda: NOW + timedelta(seconds=15)
    runner.act()
    assert target.current("orders") > 2
    assert "gate" not in application.view("orders").problems


def test_an_open_gate_stays_open():
    asked = []
    gate = ActGate(lambda: asked.append(1) or ())
    for second in range(5):
        assert gate.honoured(Mode.ACT, NOW + timedelta(seconds=second)) == (Mode.ACT, ())
    assert len(asked) == 1


def test_scale_in_is_frozen_within_named_windows_and_growth_is_not(application):
    windows = ({"name": "sale", "from": "2026-01-05T08:00:00Z", "to": "2026-01-05T10:00:00Z"},)
    target = MemoryActuator({"orders": 7})
    record(application, [1.0, 1.0])
    runner = run_by(application, target, freeze=windows, scale_down_dwell="0s")
    assert "sale, no scale-in: at least 7" in " ".join(runner.act() and application.view("orders").plan.reasons)
    assert target.current("orders") == 7
    record(application, [60.0, 60.0])
    application.clock = lambda: NOW + timedelta(minutes=1)
    runner.act()
    assert target.current("orders") > 7


def test_a_frozen_window_without_a_name_is_refused():
    with pytest.raises(Exception, match="every window has a name"):
        Settings(
            groups={"orders": GROUP | {"freeze": [{"from": "2026-01-05T08:00:00Z", "to": "2026-01-06T08:00:00Z"}]}}
        )


def test_c11_a_steady_number_never_grows_old_and_followers_know_it(application):
    application.store = MemorySeriesStore(clock=lambda: NOW + timedelta(minutes=30))
    index = int(NOW.timestamp()) // 60 - 30
    counts = np.full((2, 60), 600, dtype=np.int64)
    for name, of in (("arrivals", None), ("lag", "orders")):
        cells = Cells(index, counts if of is None else 0 * counts, np.ones(counts.shape, dtype=bool))
        application.store.backfill(SeriesKey("orders", name, of), cells)
    posts, other = ScalerBoard(timedelta(minutes=5)), ScalerBoard(timedelta(minutes=5))
    runner = run_by(application, posts, Posting(posts, application.plans, "orders"), actuator={"kind": "keda"})
    posts.restore("orders", Posted(3, NOW - timedelta(hours=1)))
    for tick in range(60):
        application.clock = lambda at=NOW + timedelta(seconds=15 * tick): at
        runner.act()
        assert posts.posted("orders").at == application.clock()
    Posting(other, application.plans, "orders").follow()
    assert other.posted("orders") == posts.posted("orders")


def test_a_pause_holds_the_number_and_a_failure_lets_it_grow_old(application):
    record(application, [30.0, 30.0])
    posts = ScalerBoard(timedelta(minutes=5))
    runner = run_by(application, posts, Posting(posts, application.plans, "orders"), actuator={"kind": "keda"})
    posts.restore("orders", Posted(2, NOW - timedelta(minutes=4)))
    application.operations.pause("*", "ann", NOW)
    with pytest.raises(HeadwayError, match="paused by ann"):
        runner.act()
    assert posts.posted("orders") == Posted(2, NOW)
    application.operations.resume("*", "ann", NOW)
    later = NOW + timedelta(minutes=9)  # nothing has been recorded for so long: the plan holds
    application.clock = lambda: later
    runner.act()
    assert application.view("orders").plan.hold
    assert posts.posted("orders").at == NOW


def test_b26_a_restart_takes_the_number_back_with_its_age(application):
    token = application.plans.lead("orders", "a", timedelta(minutes=1))
    application.plans.learn("orders", "posted", {"replicas": 9, "at": "2026-01-05T08:58:00Z"}, token)
    posts = ScalerBoard()
    Posting(posts, application.plans, "orders").follow()
    assert posts.posted("orders") == Posted(9, NOW - timedelta(minutes=2))


def test_a_decision_is_computed_again_from_what_was_kept(application):
    record(application, [30.0, 30.0])
    target = MemoryActuator({"orders": 2})
    runner = run_by(application, target)
    application.view("orders").forecasts["orders"] = a_forecast()
    runner.act()
    (kept,) = application.plans.decisions("orders", NOW)
    done = replay(application.plans, kept.id)
    assert done.differences == ()
    assert done.again["steps"][0]["replicas"] == target.current("orders")
    assert compared(kept.plan, a_plan()).differences != ()
    with pytest.raises(HeadwayError, match="no decision"):
        replay(application.plans, "orders@never")
    with pytest.raises(HeadwayError, match="no decision"):
        replay(application.plans, "nothing")


def test_b29_every_actuation_ends_in_a_named_state_in_its_decision(application):
    record(application, [30.0, 30.0])
    target = MemoryActuator({"orders": 2})
    runner = run_by(application, target, start_time="30s")
    runner.act()
    (kept,) = application.plans.decisions("orders", NOW)
    assert kept.actuation["state"] == "pending"
    again = run_by(application, target, start_time="30s")  # another leader goes on
    again.app.holder = runner.app.holder
    application.clock = lambda: NOW + timedelta(minutes=2)
    again.act()
    ended = application.plans.decision("orders", kept.id).actuation
    assert ended["state"] == "ineffective"
    assert "0 of" in ended["detail"]


def test_only_what_the_operator_approved_is_done(application):
    target = MemoryActuator({"orders": 2})
    record(application, [30.0, 30.0])
    runner = run_by(application, target, approval=True)
    with pytest.raises(HeadwayError, match="wait for approval"):
        runner.act()
    application.operations.approve("orders", None, "ann", NOW)
    application.clock = lambda: NOW + timedelta(seconds=15)
    runner.act()
    assert target.current("orders") == application.view("orders").plan.replicas > 2


def test_a_pause_ends_by_itself(application):
    guarded = Guarded(MemoryActuator({"orders": 2}), application, needs_approval=False)
    application.operations.pause("orders", "ann", NOW, timedelta(hours=2))
    with pytest.raises(TargetRefused, match="until 2026-01-05 11:00 UTC"):
        guarded.scale("orders", 3, NOW + timedelta(hours=1, minutes=59))
    assert guarded.scale("orders", 3, NOW + timedelta(hours=2)).replicas == 3


def test_settings_that_cannot_be_meant_are_refused_with_the_place():
    with pytest.raises((SettingsRefused, ValueError), match="freeze 'x'"):
        Settings(groups={"orders": GROUP | {"freeze": [{"name": "x", "cron": "never", "duration": "1h"}]}})
