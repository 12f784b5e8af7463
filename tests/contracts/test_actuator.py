"""What every actuator keeps, whatever it scales."""

import sys
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from balancer.actuators.base import ActuationState
from balancer.actuators.board import ScalerBoard
from balancer.actuators.memory import MemoryActuator
from balancer.actuators.process import ProcessActuator, WorkerCommand
from balancer.actuators.webhook import Hook, WebhookActuator
from balancer.errors import ActuationError
from forecaster.topics import GroupId

ORDERS = GroupId("orders")
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SLEEPER = "import time; time.sleep(600)"


class _Accepting(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(params=["memory", "board", "process", "webhook"])
def actuator(request, tmp_path):
    if request.param == "memory":
        yield MemoryActuator()
    elif request.param == "board":
        yield ScalerBoard()
    elif request.param == "process":
        command = WorkerCommand((sys.executable, "-c", SLEEPER), grace_s=5)
        supervisor = ProcessActuator({ORDERS: command}, tmp_path)
        yield supervisor
        supervisor.close()
    else:
        server = HTTPServer(("127.0.0.1", 0), _Accepting)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        hook = Hook(f"http://127.0.0.1:{server.server_address[1]}/scale", b"secret", tmp_path / "dead.jsonl")
        target = WebhookActuator({ORDERS: hook})
        yield target
        target.close()
        server.shutdown()
        server.server_close()
        thread.join()


def test_unknown_until_the_first_request(actuator):
    assert actuator.current(ORDERS) is None


def test_what_was_asked_is_current(actuator):
    for replicas in (3, 5, 2):
        before = actuator.current(ORDERS)
        actuation = actuator.scale(ORDERS, replicas, NOON)
        assert (actuation.group, actuation.replicas, actuation.previous) == (ORDERS, replicas, before)
        assert actuation.state is ActuationState.PENDING
        assert actuation.requested_at == NOON
        assert actuator.current(ORDERS) == replicas


def test_asking_twice_changes_nothing(actuator):
    actuator.scale(ORDERS, 4, NOON)
    again = actuator.scale(ORDERS, 4, NOON + timedelta(seconds=15))
    assert again.state is ActuationState.UNCHANGED
    assert actuator.current(ORDERS) == 4


def test_zero_is_a_size(actuator):
    actuator.scale(ORDERS, 2, NOON)
    assert actuator.scale(ORDERS, 0, NOON).state is ActuationState.PENDING
    assert actuator.current(ORDERS) == 0


def test_a_negative_number_is_refused_and_changes_nothing(actuator):
    actuator.scale(ORDERS, 2, NOON)
    with pytest.raises(ActuationError):
        actuator.scale(ORDERS, -1, NOON)
    assert actuator.current(ORDERS) == 2
