"""headway serve: API, page, scaler and jobs."""

from __future__ import annotations

from headway.cli.options import Config
from headway.cli.output import say

EXAMPLE = "headway serve"


def command(config: Config = None) -> None:
    """Serve API, page and scaler, and run the scheduled jobs of the configured groups.

    What is not there yet (brokers, store) is said at /v1/groups and tried again until it is.
    Ends on SIGTERM or Ctrl-C after what runs has ended; the groups keep the members that they have.
    """
    import signal
    import sys
    from contextlib import ExitStack

    from balancer.actuators.board import ScalerBoard
    from headway import logs
    from headway.api.listening import Server, listen, url_of
    from headway.api.server import create_app
    from headway.settings import load
    from headway.wiring import assemble, open_application, utc_now

    settings = load(config)
    logs.configure()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings.api))
        app = stack.enter_context(open_application(settings, late=True))
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
        stack.callback(jobs.stop)
        jobs.start()
        say(f"page and API: {url_of(settings.api, listener)}")
        Server(asgi, settings.api).run(sockets=[listener])
