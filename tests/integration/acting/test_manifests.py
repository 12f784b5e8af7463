"""Every manifest that we ship is accepted by the real API server, and says what the code needs."""

from pathlib import Path

import pytest
import yaml

from balancer.actuators.external_metrics import METRIC

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
BASE = sorted(p for p in (DEPLOY / "base").glob("*.yaml") if p.name != "kustomization.yaml")
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "Service": "/api/v1/namespaces/{ns}/services",
    "Deployment": "/apis/apps/v1/namespaces/{ns}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
}


def documents(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


@pytest.mark.kubernetes
@pytest.mark.parametrize("path", [*BASE, DEPLOY / "hpa" / "hpa.yaml"], ids=lambda p: p.name)
def test_the_api_server_accepts_it_strictly(cluster, path):
    for namespace in ("headway", "shop"):
        if namespace not in {i["metadata"]["name"] for i in cluster("GET", "/api/v1/namespaces")["items"]}:
            cluster("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for document in documents(path):
        url = PLURALS[document["kind"]].format(ns=document["metadata"].get("namespace"))
        if document["kind"] == "Namespace":
            document["metadata"]["name"] += "-dry"
        cluster("POST", f"{url}?dryRun=All&fieldValidation=Strict", document)


def test_kustomize_lists_every_file_once():
    listed = documents(DEPLOY / "base" / "kustomization.yaml")[0]["resources"]
    assert sorted(listed) == [p.name for p in BASE]


@pytest.mark.parametrize("path", ["keda/scaledobject.yaml", "keda/metrics-api.yaml", "hpa/hpa.yaml"])
def test_b2_no_tolerance_swallows_a_step(path):
    scaled = documents(DEPLOY / path)[-1]["spec"]
    behavior = scaled.get("behavior") or scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    for direction in ("scaleUp", "scaleDown"):
        assert behavior[direction]["tolerance"] == "0"
        assert behavior[direction]["stabilizationWindowSeconds"] == 0


def test_the_metric_is_the_one_that_is_served():
    hpa = documents(DEPLOY / "hpa" / "hpa.yaml")[0]
    external = hpa["spec"]["metrics"][0]["external"]
    assert external["metric"]["name"] == METRIC
    assert external["target"] == {"type": "AverageValue", "averageValue": "1"}
