"""Who may ask, how much, and how often: tokens, host check, body and rate limits, as one plain ASGI layer."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.api.names import keep_slashes
from headway.api.problems import problem
from headway.status.metrics import Metrics

OPEN = ("/healthz", "/readyz")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "testserver"})
_MAX_CLIENTS = 4096


def digest(token: str) -> bytes:
    """Return a token's SHA-256; a kept ``sha256:<hex>`` is taken as it is, so that files need not hold the token.

    Examples
    --------
    >>> digest("sha256:" + digest("secret").hex()) == digest("secret")
    True
    """
    if token.startswith("sha256:"):
        try:
            kept = bytes.fromhex(token.removeprefix("sha256:"))
        except ValueError:
            kept = b""
        if len(kept) == 32:
            return kept
    return hashlib.sha256(token.encode()).digest()


class Gate:
    """Checks every request before anything else sees it.

    Parameters
    ----------
    read, write
        Digests of the tokens; None leaves that side open. A write token may read.
    loopback_only
        True when there is no token: the Host header must name this machine, so that no web page elsewhere can reach
        the server through a name of its own.
    max_body_bytes, writes_per_minute
        Limits; what is beyond them is refused with 413 and 429.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        read: bytes | None = None,
        write: bytes | None = None,
        loopback_only: bool = True,
        max_body_bytes: int = 8_000_000,
        writes_per_minute: int = 600,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._metrics = app, metrics
        self._read, self._write = read, write
        self._loopback_only = loopback_only
        self._max_body, self._per_minute, self._monotonic = max_body_bytes, writes_per_minute, monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._monotonic()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SECURITY_HEADERS]
            await send(message)

        try:
            refused = self._refuse(scope)
            if refused is not None:
                await refused(scope, receive, watched)
            else:
                keep_slashes(scope)
                await self._app(scope, self._limited(receive), watched)
        finally:
            route = getattr(scope.get("route"), "path_format", "other")
            self._metrics.requests.labels(scope["method"], route, str(status)).inc()
            if route != "/v1/events":
                self._metrics.request_seconds.labels(route).observe(self._monotonic() - started)

    def _refuse(self, scope: Scope) -> ASGIApp | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._loopback_only:
            host = headers.get(b"host", b"").decode("latin-1")
            name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
            if name not in LOOPBACK:
                return problem(421, "Wrong host", f"this server answers loopback names only, not {host[:80]!r}")
        path, method = scope["path"], scope["method"]
        if path in OPEN:
            return None
        writes = method not in ("GET", "HEAD", "OPTIONS")
        # The page itself is no secret; what it shows is fetched with the token.
        if not writes and not path.startswith(("/v1", "/metrics", "/docs", "/openapi.json")):
            return None
        refused = self._check_token(headers.get(b"authorization", b""), writes)
        if refused is None and writes:
            refused = self._check_rate(scope)
        length = headers.get(b"content-length", b"")
        if refused is None and length.isdigit() and int(length) > self._max_body:
            refused = problem(413, "Too large", f"a body may have {self._max_body} bytes; send it in parts")
        return refused

    def _check_token(self, authorization: bytes, writes: bool) -> ASGIApp | None:
        needed = self._write if writes else self._read
        if needed is None and not (writes and self._read is not None):
            return None
        scheme, _, token = authorization.partition(b" ")
        given = digest(token.strip().decode("latin-1")) if scheme.lower() == b"bearer" and token else None
        if given is None:
            return problem(
                401, "Token needed", "send Authorization: Bearer with the token", headers={"WWW-Authenticate": "Bearer"}
            )
        ok_write = self._write is not None and hmac.compare_digest(given, self._write)
        ok_read = self._read is not None and hmac.compare_digest(given, self._read)
        if ok_write or (ok_read and not writes):
            return None
        if ok_read:
            return problem(403, "Not allowed", "this token may read; writing needs the write token")
        return problem(401, "Wrong token", "the token is not known here", headers={"WWW-Authenticate": "Bearer"})

    def _check_rate(self, scope: Scope) -> ASGIApp | None:
        client = (scope.get("client") or ("unknown", 0))[0]
        now = self._monotonic()
        left, since = self._buckets.pop(client, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - since) * self._per_minute / 60.0)
        self._buckets[client] = (max(left - 1.0, 0.0), now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1.0:
            return problem(
                429, "Too many writes", f"{self._per_minute} writes a minute are allowed", headers={"Retry-After": "1"}
            )
        return None

    def _limited(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body:
                raise HTTPException(413, f"a body may have {self._max_body} bytes; send it in parts")
            return message

        return counted


_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]
