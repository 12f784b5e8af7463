"""Real Redis servers on this machine, each with its data in a folder of its own and gone when the test-suite ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import redis

from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.embedded_process import find_binary, spawn_with_parent


def free_ports(count: int) -> list[int]:
    """Return loopback ports below 55536, since a cluster node listens on its port plus 10000 as well."""
    found: list[int] = []
    for port in range(20_000 + (time.monotonic_ns() // 1000) % 20_000, 55_000):
        pair = [port, port + 10_000]
        with contextlib.ExitStack() as stack:
            try:
                for one in pair:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", one))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


class Server:
    """One Redis-like server process."""

    def __init__(
        self, binary: Path, folder: Path, options: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self._command = [
            *([] if env is None else ["/usr/bin/env", *(f"{k}={v}" for k, v in env.items())]),
            str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no",
            "--logfile", str(folder / "server.log"), "--save", "", "--appendonly", "yes", "--appendfsync", "no",
            *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        self.process = spawn_with_parent(self._command)
        deadline = time.monotonic() + 90
        while True:
            try:
                with self.client() as r:
                    r.ping()
                return self
            except redis.exceptions.RedisError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = self.folder / "server.log"
                    words = log.read_text(errors="replace")[-2000:] if log.exists() else "no log"
                    raise RuntimeError(f"{self._command[0]} did not start: {words}") from None
                time.sleep(0.01)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, protocol=2, retry=None, socket_timeout=10)

    def kill(self) -> None:
        """kill -9; ``start`` brings it back on the same address, with what its file kept."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def empty(self) -> None:
        """Drop what its file kept; only between kill and start."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file():
                path.unlink()

    def pause(self) -> None:
        """Freeze it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None


def lease_server(folder: Path, *, durable: bool = False) -> Server:
    """Return a Valkey for leases, not started yet; with ``durable`` it keeps an append-only file."""
    return Server(find_binary(), folder, () if durable else ("--appendonly", "no"))


def debian_redis() -> Path:
    """Return Debian's redis-server.

    Raises
    ------
    RuntimeError
        If it is not installed; the message has the command.
    """
    found = shutil.which("redis-server")
    if found is None:
        raise RuntimeError("redis-server is missing: apt-get install redis-server")
    return Path(found)


@contextlib.contextmanager
def running(
    binary: Path, folder: Path, options: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator[Server]:
    """Run a server as long as the block lasts."""
    server = Server(binary, folder, options, env)
    try:
        yield server.start()
    finally:
        server.stop()


@contextlib.contextmanager
def cluster_of_three(folder: Path) -> Iterator[list[Server]]:
    """Run a Redis Cluster of three primaries (Valkey's binary) as long as the block lasts."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "yes")
    servers = [Server(find_binary(), folder / str(n), options) for n in range(3)]
    try:
        for server in servers:
            server.start()
        edges = [0, 5461, 10923, 16384]
        for server, first, end in zip(servers, edges[:-1], edges[1:], strict=True):
            with server.client() as r:
                r.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
                for other in servers:
                    r.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        deadline = time.monotonic() + 90
        while not all(_is_whole(server) for server in servers):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster did not come together")
            time.sleep(0.05)
        yield servers
    finally:
        for server in servers:
            server.stop()


def started_once(stack: contextlib.ExitStack, new_folder: Callable[[str], Path]) -> Callable[[str], str]:
    """Return a function that gives the URL of a kind of server, started when it is first asked for.

    Kinds: ``embedded``, ``redis7`` (Debian's), ``timeseries`` (with the module), ``cluster`` (of three).
    """
    urls: dict[str, str] = {}

    def url_of(kind: str) -> str:
        if kind not in urls:
            folder = new_folder(kind)
            match kind:
                case "embedded":
                    urls[kind] = stack.enter_context(EmbeddedServer(folder)).url
                case "redis7":
                    urls[kind] = stack.enter_context(running(debian_redis(), folder)).url
                case "timeseries":
                    from tests.peers.timeseries import timeseries_server

                    urls[kind] = stack.enter_context(timeseries_server(folder)).url
                case "cluster":
                    urls[kind] = stack.enter_context(cluster_of_three(folder))[0].url
                case _:
                    raise ValueError(f"no server of kind {kind}")
        return urls[kind]

    return url_of


def clients_of(url: str) -> list[redis.Redis]:
    """Return a client of every server behind a URL; the caller closes them."""
    first = redis.Redis.from_url(url, protocol=2)
    if not int(first.info("cluster").get("cluster_enabled", 0)):
        return [first]
    raw = first.execute_command("CLUSTER", "NODES")
    nodes = (
        raw if isinstance(raw, dict) else {line.split()[1].split("@")[0]: None for line in raw.decode().splitlines()}
    )
    first.close()
    return [redis.Redis(port=int(place.rpartition(":")[2]), protocol=2) for place in nodes]


def _is_whole(server: Server) -> bool:
    with server.client() as r:
        raw = r.execute_command("CLUSTER", "INFO")
        info = (
            raw if isinstance(raw, dict) else dict(line.split(":", 1) for line in raw.decode().split() if ":" in line)
        )
        return info.get("cluster_state") == "ok" and info.get("cluster_known_nodes") == "3"


def slot(key: str) -> int:
    """Return the hash slot of a key."""
    return int(redis.crc.key_slot(key.encode()))


def move_slot(servers: Sequence[Server], number: int) -> None:
    """Move a slot with its keys to the next server, as an operator would."""
    clients = [server.client() for server in servers]
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
    owner = next(i for i, client in enumerate(clients) if _owns(client, number))
    target = (owner + 1) % len(servers)
    clients[target].execute_command("CLUSTER", "SETSLOT", number, "IMPORTING", ids[owner])
    clients[owner].execute_command("CLUSTER", "SETSLOT", number, "MIGRATING", ids[target])
    while keys := clients[owner].execute_command("CLUSTER", "GETKEYSINSLOT", number, 100):
        clients[owner].execute_command("MIGRATE", "127.0.0.1", servers[target].port, "", 0, 5000, "KEYS", *keys)
    for i in (target, owner, *(n for n in range(len(servers)) if n not in {target, owner})):
        clients[i].execute_command("CLUSTER", "SETSLOT", number, "NODE", ids[target])
    for client in clients:
        client.close()


def _owns(client: redis.Redis, number: int) -> bool:
    """Whether a node serves a slot: only the owner answers for it without pointing elsewhere."""
    try:
        client.execute_command("CLUSTER", "COUNTKEYSINSLOT", number)
        mine = client.execute_command("CLUSTER", "SHARDS")
    except redis.exceptions.RedisError:
        return False
    my_id = client.execute_command("CLUSTER", "MYID")
    for shard in mine:
        fields = dict(zip(shard[::2], shard[1::2], strict=True))
        ranges = fields[b"slots"]
        ids = [dict(zip(node[::2], node[1::2], strict=True))[b"id"] for node in fields[b"nodes"]]
        if my_id in ids and any(a <= number <= b for a, b in zip(ranges[::2], ranges[1::2], strict=True)):
            return True
    return False
