import json
from datetime import UTC, datetime

import httpx
import pytest

from balancer.actuators.base import ActuationState
from balancer.actuators.webhook import KEY, SIGNATURE, TIMESTAMP, Hook, WebhookActuator, sign
from balancer.errors import TargetRefused, TargetUnavailable
from forecaster.topics import GroupId

ORDERS = GroupId("orders")
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
URL = "https://user:hunter2@scaler.example/hook?token=hunter3"


class Receiver:
    def __init__(self, *answers):
        self.answers, self.requests, self.waits = list(answers), [], []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)


@pytest.fixture
def build(tmp_path):
    def make(receiver):
        hook = Hook(URL, b"secret", tmp_path / "dead.jsonl")
        return WebhookActuator({ORDERS: hook}, sleep=receiver.waits.append, transport=httpx.MockTransport(receiver))

    return make


def test_the_body_is_signed_with_its_timestamp(build):
    receiver = Receiver()
    build(receiver).scale(ORDERS, 7, NOON, leaving=("3#9",))
    (request,) = receiver.requests
    assert request.headers[SIGNATURE] == sign(b"secret", request.headers[TIMESTAMP], request.content)
    assert json.loads(request.content)["replicas"] == 7
    assert json.loads(request.content)["leaving"] == ["3#9"]


def test_attempts_of_one_decision_share_the_idempotency_key(build):
    receiver = Receiver(503, httpx.ConnectError("refused"), 204)
    assert build(receiver).scale(ORDERS, 7, NOON).state is ActuationState.PENDING
    assert len({r.headers[KEY] for r in receiver.requests}) == 1
    assert len(receiver.requests) == 3
    assert receiver.waits == sorted(receiver.waits)


def test_what_cannot_be_delivered_is_kept_and_the_number_is_not_taken_as_set(build, tmp_path):
    receiver = Receiver(500, 500, 500, 500)
    target = build(receiver)
    with pytest.raises(TargetUnavailable, match=r"dead\.jsonl"):
        target.scale(ORDERS, 7, NOON)
    (letter,) = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert letter["replicas"] == 7
    assert letter["why"] == "answered 500"
    assert target.current(ORDERS) is None


def test_a_refusal_is_not_repeated(build):
    receiver = Receiver(422)
    with pytest.raises(TargetRefused, match="422"):
        build(receiver).scale(ORDERS, 7, NOON)
    assert len(receiver.requests) == 1


def test_no_secret_in_errors_or_repr(build, tmp_path):
    receiver = Receiver(403)
    with pytest.raises(TargetRefused) as refused:
        build(receiver).scale(ORDERS, 7, NOON)
    text = str(refused.value) + repr(Hook(URL, b"secret", tmp_path))
    assert "hunter" not in text
    assert "secret" not in text


def test_a_group_without_a_hook_is_told_what_to_set(build):
    with pytest.raises(TargetRefused, match=r"actuator\.url"):
        build(Receiver()).scale(GroupId("other"), 1, NOON)
