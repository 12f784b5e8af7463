"""A real PostgreSQL for tests, from Debian's package: own folder, own port, gone with the block."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg2

from tests.peers.kafka import free_ports


def programs() -> Path:
    """Return the folder of the newest version's programs.

    Raises
    ------
    RuntimeError
        If there is none; the message has the command.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise RuntimeError("PostgreSQL is missing: apt-get install postgresql")
    return found[-1].parent


class Postgres:
    """One server. It refuses to run as root, so root lends it the user that Debian made for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """How to connect."""
        return f"host=127.0.0.1 port={self.port} user=tester dbname=postgres"

    def __enter__(self) -> Postgres:
        data = self.folder / "data"
        data.mkdir(parents=True)
        if self._user is not None:
            for path in (self.folder, data):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        made = ["initdb", "-D", str(data), "-A", "trust", "-U", "tester", "-N", "-E", "UTF8", "--no-locale"]
        self._run(made).communicate()
        self.start()
        return self

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        listed = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self.process = self._run(["postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *listed])
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(psycopg2.OperationalError):
                psycopg2.connect(self.dsn, connect_timeout=5).close()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it; whoever is connected is thrown out."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        ids = {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid}
        log = (self.folder / "log").open("ab")
        with log:
            return subprocess.Popen(
                [str(programs() / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                cwd="/",
                **ids,  # type: ignore[call-overload]
            )
