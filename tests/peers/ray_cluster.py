"""A real Ray cluster of one node on 127.0.0.1, in processes of its own.

Every port is named beforehand: where Ray chooses them itself, its raylet waits fifteen seconds for an agent to write
down which it took, and dies if that agent is still importing, as it is on a machine with other work to do.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

START_S = 120.0


@contextmanager
def ray_cluster(cpus: int = 2) -> Iterator[str]:
    """Provide the address of a running cluster."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # a socket's path must stay short
        gcs, *agents = _free_ports(6)
        options = dict(
            zip(
                (
                    "dashboard-agent-grpc-port",
                    "dashboard-agent-listen-port",
                    "runtime-env-agent-port",
                    "metrics-export-port",
                    "ray-client-server-port",
                ),
                agents,
                strict=True,
            )
        )
        command = [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1",
            f"--port={gcs}", f"--num-cpus={cpus}", "--include-dashboard=false", "--disable-usage-stats",
            f"--temp-dir={folder}", "--object-store-memory=100000000",
            *(f"--{name}={port}" for name, port in options.items()),
        ]  # fmt: skip
        log = Path(folder) / "start.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=_environment())
        try:
            _wait(process, log)
            yield f"127.0.0.1:{gcs}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            _end(process.pid)


def _environment() -> dict[str, str]:
    return os.environ | {"RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while b"Ray runtime started" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            said = [log, *log.parent.glob("session_latest/logs/raylet.out")]
            raise RuntimeError("Ray does not start: " + "".join(f.read_text(errors="replace")[-3000:] for f in said))
        time.sleep(0.2)


def _end(group: int) -> None:
    """End what is left of the cluster's own process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
