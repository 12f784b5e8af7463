"""Sets `spec.replicas` through the scale subresource, and tells a rival writer from a busy status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from balancer.actuators.base import Actuation, ActuationState
from balancer.actuators.kubernetes.requests import ApiServer, Conflict, NotThere
from balancer.errors import ForeignWriter, TargetRefused, TargetUnavailable
from forecaster.topics import GroupId

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
LOWEST_COST = "-2147483648"
TRIES = 5
NAMED = 5
"""Pods that a sentence names; of the others it says how many."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is scaled: any resource with a scale subresource.

    ``api`` is ``apps/v1`` for Deployments and StatefulSets, or ``group/version`` of a custom resource.
    """

    name: str
    namespace: str = "default"
    resource: str = "deployments"
    api: str = "apps/v1"

    @property
    def path(self) -> str:
        """Path of the object itself."""
        root = "/api/v1" if self.api == "v1" else f"/apis/{self.api}"
        return f"{root}/namespaces/{self.namespace}/{self.resource}/{self.name}"

    def __str__(self) -> str:
        return f"{self.resource}/{self.name} in {self.namespace}"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a target: what the observer and the verification need of it."""

    name: str
    ready: bool
    terminating: bool
    restarts: int
    waiting: str | None
    """Why its container does not run, such as ``CrashLoopBackOff``, or why it has no node; None when it runs."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether our identity may do something; ``doctor`` prints each that is missing."""

    verb: str
    resource: str
    allowed: bool


class KubernetesActuator:
    """Scales the targets of groups.

    A 409 alone is no rival: the scale's version moves with every status write. Only a ``spec.replicas`` that differs
    from what was read, or from what we set last, is somebody else's. It is respected for ``back_off``, then taken as
    the new starting point.

    Parameters
    ----------
    server
        The API server with our identity.
    targets
        What each group scales.
    back_off
        For how long a foreign writer is left alone.
    """

    def __init__(
        self, server: ApiServer, targets: Mapping[GroupId, Target], back_off: timedelta = timedelta(minutes=10)
    ) -> None:
        self._server, self._targets, self._back_off = server, dict(targets), back_off
        self._ours: dict[GroupId, tuple[str, int]] = {}
        self._foreign_since: dict[GroupId, tuple[datetime, int]] = {}

    def current(self, group: GroupId) -> int | None:
        """Return ``spec.replicas`` (records nothing). An absent field is zero: the server leaves zeros out."""
        return _replicas(self._scale_of(group))

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Set ``spec.replicas``; drained pods go first.

        Raises
        ------
        ForeignWriter
            Somebody else set another number; nothing is written until the back-off is over.
        TargetRefused, TargetUnavailable
            See :class:`ApiServer`.
        """
        if replicas < 0:
            raise TargetRefused(f"{replicas} replicas cannot be meant")
        scale = self._scale_of(group)
        before, uid = _replicas(scale), str(scale["metadata"]["uid"])
        self._respect_others(group, uid, before, now)
        if before == replicas:
            self._ours[group] = (uid, replicas)
            return Actuation(group, now, replicas, before, ActuationState.UNCHANGED)
        if replicas < before:
            self._mark_leaving(group, leaving, replicas)
        for _ in range(TRIES):
            metadata = {"uid": uid, "resourceVersion": scale["metadata"]["resourceVersion"]}
            try:
                self._server.patch(
                    f"{self._target(group).path}/scale", {"metadata": metadata, "spec": {"replicas": replicas}}
                )
            except Conflict:
                scale = self._scale_of(group)
                if str(scale["metadata"]["uid"]) != uid:
                    raise TargetRefused(
                        f"{self._target(group)} was deleted and made anew while being scaled; the next tick looks again"
                    ) from None
                if _replicas(scale) != before:
                    self._note_foreign(group, _replicas(scale), now)
            else:
                self._ours[group] = (uid, replicas)
                return Actuation(group, now, replicas, before, ActuationState.PENDING, f"{before} → {replicas}")
        raise TargetUnavailable(
            f"{self._target(group)} changed {TRIES} times while it was being scaled; next tick again"
        )

    def pods(self, group: GroupId) -> tuple[Pod, ...]:
        """Return the target's pods by its own selector; terminating ones are marked, not left out."""
        selector = str(self._scale_of(group).get("status", {}).get("selector", ""))
        if not selector:
            return ()
        path = f"/api/v1/namespaces/{self._target(group).namespace}/pods"
        return tuple(_pod(item) for item in self._server.get(path, labelSelector=selector)["items"])

    def not_ready(self, group: GroupId) -> str:
        """Return the pods that are not ready, each with what the cluster says of it; empty when all are.

        Raises
        ------
        TargetRefused, TargetUnavailable
            See :class:`ApiServer`.
        """
        waiting = [pod for pod in self.pods(group) if not pod.ready and not pod.terminating]
        said = [f"{p.name} ({p.waiting or 'not ready'}, {p.restarts} restarts)" for p in waiting[:NAMED]]
        if len(waiting) > NAMED:
            said.append(f"{len(waiting) - NAMED} more")
        return ", ".join(said)

    def permissions(self, group: GroupId) -> tuple[Permission, ...]:
        """Ask the server what our identity may do with the group's target (needs no grant)."""
        target = self._target(group)
        api_group = target.api.split("/")[0] if "/" in target.api else ""
        scale = [(verb, api_group, target.resource, "scale") for verb in ("get", "patch")]
        return allowed(self._server, target.namespace, [*scale, ("list", "", "pods", ""), ("patch", "", "pods", "")])

    def close(self) -> None:
        """Give up connections; the targets stay as they are."""
        self._server.close()

    def _target(self, group: GroupId) -> Target:
        try:
            return self._targets[group]
        except KeyError:
            raise TargetRefused(f"group {group} has no Kubernetes target; set actuator.name in its settings") from None

    def _scale_of(self, group: GroupId) -> dict[str, Any]:
        return self._server.get(f"{self._target(group).path}/scale")

    def _respect_others(self, group: GroupId, uid: str, seen: int, now: datetime) -> None:
        ours = self._ours.get(group)
        if ours is not None and ours[0] == uid and ours[1] != seen:
            self._note_foreign(group, seen, now)
        since = self._foreign_since.get(group)
        if since is None:
            return
        if now - since[0] < self._back_off:
            left = self._back_off - (now - since[0])
            raise ForeignWriter(
                f"{self._target(group)} was set to {since[1]} by somebody else at {since[0]:%H:%M:%S} UTC; "
                f"left alone for another {int(left.total_seconds())} s"
            )
        del self._foreign_since[group]

    def _note_foreign(self, group: GroupId, seen: int, now: datetime) -> None:
        self._ours.pop(group, None)
        self._foreign_since[group] = (now, seen)
        raise ForeignWriter(
            f"{self._target(group)} was set to {seen} by somebody else (GitOps, a person, an HPA?); "
            f"left alone for {int(self._back_off.total_seconds())} s"
        )

    def _mark_leaving(self, group: GroupId, leaving: tuple[str, ...], replicas: int) -> None:
        target, pods = self._target(group), [pod_of(name) for name in leaving]
        if target.resource == "statefulsets":
            staying = {f"{target.name}-{i}" for i in range(replicas)}
            if wrong := sorted(staying & set(pods)):
                raise TargetRefused(
                    f"{target} removes its highest ordinals first, but {', '.join(wrong)} was drained; "
                    f"drain {target.name}-{replicas} and above"
                )
            return
        mark_pods(self._server, target.namespace, pods)


def allowed(server: ApiServer, namespace: str, wanted: Iterable[tuple[str, str, str, str]]) -> tuple[Permission, ...]:
    """Ask the server what our identity may do: (verb, API group, resource, subresource); needs no grant."""
    found = []
    for verb, api_group, resource, sub in wanted:
        attributes = {"namespace": namespace, "verb": verb, "group": api_group, "resource": resource}
        review = {"spec": {"resourceAttributes": attributes | ({"subresource": sub} if sub else {})}}
        answer = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        found.append(Permission(verb, f"{resource}/{sub}" if sub else resource, bool(answer["status"]["allowed"])))
    return tuple(found)


def pod_of(name: str) -> str:
    """Return the pod of a member that leaves: ``ID@POD``, or the pod alone.

    Examples
    --------
    >>> pod_of("3#17.ab12@orders-5d9c-x2"), pod_of("orders-5d9c-x2")
    ('orders-5d9c-x2', 'orders-5d9c-x2')
    """
    return name.rpartition("@")[2]


def mark_pods(server: ApiServer, namespace: str, pods: Iterable[str]) -> None:
    """Give pods the lowest deletion cost, so that a Deployment that shrinks takes them first; who is gone is left out.

    Raises
    ------
    TargetRefused, TargetUnavailable
        If one could not be marked: then nothing may be scaled in.
    """
    for pod in pods:
        with suppress(NotThere):
            annotation = {"metadata": {"annotations": {DELETION_COST: LOWEST_COST}}}
            server.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}", annotation)


def _replicas(scale: Mapping[str, Any]) -> int:
    value = scale.get("spec", {}).get("replicas")
    return 0 if value is None else int(value)


def _pod(item: Mapping[str, Any]) -> Pod:
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    conditions = status.get("conditions", [])
    waiting = [c["state"]["waiting"].get("reason") for c in containers if "waiting" in c.get("state", {})]
    waiting += [c.get("reason") for c in conditions if c.get("type") == "PodScheduled" and c.get("status") == "False"]
    return Pod(
        name=str(item["metadata"]["name"]),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        terminating="deletionTimestamp" in item["metadata"],
        restarts=sum(int(c.get("restartCount", 0)) for c in containers),
        waiting=waiting[0] if waiting else None,
    )
