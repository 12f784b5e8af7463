"""The embedded server: durable, one a folder, gone with its owner, taken over by whoever is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from forecaster.errors import StoreRefused, StoreUnavailable
from forecaster.stores.embedded import EmbeddedServer

OWNER = """
import sys
from pathlib import Path
from forecaster.stores.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1])).start()
print(server.is_owner, server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, protocol=2, retry=None)


def reads(server: EmbeddedServer, key: str) -> bytes | None:
    try:
        with client(server) as r:
            return r.get(key)  # type: ignore[return-value]
    except (redis.RedisError, StoreUnavailable):
        return None


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    owns, pid = process.stdout.readline().split()
    assert owns == "True"
    yield process, int(pid)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_what_was_written_survives_a_restart(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        r.set("a", "1")
    with pytest.raises(StoreUnavailable):
        _ = server.url
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        assert r.get("a") == b"1"


def test_it_is_set_up_to_keep_everything(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, maxmemory="64mb") as server, client(server) as r:
        got = {k: r.config_get(k)[k] for k in ("appendonly", "appendfsync", "maxmemory-policy", "maxmemory", "port")}
        assert got == {
            "appendonly": "yes", "appendfsync": "no", "maxmemory-policy": "noeviction", "maxmemory": "67108864",
            "port": "0",
        }  # fmt: skip


def test_what_was_written_is_synced_every_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keeper and not by the server, whose own way holds acknowledged writes back while the disk is slow."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        r.set("a", "1")
        for _ in range(2):
            synced.clear()
            until(lambda: any(name.endswith(".incr.aof") for name in synced))


def test_a_second_opener_reuses_the_server(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as first:
        with EmbeddedServer(tmp_path) as second:
            assert (second.is_owner, second.pid, second.url) == (False, first.pid, first.url)
        with client(first) as r:
            assert r.ping()


def test_a_killed_server_is_started_again_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        with client(server) as r:
            for n in range(200):
                r.set(f"k{n}", n)
        old = server.pid
        os.kill(old, signal.SIGKILL)
        until(lambda: reads(server, "k199") == b"199")
        assert server.pid != old
        with client(server) as r:
            assert r.dbsize() == 200


def test_the_server_ends_with_an_owner_that_is_killed(owner: tuple[subprocess.Popen[str], int]) -> None:
    process, pid = owner
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.parametrize("how", ["kill", "terminate", "close"])
def test_who_is_left_takes_over(tmp_path: Path, owner: tuple[subprocess.Popen[str], int], how: str) -> None:
    process, pid = owner
    with EmbeddedServer(tmp_path) as heir:
        assert (heir.is_owner, heir.pid) == (False, pid)
        with client(heir) as r:
            r.set("a", "kept")
        if how == "close":
            assert process.stdin is not None
            process.stdin.close()
        else:
            getattr(process, how)()
        process.wait()
        until(lambda: heir.is_owner and reads(heir, "a") == b"kept")
        assert heir.pid != pid


def test_a_torn_end_of_the_log_is_cut_off(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        r.set("a", "1")
    log = next((tmp_path / "appendonlydir").glob("*.incr.aof"))
    with log.open("ab") as f:
        f.write(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$400\r\nhalf")
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        assert (r.get("a"), r.get("b")) == (b"1", None)


def test_a_damaged_log_is_told_with_the_servers_own_words(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, client(server) as r:
        r.set("a", "1")
    log = next((tmp_path / "appendonlydir").glob("*.incr.aof"))
    log.write_bytes(b"garbage\r\n" + log.read_bytes())
    with pytest.raises(StoreUnavailable, match="AOF"):
        EmbeddedServer(tmp_path, start_timeout_s=5).start()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="data folder"):
        EmbeddedServer(tmp_path / "file" / "store").start()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    with EmbeddedServer(folder) as server, client(server) as r:
        assert r.ping()
        assert len(server.url) < 108


def test_a_loopback_port_beside_the_socket(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, port=0) as server, redis.Redis(port=server.port, protocol=2) as r:
        assert r.ping()


def test_a_thread_may_start_it_and_end(tmp_path: Path) -> None:
    """The kernel ends the server with the thread that started it: that must not be the caller's."""
    import threading

    server = EmbeddedServer(tmp_path)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with client(server) as r:
            time.sleep(0.1)
            assert r.ping()
    finally:
        server.stop()


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path).start()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # outlives the owner's stop, as a training process might
        os.read(reader, 1)
        os._exit(0)
    server.stop()
    try:
        with EmbeddedServer(tmp_path) as again:
            assert again.is_owner
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
