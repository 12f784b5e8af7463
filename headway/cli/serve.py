"""headway serve: API, page, scaler and jobs."""

from __future__ import annotations

from headway.cli.options import Config
from headway.cli.output import say

EXAMPLE = "headway serve"


def command(config: Config = None) -> None:
    """Serve API, page and scaler, and run the scheduled jobs of the configured groups.

    Ends on SIGTERM or Ctrl-C after what runs has ended; the groups keep the members that they have.
    """
    from contextlib import ExitStack

    import uvicorn

    from balancer.actuators.board import ScalerBoard
    from headway import logs
    from headway.api.server import create_app
    from headway.settings import load
    from headway.wiring import assemble, open_application, utc_now

    settings = load(config)
    logs.configure()
    with ExitStack() as stack:
        app = stack.enter_context(open_application(settings))
        posts = ScalerBoard(settings.scaler.max_age) if settings.scaler is not None else ScalerBoard()
        asgi = create_app(app)
        jobs = assemble(app, stack, posts)
        if settings.scaler is not None:
            from balancer.actuators.keda.server import MutualTls, serve_scaler

            tls = None
            chosen = settings.scaler
            if chosen.tls_certificate and chosen.tls_key and chosen.client_ca:
                tls = MutualTls(chosen.tls_certificate, chosen.tls_key, chosen.client_ca)
            server, port = serve_scaler(posts, utc_now, f"{chosen.host}:{chosen.port}", tls)
            stack.callback(server.stop, 2)
            say(f"scaler: {chosen.host}:{port}")
        jobs.start()
        stack.callback(jobs.stop)
        api = settings.api
        scheme = "https" if api.tls_certificate else "http"
        say(f"page and API: {scheme}://{api.host}:{api.port}/")
        uvicorn.run(
            asgi,
            host=api.host,
            port=api.port,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=api.tls_certificate,
            ssl_keyfile=api.tls_key,
        )
