"""The scale subresource against the real API server: every fact that the actuator relies on."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from balancer.actuators.base import ActuationState
from balancer.actuators.board import ScalerBoard
from balancer.actuators.kubernetes.actuator import DELETION_COST, KubernetesActuator, Target
from balancer.actuators.kubernetes.connection import Connection, FileToken, from_kubeconfig
from balancer.actuators.kubernetes.polled import PolledTarget
from balancer.actuators.kubernetes.requests import ApiServer
from balancer.errors import ForeignWriter, TargetRefused, TargetUnavailable
from forecaster.topics import GroupId
from tests.peers.kube.cluster import KubeError, deployment, stateful_set, wait_for
from tests.unit.balancer.test_draining import TICK, Ring, started

pytestmark = pytest.mark.kubernetes

APPS = "/apis/apps/v1/namespaces/default"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ORDERS = GroupId("orders")


@pytest.fixture(scope="session")
def connection(cluster):
    return from_kubeconfig(cluster.kubeconfig)


@pytest.fixture
def act(connection):
    servers = []

    def make(name, resource="deployments", api="apps/v1", identity=connection, **options):
        server = ApiServer(identity)
        servers.append(server)
        return KubernetesActuator(server, {ORDERS: Target(name, "default", resource, api)}, **options)

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def deployed(cluster, request):
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:60].rstrip("-").lower()
    cluster("POST", f"{APPS}/deployments", deployment(name, 2))
    wait_for(lambda: cluster("GET", f"{APPS}/deployments/{name}").get("status", {}).get("replicas") == 2)
    yield name
    cluster("DELETE", f"{APPS}/deployments/{name}")


def test_scales_and_reads_back(act, deployed, cluster):
    actuator = act(deployed)
    actuation = actuator.scale(ORDERS, 5, NOON)
    assert (actuation.previous, actuation.replicas, actuation.state) == (2, 5, ActuationState.PENDING)
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 5
    assert actuator.scale(ORDERS, 5, NOON).state is ActuationState.UNCHANGED


def test_c15_at_zero_the_field_is_absent_and_means_zero(act, deployed, cluster):
    actuator = act(deployed)
    actuator.scale(ORDERS, 0, NOON)
    assert "replicas" not in cluster("GET", f"{APPS}/deployments/{deployed}/scale")["spec"]
    assert actuator.current(ORDERS) == 0
    assert actuator.scale(ORDERS, 3, NOON).previous == 0


def test_c16_a_version_that_moved_with_a_status_write_is_no_rival(act, deployed, cluster):
    actuator = act(deployed)
    stale = cluster("GET", f"{APPS}/deployments/{deployed}/scale")
    # a status write moves the version; the actuator is handed the stale object once, as a race would
    cluster.merge(f"{APPS}/deployments/{deployed}/status", {"status": {"observedGeneration": 1}})
    cluster.merge(f"{APPS}/deployments/{deployed}", {"metadata": {"annotations": {"touched": "yes"}}})
    honest, handed = actuator._scale_of, []

    def racing(group):
        if not handed:
            handed.append(True)
            return stale
        return honest(group)

    actuator._scale_of = racing
    assert actuator.scale(ORDERS, 4, NOON).state is ActuationState.PENDING
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 4


def test_c16_a_different_number_is_a_rival(act, deployed, cluster):
    actuator = act(deployed)
    stale = cluster("GET", f"{APPS}/deployments/{deployed}/scale")
    cluster.merge(f"{APPS}/deployments/{deployed}/scale", {"spec": {"replicas": 9}})
    honest, handed = actuator._scale_of, []
    actuator._scale_of = lambda group: honest(group) if handed else (handed.append(1), stale)[1]
    with pytest.raises(ForeignWriter, match="set to 9 by somebody else"):
        actuator.scale(ORDERS, 4, NOON)
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 9


def test_b25_a_foreign_writer_is_left_alone_then_taken_as_the_new_start(act, deployed, cluster):
    actuator = act(deployed, back_off=timedelta(minutes=10))
    actuator.scale(ORDERS, 5, NOON)
    cluster.merge(f"{APPS}/deployments/{deployed}/scale", {"spec": {"replicas": 1}})
    for minutes in (1, 5, 10):
        with pytest.raises(ForeignWriter):
            actuator.scale(ORDERS, 6, NOON + timedelta(minutes=minutes))
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 1
    assert actuator.scale(ORDERS, 6, NOON + timedelta(minutes=12)).previous == 1
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 6


def test_a_target_made_anew_is_guarded_by_its_uid(act, deployed, cluster):
    actuator = act(deployed)
    stale = cluster("GET", f"{APPS}/deployments/{deployed}/scale")
    cluster("DELETE", f"{APPS}/deployments/{deployed}")
    wait_for(lambda: _gone(cluster, f"{APPS}/deployments/{deployed}"))
    cluster("POST", f"{APPS}/deployments", deployment(deployed, 2))
    honest, handed = actuator._scale_of, []
    actuator._scale_of = lambda group: honest(group) if handed else (handed.append(1), stale)[1]
    with pytest.raises(TargetRefused, match="made anew"):
        actuator.scale(ORDERS, 4, NOON)
    assert cluster("GET", f"{APPS}/deployments/{deployed}")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("name", "resource", "api"),
    [
        ("absent", "deployments", "apps/v1"),
        ("absent", "gadgets", "example.com/v1"),
        ("default", "serviceaccounts", "v1"),
    ],
)
def test_what_does_not_exist_is_named(act, name, resource, api):
    with pytest.raises(TargetRefused, match="404"):
        act(name, resource, api).current(ORDERS)


def test_a_custom_resource_scales_and_its_schema_is_respected(act, cluster):
    schema = {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"workers": {"type": "integer", "maximum": 10}}},
        "status": {"type": "object", "properties": {"workers": {"type": "integer"}, "selector": {"type": "string"}}},
    }}  # fmt: skip
    paths = {"specReplicasPath": ".spec.workers", "statusReplicasPath": ".status.workers"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}, "scale": paths}
    names = {"plural": "pumps", "singular": "pump", "kind": "Pump"}
    crd = {"metadata": {"name": "pumps.headway.test"}}
    crd["spec"] = {"group": "headway.test", "scope": "Namespaced", "names": names, "versions": [version]}
    cluster("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    root = "/apis/headway.test/v1/namespaces/default/pumps"
    wait_for(lambda: cluster("GET", root), what="the custom resource is served")
    body = {"apiVersion": "headway.test/v1", "kind": "Pump", "metadata": {"name": "main"}, "spec": {"workers": 2}}
    cluster("POST", root, body)
    actuator = act("main", "pumps", "headway.test/v1")
    assert actuator.scale(ORDERS, 7, NOON).previous == 2
    with pytest.raises(TargetRefused, match="422"):
        actuator.scale(ORDERS, 11, NOON)
    assert actuator.current(ORDERS) == 7


def test_missing_rights_are_named_and_asked_for_without_a_grant(act, cluster, deployed):
    cluster("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "weak"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster("POST", "/api/v1/namespaces/default/serviceaccounts/weak/token", request)["status"]["token"]
    weak = Connection(cluster.server, cluster._tls(), lambda refused=False: token)
    actuator = act(deployed, identity=weak)
    with pytest.raises(TargetRefused, match=r"403.*deployments/scale"):
        actuator.current(ORDERS)
    assert not any(p.allowed for p in actuator.permissions(ORDERS))

    rules = [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"]}]
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    cluster("POST", f"{role}/roles", {"metadata": {"name": "scaler"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "weak", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "scaler"}
    binding = {"metadata": {"name": "scaler"}, "roleRef": reference, "subjects": [subject]}
    cluster("POST", f"{role}/rolebindings", binding)
    wait_for(lambda: [p.allowed for p in actuator.permissions(ORDERS)] == [True, True, False, False])
    assert actuator.scale(ORDERS, 4, NOON).previous == 2  # get + patch on scale is enough to scale up


def test_c18_a_refused_token_is_read_again_once(act, cluster, deployed, tmp_path):
    path = tmp_path / "token"
    path.write_text("old")
    token = FileToken(path)
    assert token() == "old"
    path.write_text(cluster.token)  # the kubelet rotated it
    actuator = act(deployed, identity=Connection(cluster.server, cluster._tls(), token))
    assert actuator.current(ORDERS) == 2
    path.write_text("bad")
    assert actuator.current(ORDERS) == 2  # young enough: not read again


def test_a_token_that_stays_refused_is_an_error(act, cluster, deployed, tmp_path):
    (tmp_path / "token").write_text("bad")
    actuator = act(deployed, identity=Connection(cluster.server, cluster._tls(), FileToken(tmp_path / "token")))
    with pytest.raises(TargetRefused, match="401"):
        actuator.scale(ORDERS, 4, NOON)


def test_nobody_listening_is_unavailable_and_never_a_number(act, cluster):
    dead = Connection("https://127.0.0.1:9", cluster._tls(), lambda refused=False: "t")
    with pytest.raises(TargetUnavailable):
        act("any", identity=dead).current(ORDERS)


def test_the_drained_pod_of_a_deployment_goes_first(act, deployed, cluster):
    actuator = act(deployed)
    actuator.scale(ORDERS, 4, NOON)
    pods = wait_for(lambda: p if len(p := actuator.pods(ORDERS)) == 4 else ())
    drained = sorted(p.name for p in pods)[1]
    actuator.scale(ORDERS, 3, NOON, leaving=(drained,))
    left = wait_for(lambda: _names(actuator) if len(_names(actuator)) == 3 else ())
    assert drained not in left


def test_a_stateful_set_drops_its_highest_ordinal_and_refuses_another(act, cluster):
    cluster("POST", f"{APPS}/statefulsets", stateful_set("ring", 3))
    actuator = act("ring", "statefulsets")
    wait_for(lambda: _names(actuator) == {"ring-0", "ring-1", "ring-2"})
    with pytest.raises(TargetRefused, match="ring-0"):
        actuator.scale(ORDERS, 2, NOON, leaving=("ring-0",))
    actuator.scale(ORDERS, 2, NOON, leaving=("ring-2",))
    wait_for(lambda: _names(actuator) == {"ring-0", "ring-1"})


def test_whom_the_plan_drained_is_whom_a_polled_deployment_loses(act, deployed, cluster, connection):
    """A planned group from drain to pod, KEDA's way: partitions move, the pod is marked, and only then the number."""
    actuator, board = act(deployed), ScalerBoard()
    actuator.scale(ORDERS, 4, NOON)
    pods = sorted(wait_for(lambda: names if len(names := _names(actuator)) == 4 else ()))
    polled = PolledTarget(board, ApiServer(connection), "default")
    assert [p.allowed for p in polled.permissions()] == [True]
    ring = Ring(pods=False)
    ring.members = [replace(m, pod=pod) for m, pod in zip(ring.members, pods, strict=True)]
    ring.scale = lambda *args, **named: keda(polled.scale(*args, **named))

    def keda(actuation):
        """Do what KEDA and the HPA do with a number that is posted."""
        ring.asked.append((actuation.replicas, ()))
        actuator.scale(ORDERS, actuation.replicas, NOON)
        return actuation

    board.scale(ORDERS, 4, NOON)
    loop, token = started(ring)
    ring.rate = 8.0
    while not ring.asked:
        loop.tick(ring.now, token)
        ring.now += TICK
    left = len(pods) - ring.asked[0][0]
    assert left > 0
    drained = {m.pod for m in ring.members if not m.partitions}
    assert len(drained) == left
    wait_for(lambda: _names(actuator) == set(pods) - drained)
    polled.scale(ORDERS, 1, NOON, leaving=("9#1.x@no-such-pod",))  # who is gone already is no error
    assert board.current(ORDERS) == 1
    polled.close()


def test_b23_pods_that_are_not_ready_or_terminating_are_told_apart(act, deployed, cluster):
    actuator = act(deployed)
    first, second = sorted(wait_for(lambda: _names(actuator)))
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    waiting = {"name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 4}
    waiting["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    path = "/api/v1/namespaces/default/pods"
    cluster.merge(f"{path}/{first}/status", {"status": {"phase": "Running", "conditions": [ready]}})
    cluster.merge(f"{path}/{second}/status", {"status": {"phase": "Running", "containerStatuses": [waiting]}})
    states = {p.name: p for p in actuator.pods(ORDERS)}
    assert states[first].ready
    assert (states[second].ready, states[second].waiting, states[second].restarts) == (False, "CrashLoopBackOff", 4)
    assert actuator.not_ready(ORDERS) == f"{second} (CrashLoopBackOff, 4 restarts)"
    cluster.merge(f"{path}/{second}", {"metadata": {"finalizers": ["headway.test/held"]}})
    cluster("DELETE", f"{path}/{second}")  # as a rolling update does: its successor is there before it is gone
    wait_for(lambda: len(actuator.pods(ORDERS)) == 3)
    assert {p.name for p in actuator.pods(ORDERS) if p.terminating} == {second}
    assert second not in actuator.not_ready(ORDERS)
    assert actuator.current(ORDERS) == 2
    cluster.merge(f"{path}/{second}", {"metadata": {"finalizers": None}})


def test_the_deletion_cost_is_the_lowest_there_is(cluster, act, deployed):
    actuator = act(deployed)
    (name, *_) = sorted(wait_for(lambda: _names(actuator)))
    actuator._mark_leaving(ORDERS, (name,), 1)
    pod = cluster("GET", f"/api/v1/namespaces/default/pods/{name}")
    assert pod["metadata"]["annotations"][DELETION_COST] == str(-(2**31))


def test_kubeconfig_with_client_certificate(cluster, deployed, tmp_path, act):
    config = json.loads(cluster.kubeconfig.read_text())
    pki = cluster.pki
    config["users"][0]["user"] = {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")}
    (tmp_path / "config").write_text(json.dumps(config))
    assert act(deployed, identity=from_kubeconfig(tmp_path / "config")).current(ORDERS) == 2


def _names(actuator):
    return {p.name for p in actuator.pods(ORDERS) if not p.terminating}


def _gone(cluster, path):
    try:
        cluster("GET", path)
    except KubeError as exc:
        return exc.code == 404
    return False
