"""What the API server does with a scale, and the actuator relies on: a release that differs fails here."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from balancer.actuators.kubernetes.actuator import KubernetesActuator, Target
from balancer.actuators.kubernetes.connection import Connection, from_kubeconfig
from balancer.actuators.kubernetes.requests import ApiServer
from balancer.errors import TargetRefused, TargetUnavailable
from forecaster.topics import GroupId
from tests.peers.kube.cluster import KubeError, deployment, wait_for

pytestmark = pytest.mark.kubernetes

APPS = "/apis/apps/v1/namespaces/default"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ORDERS = GroupId("orders")


@pytest.fixture
def scale(cluster, request):
    """Provide the path of a Deployment's scale, set to 2."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[-50:].strip("-").lower()
    cluster("POST", f"{APPS}/deployments", deployment(name, 2))
    yield f"{APPS}/deployments/{name}/scale"
    cluster("DELETE", f"{APPS}/deployments/{name}")


def refused(cluster, *request):
    with pytest.raises(KubeError) as error:
        cluster(*request)
    return error.value


def test_c15_null_means_zero_and_only_a_whole_number_is_a_number(cluster, scale):
    for wrong in (3.5, "3"):
        assert refused(cluster, "PATCH", scale, {"spec": {"replicas": wrong}}, MERGE).code in (400, 422)
    cluster.merge(scale, {"spec": {"replicas": None}})
    assert "replicas" not in cluster("GET", scale)["spec"]


def test_c16_without_a_version_the_last_writer_wins_and_a_stale_one_conflicts(cluster, scale):
    stale = cluster("GET", scale)["metadata"]["resourceVersion"]
    cluster.merge(scale, {"spec": {"replicas": 5}})
    body = {"metadata": {"resourceVersion": stale}, "spec": {"replicas": 4}}
    assert refused(cluster, "PATCH", scale, body, MERGE).code == 409
    cluster.merge(scale, {"spec": {"replicas": 6}})
    assert cluster("GET", scale)["spec"]["replicas"] == 6


def test_c17_a_lease_whose_renewal_lacks_its_six_digits_is_refused(cluster):
    """Why nothing of ours is a Lease: a clock that stands at a whole second would end leadership."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

    def lease(renewed):
        meta = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "c17"}}
        return meta | {"spec": {"holderIdentity": "a", "renewTime": renewed}}

    assert refused(cluster, "POST", path, lease("2026-01-05T12:00:00Z")).code == 400
    cluster("POST", path, lease("2026-01-05T12:00:00.000000Z"))
    cluster("DELETE", f"{path}/c17")


def test_the_uid_of_another_life_is_refused(cluster, scale):
    body = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "spec": {"replicas": 4}}
    assert refused(cluster, "PATCH", scale, body, MERGE).code == 409


def test_a_failed_test_of_a_json_patch_is_no_conflict(cluster, scale):
    patch = [
        {"op": "test", "path": "/spec/replicas", "value": 9},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]
    assert refused(cluster, "PATCH", scale, patch, JSON_PATCH).code == 422


def test_plain_json_is_no_patch(cluster, scale):
    assert refused(cluster, "PATCH", scale, {"spec": {"replicas": 3}}, "application/json").code == 415


def test_a_conflict_of_field_managers_is_told_from_one_of_versions(cluster, scale):
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": scale.split("/")[-2]}}
    cluster("PATCH", f"{scale}?fieldManager=headway&force=true", body | {"spec": {"replicas": 3}}, APPLY)
    other = refused(cluster, "PATCH", f"{scale}?fieldManager=gitops", body | {"spec": {"replicas": 4}}, APPLY)
    assert other.code == 409
    assert {cause["reason"] for cause in other.status["details"]["causes"]} == {"FieldManagerConflict"}


def test_a_custom_resource_without_its_spec_path_is_an_error_and_never_zero(cluster):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    names = {"plural": "gates", "singular": "gate", "kind": "Gate"}
    crd = {"metadata": {"name": "gates.headway.test"}}
    crd["spec"] = {"group": "headway.test", "scope": "Namespaced", "names": names, "versions": [version]}
    cluster("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    root = "/apis/headway.test/v1/namespaces/default/gates"
    wait_for(lambda: cluster("GET", root), what="the custom resource is served")
    cluster("POST", root, {"apiVersion": "headway.test/v1", "kind": "Gate", "metadata": {"name": "g"}, "spec": {}})
    server = ApiServer(from_kubeconfig(cluster.kubeconfig))
    actuator = KubernetesActuator(server, {ORDERS: Target("g", "default", "gates", "headway.test/v1")})
    with pytest.raises(TargetUnavailable, match="500"):
        actuator.current(ORDERS)
    with pytest.raises(TargetUnavailable, match="500"):
        actuator.scale(ORDERS, 3, NOON)
    assert refused(cluster, "PATCH", f"{root}/g", {"spec": {"n": 3}}, STRATEGIC).code == 415
    assert cluster.merge(f"{root}/g/scale", {"spec": {"replicas": 3}})["spec"]["replicas"] == 3
    assert actuator.current(ORDERS) == 3
    server.close()


def test_the_token_of_a_deleted_account_is_refused_soon(cluster, scale):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    cluster("POST", accounts, {"metadata": {"name": "brief"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster("POST", f"{accounts}/brief/token", request)["status"]["token"]
    server = ApiServer(Connection(cluster.server, cluster._tls(), lambda refused=False: token))
    with pytest.raises(TargetRefused, match="403"):  # known, and may do nothing
        server.get(scale)
    cluster("DELETE", f"{accounts}/brief")

    def is_unknown():
        try:
            server.get(scale)
        except TargetRefused as error:
            return "401" in str(error)
        return False

    wait_for(is_unknown, 30)
    server.close()
