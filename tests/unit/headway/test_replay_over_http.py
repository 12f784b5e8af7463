"""A kept decision computed again over HTTP: the same, another, or why it cannot be."""

from dataclasses import replace
from datetime import timedelta

import pytest

from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.plan import PlannedStep
from balancer.plans.base import Decision
from balancer.policy import ScalingPolicy
from balancer.replay import Inputs, again, inputs_bytes
from tests.unit.headway.conftest import NOW, a_snapshot

ID = f"orders@{NOW.isoformat()}"


@pytest.fixture
def kept(application):
    """Return a function that keeps a decision with its inputs, its plan changed as it is told."""

    def keep(change=lambda plan: plan, attach=True):
        token = application.plans.lead("orders", "test", timedelta(minutes=5))
        inputs = Inputs(a_snapshot(), None, ScalingPolicy(capacity_per_member=10.0), NOW, Knobs(), PlannerMemory())
        made = again(inputs)
        application.plans.record(Decision(ID, "orders", NOW, "act", change(made), {}), token)
        if attach:
            application.plans.attach("orders", ID, inputs_bytes(inputs, None), timedelta(hours=1), token)
        return made

    return keep


def test_the_same_inputs_give_the_same_answer(client, kept):
    made = kept()
    answer = client.get("/v1/groups/orders/replay", params={"id": ID})
    assert answer.status_code == 200
    assert answer.json() == {
        "id": ID, "state": "same", "replicas": made.replicas, "differences": [], "reasons": list(made.reasons),
    }  # fmt: skip


def test_another_answer_is_said_with_what_differs(client, kept):
    kept(lambda plan: replace(plan, steps=(PlannedStep(NOW, plan.replicas + 3, 1.0),)))
    body = client.get("/v1/groups/orders/replay", params={"id": ID}).json()
    assert body["state"] == "different" and "steps" in body["differences"]


def test_what_is_not_kept_or_is_of_another_group_is_refused(client, kept):
    kept(attach=False)
    answer = client.get("/v1/groups/orders/replay", params={"id": ID})
    assert answer.status_code == 409 and "no longer kept" in answer.json()["detail"]
    other = client.get("/v1/groups/bills/replay", params={"id": ID})
    assert other.status_code == 404 and "no decision of bills" in other.json()["detail"]
    assert client.get("/v1/groups/nobody/replay", params={"id": ID}).status_code == 404
    assert client.get("/v1/groups/orders/replay").status_code == 422
