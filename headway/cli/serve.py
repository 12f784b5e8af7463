"""headway serve: API, page, scalers and jobs."""

from __future__ import annotations

from headway.cli import INTERRUPTED
from headway.cli.options import Config
from headway.cli.output import say

EXAMPLE = "headway serve"
STOPPED = "groups keep the members they have, the store keeps what was recorded; headway serve goes on from there"


def command(config: Config = None) -> None:
    """Serve API, page and scaler, and run the scheduled jobs of the configured groups.

    What is not there yet (brokers, store) is said at /v1/groups and tried again until it is. Settings of groups are
    read again when the file changes (SIGHUP: at once). Ends on SIGTERM or Ctrl-C after what runs has ended, or
    jobs.stop_limit is over; the groups keep the members that they have.
    """
    import os
    import signal
    import sys
    from contextlib import ExitStack

    from headway.api.listening import Server, listen, url_of
    from headway.api.server import create_app
    from headway.assembly import assemble
    from headway.configuration.settings import SettingsFile
    from headway.operation.scalers import open_board, open_scalers
    from headway.status import logs
    from headway.wiring import open_application
    from headway.work.children import Children
    from headway.work.footprint import keep_small

    keep_small()
    read_settings = SettingsFile(config)
    settings = read_settings()
    logs.configure()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    late: tuple[str, ...] = ()
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings.api))
        app = stack.enter_context(open_application(settings, late=True))
        app.thinkers = Children(settings.api.whatifs_at_once, settings.api.whatif_limit.total_seconds(), "the what-if")
        app.trainers = Children(1, settings.jobs.retrain_limit.total_seconds(), "retraining")
        posts = open_board(settings)
        asgi = create_app(app)
        jobs = assemble(app, stack, posts, read_settings=read_settings)
        for where in open_scalers(settings, posts, stack):
            say(where)
        signal.signal(signal.SIGHUP, lambda *_: jobs.soon("groups"))
        server = Server(asgi, settings.api)
        try:
            jobs.start()
            say(f"page and API: {url_of(settings.api, listener)}")
            server.run(sockets=[listener])
        finally:
            app.thinkers.close()
            app.trainers.close()
            late = jobs.stop(settings.jobs.stop_limit)
    if late:
        logs.logger("serve").warning("ended with jobs under way", jobs=", ".join(late))
        if server.interrupted:
            say(f"headway serve: stopped; {STOPPED}")
        sys.stderr.flush()
        # their threads would keep the process; what they were about to write is refused or written anew
        os._exit(INTERRUPTED if server.interrupted else 0)
    if server.interrupted:
        raise KeyboardInterrupt
