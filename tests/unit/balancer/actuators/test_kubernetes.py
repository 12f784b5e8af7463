"""What an actuation that was in vain is told of a target's pods."""

from __future__ import annotations

from typing import Any

import pytest

from balancer.actuators.base import SeesMembers
from balancer.actuators.kubernetes.actuator import NAMED, KubernetesActuator, Target
from forecaster.topics import GroupId

ORDERS = GroupId("orders")


def pod(name: str, *, ready: bool = False, waiting: str | None = None, node: bool = True, **more: Any) -> Any:
    conditions = [{"type": "Ready", "status": str(ready)}]
    if not node:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    state = {"running": {}} if waiting is None else {"waiting": {"reason": waiting}}
    containers = [{"restartCount": 7 if waiting else 0, "state": state}] if node else []
    return {
        "metadata": {"name": name} | more,
        "status": {"conditions": conditions, "containerStatuses": containers},
    }


class Server:
    """An API server with a scale and these pods."""

    def __init__(self, *pods: Any) -> None:
        self.pods = pods

    def get(self, path: str, **query: str) -> Any:
        if path.endswith("/scale"):
            return {"status": {"selector": "app=orders"}}
        assert query == {"labelSelector": "app=orders"}
        return {"items": self.pods}


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([pod("a", ready=True)], ""),
        ([pod("a", ready=True), pod("b", waiting="CrashLoopBackOff")], "b (CrashLoopBackOff, 7 restarts)"),
        ([pod("a", node=False)], "a (Unschedulable, 0 restarts)"),
        ([pod("a")], "a (not ready, 0 restarts)"),
        ([pod("a", deletionTimestamp="2026-01-05T09:00:00Z")], ""),
    ],
)
def test_pods_that_are_not_ready_are_named_with_the_clusters_reason(pods: list[Any], said: str) -> None:
    actuator = KubernetesActuator(Server(*pods), {ORDERS: Target("orders")})  # type: ignore[arg-type]
    assert isinstance(actuator, SeesMembers)
    assert actuator.not_ready(ORDERS) == said


def test_a_sentence_does_not_name_fifty_pods() -> None:
    pods = [pod(f"p{i}") for i in range(NAMED + 3)]
    actuator = KubernetesActuator(Server(*pods), {ORDERS: Target("orders")})  # type: ignore[arg-type]
    assert actuator.not_ready(ORDERS).endswith(", 3 more")
