"""Groups come, change and go while we run: settings read again, patterns that find new groups, children that think."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from datetime import timedelta

import pytest

from balancer.actuators.board import ScalerBoard
from forecaster.errors import SourceUnavailable
from headway import assembly
from headway.configuration.settings import Settings, SettingsFile
from headway.errors import HeadwayError, SettingsRefused
from headway.work.children import Children, Overdue
from headway.work.jobs import ELSEWHERE
from headway.work.roster import RESTART_ONLY, Roster
from tests.unit.headway.conftest import NOW

GROUP = {"topics": ["orders"], "capacity_per_member": 10.0}


@pytest.fixture
def house(application):
    """An assembled house whose settings a test changes: (application, jobs, set)."""
    now = {"settings": Settings(groups={"orders": GROUP})}
    application.settings = now["settings"]
    application.board.remove("bills")

    def read():
        if isinstance(now["settings"], Exception):
            raise now["settings"]
        return now["settings"]

    with ExitStack() as stack:
        jobs = assembly.assemble(application, stack, ScalerBoard(), read_settings=read)
        yield application, jobs, lambda new: now.__setitem__("settings", new)


def groups_at_work(jobs):
    return sorted({row["group"] for row in jobs.status() if row["group"]})


def test_a_changed_group_is_made_anew_and_the_others_are_left_alone(house):
    app, jobs, change = house
    change(Settings(groups={"orders": GROUP | {"max_replicas": 3}, "bills": {"topics": ["bills"]}}))
    said = jobs.run_now("groups").detail
    assert said == "changed orders; added bills"
    assert groups_at_work(jobs) == ["bills", "orders"]
    assert app.settings.policy("orders").max_replicas == 3
    assert jobs.run_now("groups").detail == "nothing changed"
    change(Settings(groups={"bills": {"topics": ["bills"]}}))
    assert jobs.run_now("groups").detail == "removed orders"
    assert groups_at_work(jobs) == ["bills"]
    assert app.board.names == ("bills",)


def test_settings_that_cannot_be_meant_change_nothing_and_are_said(house):
    app, jobs, change = house
    good = app.settings
    change(SettingsRefused("headway.toml: groups.orders: unknown key 'max_replica'"))
    assert not jobs.run_now("groups").ok
    assert "unknown key" in app.view("orders").problems["settings"]
    assert app.settings is good
    change(good)
    jobs.run_now("groups")
    assert app.view("orders").problems == {}


@pytest.mark.parametrize(
    ("section", "value"), [("api", {"port": 1}), ("topics", {"orders": {"max_partitions": 48}}), ("scaler", {})]
)
def test_what_needs_a_restart_is_said_as_long_as_it_waits_and_does_not_half_hold(house, capsys, section, value):
    app, jobs, change = house
    before = getattr(app.settings, section)
    change(Settings(groups={"orders": GROUP}, **{section: value}))
    for _ in range(2):
        assert jobs.run_now("groups").detail == f"{section} will hold after a restart"
    assert getattr(app.settings, section) == before
    assert capsys.readouterr().err.count("will hold after a restart") == 1


def test_every_section_is_either_read_again_or_named_as_waiting_for_a_restart():
    assert {*RESTART_ONLY, "groups", "defaults", "jobs"} == {*Settings.model_fields}


def test_a_pattern_discovers_groups_with_their_topics(application):
    application.settings = Settings(groups={"orders-*": {"max_replicas": 5}, "orders-eu": {"topics": ["fixed"]}})

    class Cluster:
        def __init__(self):
            self.found = {"orders-us": ("a", "b"), "orders-none": (), "orders-eu": ("c",), "bills": ("d",)}

        def kinds(self):
            if self.found is None:
                raise SourceUnavailable("away")
            return dict.fromkeys(self.found, "classic")

        def topics_of(self, group):
            return self.found[group]

    made, cluster = [], Cluster()

    class Runner:
        def resign(self):
            made.append("resigned")

    class Shelf:
        def remove(self, group):
            made.append(f"-{group}")

    def make(name, topics, stack):
        made.append((name, topics))
        return Runner()

    roster = Roster(application, Shelf(), make, None, cluster)
    assert roster.refresh() == "found orders-us"
    assert application.view("orders-us").topics == ("a", "b")
    cluster.found = None
    application.settings = application.settings.model_copy()  # read again: it looks at once
    assert roster.refresh() == "nothing changed"
    assert made == [("orders-us", ("a", "b"))]
    roster.close()
    assert made[-1] == "resigned"


def test_an_instance_that_ends_gives_its_leads_back(house):
    app, jobs, _ = house
    jobs.run_now("act", "orders")
    assert app.plans.lead("orders", "another", timedelta(seconds=30)) is None
    app.jobs = None
    with ExitStack() as stack:
        other = assembly.assemble(app, stack, ScalerBoard())
        other.run_now("act", "orders")
        assert other.run_now("seal", "orders").detail != ELSEWHERE
    assert app.plans.lead("orders", "another", timedelta(seconds=30)) is not None


def test_one_pass_of_a_job_holds_nobody_up(application):
    application.settings = Settings(groups={"orders": GROUP})
    for holder in ("cron", "another cron"):
        application.holder = holder
        with ExitStack() as stack:
            jobs = assembly.assemble(application, stack, ScalerBoard(), only="orders")
            for name in ("seal", "prune"):
                assert jobs.run_now(name, "orders").detail != ELSEWHERE


def test_what_writes_for_all_runs_on_one_instance_at_a_time(house):
    app, jobs, _ = house
    app.plans.lead("orders", "another", timedelta(seconds=30))
    for name in ("seal", "prune", "retrain"):
        assert jobs.run_now(name, "orders").detail == ELSEWHERE


def test_the_file_is_read_again_only_when_it_changed(tmp_path):
    file = tmp_path / "headway.toml"
    file.write_text('[groups.orders]\ntopics = ["orders"]\n')
    read = SettingsFile(file)
    assert read() is read()
    file.write_text('[groups.bills]\ntopics = ["bills"]\n')
    assert read().named_groups == ("bills",)
    file.write_text("[groups.bills]\ntopic = 1\n")
    for _ in range(2):
        with pytest.raises(SettingsRefused, match="topics"):
            read()
    file.unlink()
    with pytest.raises(SettingsRefused, match="what was read before goes on"):
        read()


def test_stopping_waits_for_what_runs_but_not_for_ever(house):
    _, jobs, _ = house
    inside, go = threading.Event(), threading.Event()
    jobs.on_demand("act", "orders", lambda: str(inside.set() or go.wait(120)))
    thread = threading.Thread(target=jobs.run_now, args=("act", "orders"))
    thread.start()
    assert inside.wait(60)
    assert jobs.stop(timedelta(seconds=0.2)) == ("act:orders",)
    assert thread.is_alive(), "stopping waited for it to the end"
    go.set()
    thread.join(60)
    assert jobs.stop(timedelta(seconds=5)) == ()


def _sleep(seconds):
    time.sleep(seconds)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _pid():
    return os.getpid()


def test_heavy_work_is_bounded_and_its_end_is_an_error_of_ours():
    children = Children(1, 60, "the what-if")
    try:
        assert children.run(_pid) != os.getpid()
        with pytest.raises(HeadwayError, match="its process died"):
            children.run(_die)
        children._limit_s = 0.3
        with pytest.raises(Overdue, match=r"took longer than 0\.3 s"):
            children.run(_sleep, 30)
        children._limit_s = 60
        assert children.run(_pid) != os.getpid()
    finally:
        children.close()


def test_a_what_if_is_computed_in_a_child_and_says_the_same(house):
    from tests.unit.headway.conftest import a_snapshot

    app, _, _ = house
    app.view("orders").snapshot = a_snapshot()
    here = app.what_if("orders", {"capacity": 5.0}, NOW)
    app.thinkers = Children(1, 60, "the what-if")
    try:
        assert app.what_if("orders", {"capacity": 5.0}, NOW) == here
    finally:
        app.thinkers.close()
