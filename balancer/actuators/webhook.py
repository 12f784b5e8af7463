"""A signed call to somebody else's scaler: idempotent, retried, and kept when it cannot be delivered."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tenacity.nap import sleep as nap

from balancer.actuators.base import Actuation, ActuationState
from balancer.errors import TargetRefused, TargetUnavailable
from forecaster.topics import GroupId

SIGNATURE = "X-Headway-Signature"
TIMESTAMP = "X-Headway-Timestamp"
KEY = "Idempotency-Key"


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return ``sha256=`` and the HMAC of ``timestamp.body``: what a receiver computes and compares in constant time.

    Examples
    --------
    >>> sign(b"s3cret", "1767571200", b"{}")[:15]
    'sha256=3144716a'
    """
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True, repr=False)
class Hook:
    """One receiver: URL, secret, where undelivered calls are kept, and how often to try."""

    url: str
    secret: bytes
    dead_letters: Path
    attempts: int = 4
    first_wait_s: float = 0.5

    def __repr__(self) -> str:
        parts = urlsplit(self.url)  # user, password and query may be secret
        return f"Hook({parts.scheme}://{parts.hostname}{parts.path})"


class WebhookActuator:
    """Posts ``{"group", "replicas", "previous", "requested_at", "leaving"}`` to the group's hook.

    The idempotency key is a digest of group, number and instant, so a repeated call of the same decision can be
    recognised. 2xx is success; 4xx (but 408, 409, 425, 429) is a refusal; everything else is tried again, then written
    to the dead-letter log, one JSON line each.
    """

    def __init__(
        self,
        hooks: dict[GroupId, Hook],
        *,
        timeout_s: float = 5.0,
        sleep: Callable[[float], None] = nap,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._hooks, self._sleep = hooks, sleep
        self._client = httpx.Client(timeout=timeout_s, transport=transport)
        self._asked: dict[GroupId, int] = {}

    def current(self, group: GroupId) -> int | None:
        """Return what was last delivered; None until something was: the receiver cannot be asked."""
        self._hook(group)
        return self._asked.get(group)

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Deliver the number.

        Raises
        ------
        TargetRefused
            The receiver says that it will never take this call.
        TargetUnavailable
            All attempts failed; the call is in the dead-letter log.
        """
        hook, previous = self._hook(group), self._asked.get(group)
        if replicas < 0:
            raise TargetRefused(f"{replicas} members cannot be meant")
        if previous == replicas and not leaving:
            return Actuation(group, now, replicas, previous, ActuationState.UNCHANGED)
        instant = now.astimezone(UTC).isoformat()
        document = {"group": group, "replicas": replicas, "previous": previous, "requested_at": instant}
        body = json.dumps(document | {"leaving": list(leaving)}, separators=(",", ":")).encode()
        key = hashlib.sha256(f"{group}\n{replicas}\n{instant}".encode()).hexdigest()[:32]
        timestamp = str(int(now.timestamp()))
        headers = {
            "Content-Type": "application/json",
            SIGNATURE: sign(hook.secret, timestamp, body),
            TIMESTAMP: timestamp,
            KEY: key,
        }
        try:
            for attempt in self._retrying(hook):
                with attempt:
                    self._post(hook, body, headers)
        except RetryError as exc:
            why = str(exc.last_attempt.exception())
            self._bury(hook, document, key, why)
            raise TargetUnavailable(f"{hook!r}: {why}; kept in {hook.dead_letters}") from exc
        self._asked[group] = replicas
        return Actuation(group, now, replicas, previous, ActuationState.PENDING, f"delivered to {hook!r}")

    def close(self) -> None:
        """Give up connections."""
        self._client.close()

    def _hook(self, group: GroupId) -> Hook:
        try:
            return self._hooks[group]
        except KeyError:
            raise TargetRefused(f"group {group} has no webhook; set actuator.url in its settings") from None

    def _retrying(self, hook: Hook) -> Retrying:
        return Retrying(
            stop=stop_after_attempt(hook.attempts),
            wait=wait_exponential(multiplier=hook.first_wait_s, max=10),
            retry=retry_if_exception_type(TargetUnavailable),
            sleep=self._sleep,
        )

    def _post(self, hook: Hook, body: bytes, headers: dict[str, str]) -> None:
        try:
            answer = self._client.post(hook.url, content=body, headers=headers)
        except httpx.HTTPError as exc:
            raise TargetUnavailable(f"no answer: {type(exc).__name__}") from exc
        if answer.is_success:
            return
        if 400 <= answer.status_code < 500 and answer.status_code not in {408, 409, 425, 429}:
            raise TargetRefused(f"{hook!r} refused the call with {answer.status_code}: {answer.text[:200]}")
        raise TargetUnavailable(f"answered {answer.status_code}")

    def _bury(self, hook: Hook, document: dict[str, object], key: str, why: str) -> None:
        hook.dead_letters.parent.mkdir(parents=True, exist_ok=True)
        with hook.dead_letters.open("a") as log:
            log.write(json.dumps(document | {"idempotency_key": key, "why": why}) + "\n")
