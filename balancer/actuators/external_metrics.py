"""The ``external.metrics.k8s.io`` API: a plain HPA reads the number without KEDA.

Two GETs behind the API server's aggregator. Only the aggregator may call: its client certificate is checked against the
front-proxy authority during the handshake, and its name against the allowed ones at each request.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from balancer.actuators.board import ScalerBoard
from balancer.errors import TargetRefused
from forecaster.topics import GroupId

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP_VERSION}"
METRIC = "headway-replicas"


@dataclass(frozen=True, slots=True)
class FrontProxyTls:
    """PEM files: ours, and the front-proxy authority with the names that it may sign for."""

    certificate: Path
    key: Path
    front_proxy_ca: Path
    allowed_names: tuple[str, ...] = ("front-proxy-client",)


class ExternalMetricsServer:
    """Serves one metric, ``headway-replicas``, chosen by the label ``group`` (``matchLabels: {group: orders}``).

    A group without a fresh number gets 503: an HPA that meets an error on a metric never scales down by it.
    """

    def __init__(
        self,
        board: ScalerBoard,
        now: Callable[[], datetime],
        tls: FrontProxyTls,
        host: str = "127.0.0.1",
        port: int = 6443,
    ) -> None:
        self._board, self._now, self._names = board, now, frozenset(tls.allowed_names)
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls.front_proxy_ca))
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(str(tls.certificate), str(tls.key))
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as exc:
            raise TargetRefused(f"the external metrics API cannot start on {host}:{port}: {exc}") from exc
        self._server.daemon_threads = True
        # the handshake happens in the request's own thread: a caller that never speaks must not stop the others
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="external-metrics", daemon=True)

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, path: str, common_name: str | None) -> tuple[int, dict[str, Any]]:
        """Return status and document for a GET; pure but for the board and the clock."""
        if common_name not in self._names:
            return 403, _status(
                403, "Forbidden", f"certificate name {common_name!r} may not call; the aggregator's may"
            )
        parts = urlsplit(path)
        pieces = parts.path.rstrip("/").split("/")
        if parts.path.rstrip("/") == ROOT:
            return 200, _resources()
        if len(pieces) != 7 or "/".join(pieces[:4]) != ROOT or pieces[4] != "namespaces" or pieces[6] != METRIC:
            return 404, _status(404, "NotFound", f"there is one metric, {METRIC}")
        labels = dict(
            p.split("=", 1) for p in parse_qs(parts.query).get("labelSelector", [""])[0].split(",") if "=" in p
        )
        group = GroupId(labels.get("group", ""))
        if not group:
            return 404, _status(404, "NotFound", "say which group: selector.matchLabels.group")
        posted = self._board.fresh(group, self._now())
        if posted is None:
            return 503, _status(503, "ServiceUnavailable", f"no fresh plan for group {group!r}")
        item = {
            "metricName": METRIC,
            "metricLabels": {"group": group},
            "timestamp": posted.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": str(posted.replicas),
        }
        return 200, {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [item]}

    def _handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler's own self is the request
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def setup(self) -> None:
                self.request.settimeout(self.timeout)
                super().setup()

            def do_GET(self) -> None:
                certificate = self.connection.getpeercert() or {}
                names = dict(pair for relative in certificate.get("subject", ()) for pair in relative)
                code, document = outer.answer(self.path, names.get("commonName"))
                body = json.dumps(document).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: the API server polls every few seconds."""

        return Handler


def _resources() -> dict[str, Any]:
    resource = {
        "name": METRIC,
        "singularName": "",
        "namespaced": True,
        "kind": "ExternalMetricValueList",
        "verbs": ["get"],
    }
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [resource]}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
