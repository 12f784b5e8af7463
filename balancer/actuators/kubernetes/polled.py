"""A target that is polled (KEDA, an HPA) and whose pods we may mark, so that drained ones go first."""

from __future__ import annotations

from datetime import datetime

from balancer.actuators.base import Actuation, Actuator
from balancer.actuators.kubernetes.actuator import Permission, allowed, mark_pods, pod_of
from balancer.actuators.kubernetes.requests import ApiServer
from forecaster.topics import GroupId


class PolledTarget:
    """Marks the pods of drained members before it lets the number be read.

    Parameters
    ----------
    posts
        Where the number is posted for whoever polls it.
    server, namespace
        The API server with our identity, and where the members' pods are.
    """

    def __init__(self, posts: Actuator, server: ApiServer, namespace: str) -> None:
        self._posts, self._server, self._namespace = posts, server, namespace

    def current(self, group: GroupId) -> int | None:
        """Return what is posted."""
        return self._posts.current(group)

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Mark those who leave, then post.

        Raises
        ------
        TargetRefused, TargetUnavailable
            If a pod cannot be marked; the old number stays.
        """
        mark_pods(self._server, self._namespace, [pod_of(name) for name in leaving if "@" in name])
        return self._posts.scale(group, replicas, now, leaving=leaving)

    def permissions(self) -> tuple[Permission, ...]:
        """Ask the server whether pods may be marked."""
        return allowed(self._server, self._namespace, [("patch", "", "pods", "")])

    def close(self) -> None:
        """Give up the connection; what is posted stays."""
        self._server.close()
