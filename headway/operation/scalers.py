"""The servers that scalers ask: KEDA's external scaler over gRPC, and the external metrics API of a plain HPA."""

from __future__ import annotations

from contextlib import ExitStack

from balancer.actuators.board import ScalerBoard
from headway.configuration.settings import Settings
from headway.status.logs import logger
from headway.wiring import utc_now

OPEN = (
    "without TLS whoever reaches the port may read the numbers; allow KEDA alone, or give tls_certificate and tls_key"
)


def open_board(settings: Settings) -> ScalerBoard:
    """Return the board of numbers, with the age limit of the settings."""
    return ScalerBoard(settings.scaler.max_age) if settings.scaler is not None else ScalerBoard()


def open_scalers(settings: Settings, posts: ScalerBoard, stack: ExitStack) -> list[str]:
    """Start what is configured; return where each listens. All of it ends with the stack.

    Raises
    ------
    TargetRefused
        If a port is taken or a file cannot be read.
    """
    said = []
    if settings.scaler is not None:
        from balancer.actuators.keda.server import ScalerTls, serve_scaler

        chosen = settings.scaler
        pair = chosen.tls_certificate, chosen.tls_key
        tls = ScalerTls(pair[0], pair[1], chosen.client_ca) if pair[0] and pair[1] else None
        server, port = serve_scaler(posts, utc_now, f"{chosen.host}:{chosen.port}", tls)
        stack.callback(lambda: server.stop(1).wait(2))
        kind = "" if tls is None else " with TLS" if tls.client_ca is None else " with mutual TLS"
        said.append(f"scaler: {chosen.host}:{port}{kind}")
        if chosen.is_open:
            logger("scaler").warning(OPEN, host=chosen.host, port=port)
    if settings.external_metrics is not None:
        from balancer.actuators.external_metrics import ExternalMetricsServer, FrontProxyTls

        own = settings.external_metrics
        front = FrontProxyTls(own.tls_certificate, own.tls_key, own.front_proxy_ca, own.allowed_names)
        metrics = ExternalMetricsServer(posts, utc_now, front, own.host, own.port)
        metrics.start()
        stack.callback(metrics.stop)
        said.append(f"external metrics: {own.host}:{metrics.port}")
    return said
