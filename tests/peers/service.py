"""``headway serve`` as a process of its own, and how to ask it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
START_S, STOP_S = 240, 120


class Service:
    """A running ``headway serve`` and how to ask it."""

    def __init__(self, folder: Path, port: int, token: str | None = None, **environ: str) -> None:
        self.base, self.token = f"http://127.0.0.1:{port}", token
        self.errors = (folder / "serve.err").open("a+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway", "serve", "--config", str(folder / "headway.toml")],
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env=os.environ | {"HEADWAY_API__PORT": str(port), "OMP_NUM_THREADS": "1"} | environ,
        )

    def ask(self, path: str, method: str = "GET", body: object = None, token: str | None = None) -> tuple[int, Any]:
        """Return (status, document or text)."""
        request = urllib.request.Request(self.base + path, method=method)
        if (token := token or self.token) is not None:
            request.add_header("Authorization", f"Bearer {token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        return status, json.loads(text) if text.startswith("{") else text

    def wait_for(self, what: Callable[[], T], seconds: float = START_S) -> T:
        """Wait until ``what`` returns something true, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.said()
            try:
                if found := what():
                    return found
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {self.said()}")

    def ready(self) -> None:
        self.wait_for(lambda: self.ask("/readyz")[0] == 200)

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM and return (exit code, seconds)."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S), time.monotonic() - began
        finally:
            self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def serving(folder: Path, token: str | None = None, **environ: str) -> Iterator[Service]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    service = Service(folder, port, token, **environ)
    try:
        yield service
    finally:
        service.close()
        service.errors.close()
