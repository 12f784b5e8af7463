"""The servers that scalers ask: KEDA's external scaler over gRPC, and the external metrics API of a plain HPA."""

from __future__ import annotations

from contextlib import ExitStack

from balancer.actuators.board import ScalerBoard
from headway.configuration.settings import Settings
from headway.errors import SettingsRefused
from headway.wiring import utc_now


def open_board(settings: Settings) -> ScalerBoard:
    """Return the board of numbers, with the age limit of the settings."""
    return ScalerBoard(settings.scaler.max_age) if settings.scaler is not None else ScalerBoard()


def open_scalers(settings: Settings, posts: ScalerBoard, stack: ExitStack) -> list[str]:
    """Start what is configured; return where each listens. All of it ends with the stack.

    Raises
    ------
    SettingsRefused
        If TLS is half configured.
    TargetRefused
        If a port is taken or a file cannot be read.
    """
    said = []
    if settings.scaler is not None:
        from balancer.actuators.keda.server import MutualTls, serve_scaler

        chosen = settings.scaler
        files = (chosen.tls_certificate, chosen.tls_key, chosen.client_ca)
        if any(files) and not all(files):
            raise SettingsRefused("scaler: tls_certificate, tls_key and client_ca go together; one is missing")
        tls = MutualTls(files[0], files[1], files[2]) if files[0] and files[1] and files[2] else None
        server, port = serve_scaler(posts, utc_now, f"{chosen.host}:{chosen.port}", tls)
        stack.callback(lambda: server.stop(1).wait(2))
        said.append(f"scaler: {chosen.host}:{port}{' with mutual TLS' if tls else ''}")
    if settings.external_metrics is not None:
        from balancer.actuators.external_metrics import ExternalMetricsServer, FrontProxyTls

        own = settings.external_metrics
        front = FrontProxyTls(own.tls_certificate, own.tls_key, own.front_proxy_ca, own.allowed_names)
        metrics = ExternalMetricsServer(posts, utc_now, front, own.host, own.port)
        metrics.start()
        stack.callback(metrics.stop)
        said.append(f"external metrics: {own.host}:{metrics.port}")
    return said
