"""What doctor and the act gate ask of scale targets: rights, programs, and who serves the external metrics."""

from __future__ import annotations

import pytest

from headway.configuration.settings import Settings
from headway.operation.targets import against_acting, external_metrics_check, scaler_check, target_checks

OWN = {"tls_certificate": "c.pem", "tls_key": "k.pem", "front_proxy_ca": "ca.pem"}


class Server:
    """An API server in which one APIService is registered, or none."""

    def __init__(self, service):
        self._service = service

    def find(self, path):
        return None if self._service is None else {"spec": {"service": self._service}}


@pytest.mark.parametrize(
    ("service", "ok", "said"),
    [
        (None, True, "apply deploy/hpa/apiservice.yaml"),
        ({"namespace": "headway", "name": "headway-external-metrics"}, True, "is served by headway/"),
        ({"namespace": "keda", "name": "keda-metrics-apiserver"}, False, "is served by keda/keda-metrics-apiserver"),
    ],
)
def test_another_provider_of_external_metrics_is_not_evicted(service, ok, said):
    (check,) = external_metrics_check(Settings(external_metrics=OWN), Server(service))
    assert check.ok is ok
    assert said in check.detail
    assert ok or "does not evict" in check.remedy


def test_without_external_metrics_nobody_is_asked():
    assert list(external_metrics_check(Settings(), Server(None))) == []


def test_a_program_that_is_not_there_closes_the_gate():
    actuator = {"kind": "process", "command": ["no-such-program"]}
    settings = Settings(groups={"orders": {"topics": ["orders"], "actuator": actuator}})
    assert against_acting(settings, "orders") == (
        "no-such-program is not executable; install it, or name it with its path",
    )
    assert against_acting(Settings(groups={"orders": {"topics": ["orders"]}}), "orders")[0].startswith("groups.orders")


def test_a_cluster_that_is_not_there_closes_the_gate(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    actuator = {"kind": "kubernetes", "name": "consumer"}
    settings = Settings(groups={"orders": {"topics": ["orders"], "actuator": actuator}})
    (check,) = target_checks(settings, "orders")
    assert not check.ok
    assert against_acting(settings, "orders") != ()


KEDA = {"orders": {"topics": ["orders"], "mode": "act", "actuator": {"kind": "keda"}}}


@pytest.mark.parametrize(
    ("sections", "pod", "detail", "remedy"),
    [
        ({}, False, "served over HTTP alone", "metrics-api"),
        ({"scaler": {}}, False, "is asked over scaler", ""),
        ({"scaler": {}, "external_metrics": OWN}, False, "is asked over scaler and external_metrics", ""),
        ({"scaler": {}}, True, "scaler.host=127.0.0.1 is heard in this pod alone", 'scaler.host = "0.0.0.0"'),
        ({"scaler": {"host": "0.0.0.0"}}, True, "is asked over scaler", ""),
        ({"external_metrics": OWN}, True, "external_metrics.host=127.0.0.1", 'external_metrics.host = "0.0.0.0"'),
    ],
)
def test_doctor_says_where_keda_can_ask(monkeypatch, sections, pod, detail, remedy):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    settings = Settings(groups=KEDA, kafka={"bootstrap_servers": "broker:9092"}, **sections)
    (check,) = target_checks(settings, "orders")
    assert detail in check.detail
    assert remedy in check.remedy
    assert bool(remedy) is bool(check.remedy)
    assert against_acting(settings, "orders") == ()


@pytest.mark.parametrize("sections", [{}, {"prometheus": {"url": "http://p:9090"}}])
def test_keda_without_a_cluster_never_acts_since_nobody_says_how_many_members_there_are(sections):
    settings = Settings(groups=KEDA, scaler={}, **sections)
    where, seen = target_checks(settings, "orders")
    assert where.ok and not seen.ok
    (said,) = against_acting(settings, "orders")
    assert "KEDA does not say" in said and "kafka.bootstrap_servers" in said and '"kubernetes"' in said


def test_a_scaler_that_others_reach_without_tls_is_said_to_be_so():
    assert list(scaler_check(Settings(scaler={}))) == []
    tls = {"tls_certificate": "c.pem", "tls_key": "k.pem"}
    assert list(scaler_check(Settings(scaler={"host": "0.0.0.0"} | tls))) == []
    (check,) = scaler_check(Settings(scaler={"host": "0.0.0.0"}))
    assert check.ok
    assert "without TLS" in check.detail
    assert "NetworkPolicy" in check.remedy
