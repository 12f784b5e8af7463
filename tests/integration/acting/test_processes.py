"""Real processes: started, drained, restarted with a back-off."""

import os
import signal
import sys
import time
from datetime import UTC, datetime

import pytest

from balancer.actuators.process import ProcessActuator, WorkerCommand
from balancer.errors import TargetRefused
from forecaster.topics import GroupId

ORDERS = GroupId("orders")
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
DRAINING = """
import os, signal, sys, time
def drain(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
print("instance", os.environ["HEADWAY_INSTANCE"], "of", sys.argv[1], flush=True)
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def until(look, timeout_s=90):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := look():
            return value
        time.sleep(0.02)
    raise AssertionError("not in time")


@pytest.fixture
def supervise(tmp_path):
    made = []

    def make(code, **options):
        command = WorkerCommand((sys.executable, "-c", code, "{instance}"), **options)
        made.append(ProcessActuator({ORDERS: command}, tmp_path))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.close()
        assert supervisor.workers(ORDERS) == ()


def running(supervisor):
    return [w for w in supervisor.workers(ORDERS) if w.pid is not None and not w.draining]


def log(folder, instance):
    path = folder / f"orders-{instance}.log"
    return path.read_text() if path.exists() else ""


def test_members_start_numbered_and_drain_from_the_highest(supervise, tmp_path):
    supervisor = supervise(DRAINING, grace_s=10)
    supervisor.scale(ORDERS, 3, NOON)
    until(lambda: all(f"instance {i} of {i}" in log(tmp_path, i) for i in (1, 2, 3)))
    supervisor.scale(ORDERS, 1, NOON)
    until(lambda: len(supervisor.workers(ORDERS)) == 1)
    assert [w.instance for w in supervisor.workers(ORDERS)] == [1]
    assert "drained" in log(tmp_path, 3)
    assert "drained" not in log(tmp_path, 1)


def test_the_drained_member_is_the_one_that_goes(supervise, tmp_path):
    supervisor = supervise(DRAINING, grace_s=10)
    supervisor.scale(ORDERS, 3, NOON)
    until(lambda: all("instance" in log(tmp_path, i) for i in (1, 2, 3)))
    supervisor.scale(ORDERS, 2, NOON, leaving=("1#17.ab@host",))
    until(lambda: len(supervisor.workers(ORDERS)) == 2)
    assert [w.instance for w in supervisor.workers(ORDERS)] == [2, 3]


def test_a_killed_member_comes_back(supervise, tmp_path):
    supervisor = supervise(DRAINING, back_off_s=0.05)
    supervisor.scale(ORDERS, 1, NOON)
    (first,) = until(lambda: running(supervisor))
    os.kill(first.pid, signal.SIGKILL)
    (second,) = until(lambda: [w for w in running(supervisor) if w.pid != first.pid])
    assert second.instance == first.instance
    assert (second.restarts, second.last_exit) == (1, -signal.SIGKILL)


def test_a_member_that_dies_at_once_is_retried_ever_more_slowly(supervise):
    supervisor = supervise("raise SystemExit(3)", back_off_s=0.2, longest_back_off_s=60)
    supervisor.scale(ORDERS, 1, NOON)
    began = time.monotonic()
    until(lambda: sum(w.restarts for w in supervisor.workers(ORDERS)) >= 3)
    assert time.monotonic() - began >= 0.2 + 0.4
    assert supervisor.workers(ORDERS)[0].last_exit == 3


def test_who_ignores_sigterm_is_killed_after_the_grace_period(supervise, tmp_path):
    supervisor = supervise(STUBBORN, grace_s=0.5)
    supervisor.scale(ORDERS, 1, NOON)
    until(lambda: "up" in log(tmp_path, 1))
    supervisor.scale(ORDERS, 0, NOON)
    until(lambda: supervisor.workers(ORDERS) == (), timeout_s=5)


def test_a_program_that_does_not_exist_is_named_in_the_log(tmp_path):
    supervisor = ProcessActuator({ORDERS: WorkerCommand(("/no/such/program",), back_off_s=30)}, tmp_path)
    supervisor.scale(ORDERS, 1, NOON)
    until(lambda: "cannot start /no/such/program" in log(tmp_path, 1))
    supervisor.close()


def test_a_group_without_a_command_is_told_what_to_set(supervise):
    with pytest.raises(TargetRefused, match=r"actuator\.command"):
        supervise(DRAINING).scale(GroupId("other"), 1, NOON)
