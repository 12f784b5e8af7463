"""Listening: the port is taken before anything else starts, and a signal ends the server, not the process."""

from __future__ import annotations

import os
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from headway.configuration.sections import ApiSettings
from headway.errors import HeadwayError


def listen(api: ApiSettings) -> socket.socket:
    """Return a socket that listens already: whoever connects from now on is answered as soon as we serve.

    Raises
    ------
    HeadwayError
        If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in api.host else socket.AF_INET
    try:
        return socket.create_server((api.host, api.port), family=family, backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise HeadwayError(f"api.host={api.host} api.port={api.port}: {why}; choose another in headway.toml") from error


def url_of(api: ApiSettings, listener: socket.socket) -> str:
    """Return where the page is."""
    host = f"[{api.host}]" if ":" in api.host else api.host
    return f"{'https' if api.tls_certificate else 'http'}://{host}:{listener.getsockname()[1]}/"


class Server(uvicorn.Server):
    """Uvicorn's server, which says goodbye to the readers of ``/v1/events`` and returns to its caller at the end.

    Uvicorn raises the signal that ended it once more, which kills the process before jobs, store and scaler are
    closed.
    """

    def __init__(self, app: FastAPI, api: ApiSettings) -> None:
        config = uvicorn.Config(
            app,
            host=api.host,
            port=api.port,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=api.tls_certificate,
            ssl_keyfile=api.tls_key,
        )
        if api.tls_certificate is not None:
            try:
                config.load()
            except OSError as error:  # SSLError is one
                files = f"api.tls_certificate={api.tls_certificate} api.tls_key={api.tls_key}"
                raise HeadwayError(f"{files}: {error.strerror or error}; give a PEM certificate and its key") from error
        super().__init__(config)
        self._app = app
        self.interrupted = False
        """Whether Ctrl-C ended it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; a second Ctrl-C does not wait for requests under way."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of events first, since they would never end by themselves."""
        for reader in list(self._app.state.listeners):
            reader.put(None)
        await super().shutdown(sockets)
