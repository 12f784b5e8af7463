"""Every manifest that we ship is built by Kustomize and accepted, strictly, by the real API server."""

from pathlib import Path

import pytest
import yaml

from balancer.actuators.external_metrics import METRIC
from tests.peers import manifests
from tests.peers.kube.cluster import wait_for

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
FOLDERS = sorted(p.parent.name for p in DEPLOY.glob("*/kustomization.yaml"))
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Service": "/api/v1/namespaces/{ns}/services",
    "Deployment": "/apis/apps/v1/namespaces/{ns}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
    "ScaledObject": "/apis/keda.sh/v1alpha1/namespaces/{ns}/scaledobjects",
    "TriggerAuthentication": "/apis/keda.sh/v1alpha1/namespaces/{ns}/triggerauthentications",
}
OPERATOR = {"ServiceMonitor", "PrometheusRule"}


def documents(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


@pytest.fixture(scope="module")
def keda(cluster):
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for document in manifests.keda_definitions():
        cluster("POST", definitions, document)
    for plural in ("scaledobjects", "triggerauthentications"):
        wait_for(lambda p=plural: cluster("GET", f"/apis/keda.sh/v1alpha1/{p}")["kind"], what=f"{plural} are served")
    return cluster


@pytest.mark.kubernetes
@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_builds_it_and_the_api_server_accepts_it_strictly(keda, folder):
    for namespace in ("headway", "shop"):
        if namespace not in {i["metadata"]["name"] for i in keda("GET", "/api/v1/namespaces")["items"]}:
            keda("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for document in manifests.build(DEPLOY / folder):
        if document["kind"] in OPERATOR:
            continue
        url = PLURALS[document["kind"]].format(ns=document["metadata"].get("namespace"))
        if document["kind"] == "Namespace":
            document["metadata"]["name"] += "-dry"
        keda("POST", f"{url}?dryRun=All&fieldValidation=Strict", document)


@pytest.mark.kubernetes
@pytest.mark.parametrize("path", ["servicemonitor.yaml", "alerts.yaml"])
def test_the_operator_knows_every_field(path, tmp_path):
    assert manifests.decode(DEPLOY / "monitoring" / path) in OPERATOR
    broken = tmp_path / path
    broken.write_text((DEPLOY / "monitoring" / path).read_text() + "\nspecs: {}\n")
    with pytest.raises(ValueError, match="specs"):
        manifests.decode(broken)


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_lists_every_file_once(folder):
    kustomization = documents(DEPLOY / folder / "kustomization.yaml")[0]
    here = {p.name for p in (DEPLOY / folder).glob("*.yaml")} - {"kustomization.yaml", "alerts.test.yaml"}
    listed = [name for name in kustomization["resources"] if name.endswith(".yaml")]
    listed += [patch["path"] for patch in kustomization.get("patches", ())]
    assert sorted(listed) == sorted(here)


@pytest.mark.parametrize("path", ["keda/scaledobject.yaml", "keda-metrics-api/scaledobject.yaml", "hpa/hpa.yaml"])
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


def test_c17_leadership_writes_no_kubernetes_lease():
    """Leadership lives in the store, by the store's clock: no role of ours could write a Lease."""
    rules = [r for path in DEPLOY.rglob("*.yaml") for d in documents(path) for r in d.get("rules", []) if "verbs" in r]
    assert rules
    for rule in rules:
        assert not {"coordination.k8s.io", "*"} & set(rule["apiGroups"])
        assert not {"leases", "*"} & set(rule["resources"])
