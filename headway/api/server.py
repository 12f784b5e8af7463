"""The HTTP server: routes, errors, gate and page put together."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from headway import __version__
from headway.api import groups, operate, panels, problems, status
from headway.api.gate import Gate, digest
from headway.api.page import mount_page
from headway.api.reference import mount_reference
from headway.application import Application
from headway.configuration.section import LOOPBACK
from headway.configuration.settings import Settings, secret
from headway.errors import SettingsRefused


def tokens(settings: Settings) -> tuple[bytes | None, bytes | None]:
    """Return the digests of the read and the write token.

    Raises
    ------
    SettingsRefused
        If the server would be reachable from elsewhere without both tokens.
    """
    api = settings.api
    read, write = secret(api.read_token, api.read_token_file), secret(api.write_token, api.write_token_file)
    if api.host not in LOOPBACK and (read is None or write is None):
        raise SettingsRefused(
            f"api.host={api.host} is reachable from elsewhere and needs api.read_token_file and api.write_token_file; "
            "without tokens only 127.0.0.1 is served"
        )
    return (None if read is None else digest(read)), (None if write is None else digest(write))


ROUTERS = (groups.router, panels.router, operate.router, status.router)
"""Everything under ``/v1`` and beside it; the documentation's reference is written from the same."""


def create_app(application: Application) -> FastAPI:
    """Return the ASGI application."""
    read, write = tokens(application.settings)
    app = FastAPI(
        title="Headway",
        version=__version__,
        description="Predictive autoscaling of Kafka consumer groups: forecasts, plans and decisions.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.application = application
    app.state.whatif_slots = asyncio.Semaphore(application.settings.api.whatifs_at_once)
    app.state.listeners = set()
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    mount_page(app)
    mount_reference(app)
    app.add_middleware(
        Gate,
        metrics=application.metrics,
        read=read,
        write=write,
        loopback_only=read is None and write is None,
        max_body_bytes=application.settings.api.max_body_bytes,
        writes_per_minute=application.settings.api.writes_per_minute,
    )
    return app
