"""Real Apache Kafka (KRaft) for tests, from Maven Central jars alone.

::

    with Kafka(folder) as kafka:                 # one combined broker and controller
        Producer({"bootstrap.servers": kafka.bootstrap})
    kafka = Kafka(folder, brokers=3).start(); kafka.kill(2); kafka.restart(2); kafka.stop()

Needs ``java`` (17 or newer), and ``mvn`` for the first fetch into the cache folder. Every node listens on 127.0.0.1
only, on ports chosen once, so that a restarted node keeps its address. Nodes end with the process that started them.

    python -m tests.peers.kafka [BROKERS] [--hold]     # try it by hand
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "4.3.1"
USER, PASSWORD = "headway", "only-for-tests"
"""What the SASL/PLAIN door of every node lets in; see :attr:`Kafka.login_bootstrap`."""
JAVA_FLAGS = (
    "-XX:+UseSerialGC",  # fewest threads, least memory outside the heap
    "-XX:TieredStopAtLevel=1",  # C1 only: starts faster, about 20 % slower at full load
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def cache_dir() -> Path:
    """Where the jars are kept between runs (``HEADWAY_PEERS_CACHE`` moves it)."""
    default = Path.home() / ".cache" / "headway-peers"
    return Path(os.environ.get("HEADWAY_PEERS_CACHE", default)) / "kafka"


def fetch(version: str = VERSION) -> Path:
    """Return the folder with the jars; Maven fills it on the first call (about 5 s, 44 MB)."""
    home = cache_dir() / version
    if not (home / "ok").exists():
        part = home.with_name(f"{version}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
        command = ["mvn", "-B", "-q", "-f", str(HERE / "kafka_pom.xml"), f"-Dkafka.version={version}", *goal]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch Kafka {version}: {(done.stdout + done.stderr)[-2000:]}")
        (part / "ok").touch()
        with contextlib.suppress(OSError):
            part.rename(home)  # another process may have been first
        shutil.rmtree(part, ignore_errors=True)
    return home


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at the moment."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def live_brokers(port: int, timeout_s: float = 1.0) -> int:
    """Return how many brokers a Metadata v1 reply on this port names; 0 when nothing answers."""
    body = struct.pack(">hhih", 3, 1, 7, 5) + b"probe" + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as s, s.makefile("rb") as reply:
            s.sendall(struct.pack(">i", len(body)) + body)
            size = struct.unpack(">i", reply.read(4))[0]
            return int(struct.unpack(">i", reply.read(size)[4:8])[0])
    except (OSError, struct.error):
        return 0


def _state(thread: Path) -> str:
    """Return the letter of a thread's state; of one that has ended, that of a stopped one."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"


class Kafka:
    """A cluster of real brokers in one folder.

    ``overrides`` are broker properties; ``heartbeat_ms`` is that of KIP-848 and share groups. ``doors`` are further
    ways in that lead through whatever a test puts there: each node tells clients of a door to come back to that door's
    own ports, where nobody listens but the test (see :mod:`tests.chaos.proxy`).
    """

    def __init__(
        self,
        folder: str | Path,
        brokers: int = 1,
        *,
        version: str = VERSION,
        heap: str = "384m",
        log_level: str = "warn",
        overrides: Mapping[str, object] | None = None,
        heartbeat_ms: int = 500,
        jvm: Sequence[str] = (),
        doors: int = 0,
    ) -> None:
        self.root = Path(folder).resolve()
        self.brokers, self.version, self.heap, self.log_level = brokers, version, heap, log_level
        self.overrides, self.heartbeat_ms, self.jvm = dict(overrides or {}), heartbeat_ms, list(jvm)
        ports = free_ports((3 + 2 * doors) * brokers)
        self.ports, self.controller_ports = ports[:brokers], ports[brokers : 2 * brokers]
        self.login_ports = ports[2 * brokers : 3 * brokers]
        pairs = list(zip(ports[3 * brokers :: 2], ports[3 * brokers + 1 :: 2], strict=True))
        self.doors = [pairs[d * brokers : (d + 1) * brokers] for d in range(doors)]
        """Door → for each node (the port it tells clients to come to, the port it listens on)."""
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        raw = b"\0" + uuid.uuid4().bytes[1:]  # so that the id never begins with "-"
        self.cluster_id = base64.urlsafe_b64encode(raw)[:22].decode()
        self.timings_s: dict[str, float] = {}

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of the open door."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def login_bootstrap(self) -> str:
        """Bootstrap servers of the door that wants :data:`USER` and :data:`PASSWORD` (SASL_PLAINTEXT, PLAIN)."""
        return ",".join(f"127.0.0.1:{port}" for port in self.login_ports)

    def start(self, timeout_s: float = 180.0) -> Kafka:
        """Format what is new, start every node, and wait until all name each other."""
        began = time.monotonic()
        self.jars = fetch(self.version)
        fetched = time.monotonic()
        self.root.mkdir(parents=True, exist_ok=True)
        nodes = range(1, self.brokers + 1)
        fresh = [i for i in nodes if not (self._data(i) / "meta.properties").exists()]
        for i in nodes:
            self._write_config(i)
        for formatting in [self._format(i) for i in fresh]:  # in parallel: each is a JVM of its own
            if formatting.wait(timeout_s):
                raise RuntimeError(f"format failed: {(self.root / 'format.log').read_text()[-2000:]}")
        formatted = time.monotonic()
        try:
            for i in nodes:
                self._spawn(i)
            self.wait_ready(timeout_s)
        except BaseException:
            self.stop()
            raise
        self.timings_s = {
            "fetch": fetched - began,
            "format": formatted - fetched,
            "start": time.monotonic() - formatted,
        }
        return self

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Wait until every running node answers and names every running node."""
        deadline, want = time.monotonic() + timeout_s, len(self.processes)
        for i, process in list(self.processes.items()):
            while live_brokers(self.ports[i - 1]) < want:
                if process.poll() is not None:
                    raise RuntimeError(f"node {i} ended with {process.returncode}: {self.log(i)[-2000:]}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"node {i} is not ready after {timeout_s} s: {self.log(i)[-2000:]}")
                time.sleep(0.05)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ask every node to end; whoever does not is killed."""
        for i, process in self.processes.items():
            self.resume(i)
            process.terminate()
        deadline = time.monotonic() + timeout_s
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def kill(self, node: int = 1) -> None:
        """End a node with kill -9: nothing is flushed or handed over."""
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def pause(self, node: int = 1) -> None:
        """Freeze a node (SIGSTOP): its connections stay, it says nothing.

        Each of its threads stops when it runs next; until then a busy machine lets it answer.
        """
        process = self.processes[node]
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while any(_state(thread) != "T" for thread in Path(f"/proc/{process.pid}/task").iterdir()):
            assert process.poll() is None and time.monotonic() < deadline, f"node {node} does not freeze"
            time.sleep(0.001)

    def resume(self, node: int = 1) -> None:
        """Let a frozen node go on."""
        self.processes[node].send_signal(signal.SIGCONT)

    def restart(self, node: int = 1, timeout_s: float = 180.0, *, wait: bool = True) -> float:
        """Start a killed node on its old folder and address; return the seconds until all nodes were ready."""
        began = time.monotonic()
        self._spawn(node)
        if wait:
            self.wait_ready(timeout_s)
        return time.monotonic() - began

    def rss_mib(self, node: int = 1) -> float:
        """Return the resident memory of a node."""
        text = Path(f"/proc/{self.processes[node].pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def log(self, node: int = 1) -> str:
        """Return what a node has logged."""
        return (self.root / f"node{node}.log").read_text(errors="replace")

    def __enter__(self) -> Kafka:
        return self if self.processes else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _data(self, i: int) -> Path:
        return self.root / f"data{i}"

    def _config(self, i: int) -> Path:
        return self.root / f"node{i}.properties"

    def _write_config(self, i: int) -> None:
        values = {
            "NODE_ID": i,
            "VOTERS": ",".join(f"{k + 1}@127.0.0.1:{port}" for k, port in enumerate(self.controller_ports)),
            "PORT": self.ports[i - 1],
            "CONTROLLER_PORT": self.controller_ports[i - 1],
            "LOGIN_PORT": self.login_ports[i - 1],
            "PASSWORD": PASSWORD,
            "DATA": self._data(i),
            "RF": min(3, self.brokers),
            "MIN_ISR": 2 if self.brokers >= 3 else 1,
            "HEARTBEAT_MS": self.heartbeat_ms,
            "INDEX_BYTES": 1 << 20,
            "CONTROLLED": "true" if self.brokers > 1 else "false",
            "BROKER_SESSION_MS": 9000 if self.brokers == 1 else 3000,
            "BROKER_HEARTBEAT_MS": 500,
        }
        text = (HERE / "kafka_server.properties").read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        overrides = {"broker.rack": f"rack-{i}"} | self.overrides | self._door_properties(text, i)
        text += "".join(f"{name}={value}\n" for name, value in overrides.items())
        self._config(i).write_text(text, encoding="utf-8")

    def _door_properties(self, text: str, node: int) -> dict[str, str]:
        if not self.doors:
            return {}
        told, kept = [], []
        for number, ports in enumerate(self.doors):
            outside, inside = ports[node - 1]
            told.append(f"DOOR{number}://127.0.0.1:{outside}")
            kept.append(f"DOOR{number}://127.0.0.1:{inside}")
        given = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        protocols = [f"DOOR{number}:PLAINTEXT" for number in range(len(self.doors))]
        more = {"listeners": kept, "advertised.listeners": told, "listener.security.protocol.map": protocols}
        return {name: ",".join([given[name], *values]) for name, values in more.items()}

    def _java(self, main: str, args: Sequence[str], heap: str) -> list[str]:
        with_us = [shutil.which("setpriv"), "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        return [
            *(part for part in with_us if part),
            "java",
            "-Xms64m",
            f"-Xmx{heap}",
            *JAVA_FLAGS,
            *self.jvm,
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={self.log_level}",
            "-cp",
            f"{self.jars}/*",
            main,
            *args,
        ]

    def _format(self, i: int) -> subprocess.Popen[bytes]:
        args = ["format", "-t", self.cluster_id, "-c", str(self._config(i))]
        with (self.root / "format.log").open("ab") as log:
            command = self._java("kafka.tools.StorageTool", args, "128m")
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _spawn(self, i: int) -> None:
        with (self.root / f"node{i}.log").open("ab") as log:
            self.processes[i] = subprocess.Popen(
                self._java("kafka.Kafka", [str(self._config(i))], self.heap),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "LOG_DIR": str(self.root)},
            )


def main() -> None:
    """Start a cluster by hand and say where it listens."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers.kafka")
    parser.add_argument("brokers", nargs="?", type=int, default=1)
    parser.add_argument("--hold", action="store_true", help="keep it until Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, options.brokers) as kafka:
        took = {name: round(s, 2) for name, s in kafka.timings_s.items()}
        print(kafka.bootstrap, took, "MiB", [round(kafka.rss_mib(i)) for i in kafka.processes], flush=True)
        if options.hold:
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()


if __name__ == "__main__":
    main()
