"""The real HPA controller reads our external metrics API through the real aggregator: no KEDA."""

import random
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from balancer.actuators.board import ScalerBoard
from balancer.actuators.external_metrics import METRIC, ROOT, ExternalMetricsServer, FrontProxyTls
from forecaster.topics import GroupId
from tests.peers.kube.cluster import deployment, wait_for

pytestmark = pytest.mark.kubernetes

APPS = "/apis/apps/v1/namespaces/default/deployments"
HPA = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices"
ORDERS = GroupId("orders")
SYNC_S = 1.0


@pytest.fixture(scope="module")
def board(cluster):
    board = ScalerBoard(timedelta(minutes=5))
    pki = cluster.pki
    tls = FrontProxyTls(pki / "apiserver.crt", pki / "apiserver.key", pki / "front-proxy-ca.crt")
    server = ExternalMetricsServer(board, lambda: datetime.now(UTC), tls, port=0)
    server.start()
    ports = [{"port": server.port}]
    service = {
        "metadata": {"name": "headway"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports},
    }
    cluster("POST", "/api/v1/namespaces/kube-system/services", service)
    spec = {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    spec |= {"insecureSkipTLSVerify": True}
    spec |= {"service": {"name": "headway", "namespace": "kube-system", "port": server.port}}
    cluster("POST", SERVICE, {"metadata": {"name": "v1beta1.external.metrics.k8s.io"}, "spec": spec})
    wait_for(lambda: _available(cluster), what="the API service is available")
    yield board
    cluster("DELETE", f"{SERVICE}/v1beta1.external.metrics.k8s.io")
    server.stop()


def _available(cluster):
    status = cluster("GET", f"{SERVICE}/v1beta1.external.metrics.k8s.io").get("status", {})
    return any(c["type"] == "Available" and c["status"] == "True" for c in status.get("conditions", []))


@pytest.fixture
def scaled(cluster, board):
    cluster("POST", APPS, deployment("scaled", 2))
    board.scale(ORDERS, 2, datetime.now(UTC))
    metric = {"metric": {"name": METRIC, "selector": {"matchLabels": {"group": "orders"}}}}
    metric["target"] = {"type": "AverageValue", "averageValue": "1"}
    fast = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]}
    behavior = {"scaleUp": fast | {"tolerance": "0"}, "scaleDown": fast | {"tolerance": "0"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 100, "behavior": behavior}
    spec["metrics"] = [{"type": "External", "external": metric}]
    cluster("POST", HPA, {"metadata": {"name": "scaled"}, "spec": spec})
    yield lambda: cluster("GET", f"{APPS}/scaled/scale")["spec"].get("replicas", 0)
    cluster("DELETE", f"{HPA}/scaled")
    cluster("DELETE", f"{APPS}/scaled")


def test_b2_every_target_is_reached_exactly_and_soon(cluster, board, scaled):
    shuffled = random.Random(7).sample(range(1, 80), 8)
    waits = []
    for target in (10, 11, 12, 11, 63, 64, *shuffled):
        before = scaled()
        began = time.monotonic()
        board.scale(ORDERS, target, datetime.now(UTC))
        wait_for(lambda: scaled() == target, 60, f"{before} → {target}")  # noqa: B023
        waits.append(time.monotonic() - began)
        wait_for(lambda: cluster("GET", f"{APPS}/scaled")["status"].get("replicas") == target)  # noqa: B023
    assert sorted(waits)[len(waits) // 4] <= SYNC_S + 1  # not the median: on a busy machine this test waits too


def test_c1_without_a_fresh_plan_the_replicas_hold_and_are_right_again_soon(cluster, board, scaled):
    board.scale(ORDERS, 9, datetime.now(UTC))
    wait_for(lambda: scaled() == 9)
    board.withdraw(ORDERS)
    wait_for(lambda: _condition(cluster)["status"] == "False", what="the HPA notices")
    assert scaled() == 9
    board.scale(ORDERS, 4, datetime.now(UTC))
    wait_for(lambda: scaled() == 4)


def _condition(cluster):
    conditions = cluster("GET", f"{HPA}/scaled").get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "ScalingActive"), {"status": "Unknown"})


def test_only_the_aggregators_certificate_may_ask(cluster, board):
    spec = cluster("GET", f"{SERVICE}/v1beta1.external.metrics.k8s.io")["spec"]
    url = f"https://127.0.0.1:{spec['service']['port']}{ROOT}"
    pki = cluster.pki
    answers = []
    for certificate in ("front-proxy", None):
        context = cluster._tls()
        if certificate:
            context.load_cert_chain(str(pki / f"{certificate}.crt"), str(pki / f"{certificate}.key"))
        try:
            answers.append(httpx.get(url, verify=context).status_code)
        except httpx.HTTPError as refused:
            answers.append(type(refused).__name__)
    assert answers[0] == 200
    assert answers[1] != 200
