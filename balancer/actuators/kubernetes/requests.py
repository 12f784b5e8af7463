"""The few requests we make of the API server, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from balancer.actuators.kubernetes.connection import Connection
from balancer.errors import TargetRefused, TargetUnavailable

MERGE_PATCH = "application/merge-patch+json"
"""The one patch type that every resource takes: strategic merge is refused for custom resources."""


class Conflict(Exception):
    """409 on a version: the object changed since it was read. Not an error yet; the actuator looks again."""


class NotThere(TargetRefused):
    """404: no such object, namespace or kind; the message tells which."""


class ApiServer:
    """Requests with our identity; a refused token is renewed once.

    Raises
    ------
    TargetUnavailable
        Nobody answers, or answers 5xx or 429: hold and try again.
    TargetRefused
        401, 403, 404, 415, 422: the message is the server's own, which names user, verb and resource.
    """

    def __init__(self, connection: Connection, timeout_s: float = 5.0) -> None:
        self._connection = connection
        self._client = httpx.Client(base_url=connection.server, verify=connection.context, timeout=timeout_s)

    @property
    def namespace(self) -> str:
        """Namespace of our own identity."""
        return self._connection.namespace

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self._send("GET", path, params=query)

    def find(self, path: str) -> dict[str, Any] | None:
        """Read an object; None if there is none."""
        try:
            return self._send("GET", path)
        except NotThere:
            return None

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge-patch an object; :class:`Conflict` when its version has moved on."""
        return self._send("PATCH", path, json=body, headers={"Content-Type": MERGE_PATCH})

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return self._send("POST", path, json=body)

    def close(self) -> None:
        """Give up connections."""
        self._client.close()

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = self._once(method, path, refused=False, **options)
        if answer.status_code == 401 and self._connection.token is not None:
            answer = self._once(method, path, refused=True, **options)
        if answer.is_success:
            return dict(answer.json())
        message = _message(answer)
        if answer.status_code == 409:
            raise Conflict(message)
        if answer.status_code >= 500 or answer.status_code == 429:
            raise TargetUnavailable(f"Kubernetes answered {answer.status_code} to {method} {path}: {message}")
        kind = NotThere if answer.status_code == 404 else TargetRefused
        raise kind(f"Kubernetes refused {method} {path} ({answer.status_code}): {message}")

    def _once(self, method: str, path: str, *, refused: bool, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if self._connection.token is not None:
            headers["Authorization"] = f"Bearer {self._connection.token(refused)}"
        try:
            return self._client.request(method, path, headers=headers, **options)
        except httpx.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            raise TargetUnavailable(f"no answer from Kubernetes at {self._connection.server}: {why}") from exc


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
