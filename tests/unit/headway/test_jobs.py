"""Jobs: one at a time, failures kept as one line, cron on the wall clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from headway.errors import HeadwayError
from headway.status.board import Board
from headway.status.metrics import Metrics
from headway.status.wire import instant
from headway.work.jobs import CronTrigger, Jobs


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def jobs(metrics):
    made = Jobs(Board(), metrics, may_run=lambda job, group: group != "elsewhere")
    yield made
    made.stop()


def test_a_run_keeps_its_result_and_a_failure_is_one_line(jobs):
    jobs.every("plan", "orders", timedelta(hours=1), lambda: "7 members")
    jobs.cron("retrain", "orders", "15 3 * * *", "UTC", lambda: 1 / 0)
    assert jobs.run_now("plan", "orders").detail == "7 members"
    failed = jobs.run_now("retrain", "orders")
    assert (failed.ok, failed.detail.startswith("unexpected ZeroDivisionError")) == (False, True)
    assert [(s["job"], s["last"]["ok"]) for s in jobs.status()] == [("plan", True), ("retrain", False)]
    with pytest.raises(HeadwayError, match="there are: plan:orders, retrain:orders"):
        jobs.run_now("seal")


def test_no_job_runs_twice_at_a_time(jobs):
    inside, go = threading.Event(), threading.Event()

    def slow():
        inside.set()
        assert go.wait(60)
        return "done"

    jobs.every("act", "orders", timedelta(hours=1), slow)
    jobs.start()
    assert inside.wait(60)
    with pytest.raises(HeadwayError, match="running already"):
        jobs.run_now("act", "orders")
    assert jobs.status()[0]["running"] is True
    go.set()


def test_the_schedule_starts_at_once_and_knows_its_next_run(jobs):
    ran = threading.Event()
    jobs.every("record", None, timedelta(hours=1), lambda: ran.set() or "ok")
    jobs.start()
    assert ran.wait(60)
    assert jobs.status()[0]["next_run"] is not None


def test_metrics_say_when_a_job_runs_next_and_when_it_last_did_its_work(jobs, metrics):
    def value(name, job, group):
        labels = {"job_name": job, "group": group}
        return metrics.registry.get_sample_value(f"headway_job_{name}_timestamp_seconds", labels)

    jobs.cron("seal", "orders", "0 * * * *", "UTC", lambda: "packed")
    jobs.cron("prune", "orders", "0 4 * * *", "UTC", lambda: 1 / 0)
    jobs.cron("seal", "elsewhere", "0 * * * *", "UTC", lambda: "packed")
    jobs.start()
    before = datetime.now(UTC).timestamp()
    for name, group in (("seal", "orders"), ("prune", "orders"), ("seal", "elsewhere")):
        jobs.run_now(name, group)
    assert before <= value("last_success", "seal", "orders") <= datetime.now(UTC).timestamp()
    assert value("last_success", "prune", "orders") is None, "it failed"
    assert value("last_success", "seal", "elsewhere") is None, "another instance leads"
    assert value("next_run", "seal", "orders") % 3600 == 0
    assert [s["last_success"] is not None for s in jobs.status()] == [False, True, False]
    jobs.remove("orders")
    assert value("next_run", "seal", "orders") is None


def test_cron_means_what_cron_means_in_local_time():
    monday = CronTrigger("0 8 * * 1", "Europe/Berlin").get_next_fire_time(None, datetime(2026, 3, 26, tzinfo=UTC))
    assert monday == datetime(2026, 3, 30, 8, tzinfo=ZoneInfo("Europe/Berlin"))
    assert monday.astimezone(UTC).hour == 6  # after the clock change


def test_intervals_fall_on_the_boundaries_of_steps(jobs):
    jobs.every("record", None, timedelta(seconds=60), lambda: "done")
    now = datetime(2026, 1, 5, 9, 0, 23, tzinfo=UTC)
    upcoming = jobs._jobs["record"].trigger.get_next_fire_time(None, now)
    assert upcoming == datetime(2026, 1, 5, 9, 1, tzinfo=UTC)


def test_missed_runs_are_made_up_once(jobs):
    """A machine that slept for sixty days owes sixty runs of a daily job; fifty-nine are let go."""
    ran, names = threading.Semaphore(0), []

    def run(name):
        names.append(name)
        ran.release()
        return "ok"

    jobs.every("record", None, timedelta(days=1), lambda: run("record"))
    jobs.cron("seal", "orders", "30 12 * * *", "UTC", lambda: run("seal"))
    jobs.start()
    assert ran.acquire(timeout=60)  # an interval's first run comes at once
    names.clear()
    jobs._scheduler.pause()
    for name in ("record", "seal:orders"):
        jobs._scheduler.modify_job(name, next_run_time=datetime.now(UTC) - timedelta(days=60))
    jobs._scheduler.resume()
    for _ in range(2):
        assert ran.acquire(timeout=60)
    assert not ran.acquire(timeout=0.3)
    assert sorted(names) == ["record", "seal"]
    assert all(status["next_run"] > instant(datetime.now(UTC)) for status in jobs.status())


def test_trainings_and_forecasts_that_take_long_hold_up_no_tick():
    jobs, hold, ticked = Jobs(Board(), Metrics()), threading.Event(), threading.Event()

    def long():
        hold.wait(30)
        return "done"

    for n in range(8):
        for name in ("retrain", "forecast", "seal", "prune"):
            jobs.every(name, f"group-{n}", timedelta(hours=1), long)
    jobs.every("act", "group-0", timedelta(hours=1), lambda: str(ticked.set()))
    jobs.start()
    try:
        assert ticked.wait(60)
        assert any(row["running"] for row in jobs.status() if row["job"] == "retrain")
    finally:
        hold.set()
        assert jobs.stop(timedelta(seconds=20)) == ()
