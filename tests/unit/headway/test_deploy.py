"""What stands in ``deploy/`` fits together: settings load, and whatever a manifest names is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from headway.configuration.section import LOOPBACK
from headway.configuration.settings import load

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
GUIDE = DEPLOY.parent / "docs" / "installing.md"


def documents(kind):
    """Return the documents of a kind in all of ``deploy/``."""
    files = sorted(DEPLOY.glob("*/*.yaml"))
    return [d for file in files for d in yaml.safe_load_all(file.read_text()) if d and d.get("kind") == kind]


def ports_of_services():
    """Return (namespace, name) → the numbers and names of its ports."""
    found = {}
    for service in documents("Service"):
        meta, ports = service["metadata"], service["spec"]["ports"]
        found[meta["namespace"], meta["name"]] = {p["port"] for p in ports} | {p.get("name") for p in ports}
    return found


def test_the_scaler_of_the_manifests_is_heard_outside_its_pod():
    settings = load(DEPLOY / "base" / "headway.toml", {})
    assert settings.scaler.host not in LOOPBACK
    assert settings.api.host not in LOOPBACK
    assert (settings.api.port, settings.scaler.port) == (8765, 9090)


def named_services():
    """Yield (what names it, namespace, name, port) of every Service that a manifest counts on."""
    for api in documents("APIService"):
        service = api["spec"]["service"]
        yield "APIService", service["namespace"], service["name"], service["port"]
    for scaled in documents("ScaledObject"):
        for trigger in scaled["spec"]["triggers"]:
            about = trigger["metadata"]
            address = about.get("scalerAddress") or about["url"].partition("://")[2].partition("/")[0]
            host, _, port = address.partition(":")
            name, namespace, svc = host.split(".")
            assert svc == "svc"
            yield f"ScaledObject {trigger['type']}", namespace, name, int(port)
    for monitor in documents("ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        for service in documents("Service"):
            if wanted.items() <= service["metadata"].get("labels", {}).items():
                meta = service["metadata"]
                for endpoint in monitor["spec"]["endpoints"]:
                    yield "ServiceMonitor", meta["namespace"], meta["name"], endpoint["port"]


def test_every_service_that_is_named_is_there_with_its_port():
    named = list(named_services())
    assert {who.split()[0] for who, *_ in named} == {"APIService", "ScaledObject", "ServiceMonitor"}
    there = ports_of_services()
    for who, namespace, name, port in named:
        assert port in there.get((namespace, name), ()), f"{who} names {namespace}/{name}:{port}"


def test_every_port_of_a_service_is_a_port_of_the_pods_and_let_in():
    """The NetworkPolicies of ``deploy/`` add up; a port that none of them lets in would be closed."""
    (base,) = [d for d in documents("Deployment") if "image" in d["spec"]["template"]["spec"]["containers"][0]]
    open_ports = {p["name"] for d in documents("Deployment") for p in _container(d).get("ports", ())}
    let_in = {p["port"] for d in documents("NetworkPolicy") for rule in d["spec"]["ingress"] for p in rule["ports"]}
    labels = base["spec"]["template"]["metadata"]["labels"]
    for service in documents("Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]:
            name = port.get("targetPort", port["name"])
            assert name in open_ports
            assert name in let_in


def test_an_hpa_is_answered_by_what_its_folder_configures():
    (patch,) = [d for d in documents("Deployment") if "env" in _container(d)]
    given = {e["name"]: e["value"] for e in _container(patch)["env"]}
    settings = load(DEPLOY / "base" / "headway.toml", given).external_metrics
    mounts = {m["mountPath"]: m["name"] for m in _container(patch)["volumeMounts"]}
    assert settings.host not in LOOPBACK
    assert {str(f.parent) for f in (settings.tls_certificate, settings.tls_key, settings.front_proxy_ca)} <= set(mounts)
    assert settings.port in {p["containerPort"] for p in _container(patch)["ports"]}
    (api,) = documents("APIService")
    assert settings.service == f"{api['spec']['service']['namespace']}/{api['spec']['service']['name']}"


def secrets():
    """Yield (namespace, name, keys) of every Secret that a manifest counts on."""
    for deployment in documents("Deployment"):
        for volume in deployment["spec"]["template"]["spec"].get("volumes", ()):
            if "secret" in volume:
                yield deployment["metadata"]["namespace"], volume["secret"]["secretName"], set()
    for monitor in documents("ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            wanted = endpoint["authorization"]["credentials"]
            yield monitor["metadata"]["namespace"], wanted["name"], {wanted["key"]}
    for login in documents("TriggerAuthentication"):
        for wanted in login["spec"]["secretTargetRef"]:
            yield login["metadata"]["namespace"], wanted["name"], {wanted["key"]}
    yield "headway", "headway", {Path(load_toml_path(k)).name for k in ("read_token_file", "write_token_file")}


def load_toml_path(key):
    """Return a file of ``[api]`` as the shipped settings name it."""
    return getattr(load(DEPLOY / "base" / "headway.toml", {}).api, key)


def made_secrets():
    """Return (namespace, name) → keys of the Secrets that the guide's commands make."""
    made, text = {}, GUIDE.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        words = line.split()
        if words[:4] == ["kubectl", "create", "secret", "generic"]:
            keys = {w.partition("=")[2].partition("=")[0] for w in words if w.startswith("--from-")}
            made[words[words.index("-n") + 1], words[4]] = keys
    return made


def test_every_secret_that_is_named_is_made_by_the_guide():
    made = made_secrets()
    for namespace, name, keys in secrets():
        assert keys <= made.get((namespace, name), set()), f"{namespace}/{name} with {keys}"
        assert made.get((namespace, name)), f"{namespace}/{name}"


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in DEPLOY.glob("*/kustomization.yaml")))
def test_the_guide_says_how_each_folder_is_applied(folder):
    assert f"kubectl apply -k deploy/{folder}" in GUIDE.read_text()


def _container(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]
