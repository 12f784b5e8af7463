"""What doctor and the act gate ask of scale targets: rights, programs, and who serves the external metrics."""

from __future__ import annotations

import pytest

from headway.configuration.settings import Settings
from headway.operation.targets import against_acting, external_metrics_check, target_checks

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


def test_keda_asks_by_itself():
    settings = Settings(groups={"orders": {"topics": ["orders"], "mode": "act", "actuator": {"kind": "keda"}}})
    (check,) = target_checks(settings, "orders")
    assert (check.ok, check.detail) == (True, "is asked by KEDA")
    assert against_acting(settings, "orders") == ()
