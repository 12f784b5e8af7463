"""What must be well with a group's scale target before Headway may act on it; doctor and the act gate ask the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forecaster.topics import GroupId
from headway.configuration.actuators import KedaActuator, KubernetesActuator, ProcessActuator, WebhookActuator
from headway.configuration.section import LOOPBACK
from headway.configuration.settings import Settings, in_a_pod
from headway.errors import one_line

if TYPE_CHECKING:
    from balancer.actuators.kubernetes.requests import ApiServer

NO_CLUSTER = 'set kafka.bootstrap_servers, or let actuator = { kind = "kubernetes", … } set the scale without KEDA'
PROVIDER = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``remedy`` says what to do, and is empty where nothing needs doing."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def against_acting(settings: Settings, group: str) -> tuple[str, ...]:
    """Return what speaks against mode ``act``: nothing to act on, a target that refuses, a right that is missing.

    Asks the target, so that it may take seconds; an error is a reason, never a pass.
    """
    said = settings.against_acting(group)
    if said:
        return said
    try:
        checks = list(target_checks(settings, group))
    except Exception as error:
        return (one_line(error),)
    return tuple(f"{c.detail}; {c.remedy}" if c.remedy else c.detail for c in checks if not c.ok)


def target_checks(settings: Settings, group: str) -> Iterator[Check]:
    """Look at one group's target."""
    own = settings.group(group)
    actuator = own.actuator if own is not None else None
    name = f"target of {group}"
    if isinstance(actuator, ProcessActuator):
        program = actuator.command[0]
        found = shutil.which(program) is not None
        remedy = "" if found else "install it, or name it with its path"
        yield Check(name, found, f"{program} {'is' if found else 'is not'} executable", remedy)
    elif isinstance(actuator, KubernetesActuator):
        yield from _kubernetes(actuator, group)
    elif isinstance(actuator, WebhookActuator):
        yield _reachable(settings, group)
    elif isinstance(actuator, KedaActuator):
        yield _served(settings, name)
        if not settings.from_cluster:
            yield Check(name, False, "how many members there are is known to brokers: KEDA does not say", NO_CLUSTER)
        if actuator.namespace is not None:
            yield from _polled(actuator.namespace, group)
    elif settings.mode(group) == "act":
        remedy = f'give groups.{group}.actuator, or mode = "recommend"'
        yield Check(name, False, "acts on nothing", remedy)


def _reachable(settings: Settings, group: str) -> Check:
    from headway.wiring import open_actuator

    try:
        actuator = open_actuator(settings, group)
        assert actuator is not None
        try:
            current = actuator.current(GroupId(group))
        finally:
            actuator.close()
    except Exception as error:
        return Check(f"target of {group}", False, one_line(error), "the message says which permission or name is wrong")
    return Check(f"target of {group}", True, f"is set to {current if current is not None else 'an unknown number'}")


def _kubernetes(kind: KubernetesActuator, group: str) -> Iterator[Check]:
    from balancer.actuators.kubernetes.actuator import KubernetesActuator as Scales
    from balancer.actuators.kubernetes.actuator import Target
    from balancer.actuators.kubernetes.connection import connect
    from balancer.actuators.kubernetes.requests import ApiServer

    name, target = GroupId(group), Target(kind.name, kind.namespace, kind.resource, kind.api)
    try:
        server = ApiServer(connect())
        actuator = Scales(server, {name: target})
        try:
            missing = [p for p in actuator.permissions(name) if not p.allowed]
            for permission in missing:
                what = f"may not {permission.verb} {permission.resource} in {target.namespace}"
                yield Check(f"target of {group}", False, what, "grant it: deploy/base/rbac.yaml has the role")
            if not missing:
                yield Check(f"target of {group}", True, f"{target} is set to {actuator.current(name)}")
        finally:
            actuator.close()
    except Exception as error:
        yield Check(f"target of {group}", False, one_line(error), "the message says which permission or name is wrong")


def _served(settings: Settings, name: str) -> Check:
    """Say where a scaler can ask for the number; none of it closes ``act``, since any instance answers over HTTP."""
    asked = [("scaler", settings.scaler), ("external_metrics", settings.external_metrics)]
    there = [(section, own) for section, own in asked if own is not None]
    if not there:
        remedy = "add [scaler] for KEDA's external scaler, or let its metrics-api scaler read /v1/groups/GROUP/scaler"
        return Check(
            name, True, "neither [scaler] nor [external_metrics]: its number is served over HTTP alone", remedy
        )
    if in_a_pod():
        for section, own in there:
            if own.host in LOOPBACK:
                remedy = f'set {section}.host = "0.0.0.0", and let the NetworkPolicy say who may ask'
                return Check(
                    name, True, f"{section}.host={own.host} is heard in this pod alone: KEDA cannot ask there", remedy
                )
    return Check(name, True, f"is asked over {' and '.join(section for section, _ in there)}")


def scaler_check(settings: Settings) -> Iterator[Check]:
    """Say whether others may read the numbers as they go over the wire."""
    if settings.scaler is not None and settings.scaler.is_open:
        remedy = "let a NetworkPolicy allow KEDA alone (deploy/base), or give scaler.tls_certificate and tls_key"
        yield Check("scaler", True, f"{settings.scaler.host}:{settings.scaler.port} speaks without TLS", remedy)


def _polled(namespace: str, group: str) -> Iterator[Check]:
    from balancer.actuators.board import ScalerBoard
    from headway.wiring import open_polled

    name = f"target of {group}"
    try:
        polled = open_polled(ScalerBoard(), namespace)
        try:
            missing = [p for p in polled.permissions() if not p.allowed]
        finally:
            polled.close()
    except Exception as error:
        yield Check(name, False, one_line(error), "the message says which permission or name is wrong")
        return
    for permission in missing:
        what = f"may not {permission.verb} {permission.resource} in {namespace}"
        yield Check(name, False, what, "grant it, or leave actuator.namespace out: then any pod may go first")
    if not missing:
        yield Check(name, True, "drained pods may be marked")


def external_metrics_check(settings: Settings, server: ApiServer | None = None) -> Iterator[Check]:
    """Say who serves ``external.metrics.k8s.io``: a cluster has one provider, and we evict nobody."""
    wanted = settings.external_metrics
    if wanted is None:
        return
    from balancer.actuators.kubernetes.connection import connect
    from balancer.actuators.kubernetes.requests import ApiServer as Server

    name = "external metrics"
    try:
        asked = server or Server(connect())
        try:
            found = asked.find(PROVIDER)
        finally:
            if server is None:
                asked.close()
    except Exception as error:
        yield Check(name, False, one_line(error), "grant get on apiservices, or set KUBECONFIG")
        return
    if found is None:
        yield Check(name, True, "nobody serves external.metrics.k8s.io yet; apply deploy/hpa/apiservice.yaml")
        return
    service = found.get("spec", {}).get("service") or {}
    there = f"{service.get('namespace')}/{service.get('name')}"
    if there == wanted.service:
        yield Check(name, True, f"external.metrics.k8s.io is served by {there}")
    else:
        remedy = (
            "leave it, and let KEDA ask the scaler (actuator kind keda) or scale directly (kind kubernetes); "
            "a cluster has one provider, and Headway does not evict another"
        )
        yield Check(name, False, f"external.metrics.k8s.io is served by {there}, not by {wanted.service}", remedy)
