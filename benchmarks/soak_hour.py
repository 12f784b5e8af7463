"""One real hour of ``headway serve``: broker, workers and readers, and a broker that goes away.

Three groups on a real broker: ``orders`` acts on worker processes of its own under a wave of a few minutes, ``mails``
has two weeks of history and an ordinary consumer, ``audits`` is only looked at. Somebody has the page open all the
time, others look in. Memory, descriptors, sockets, threads, children and keys are measured every half-minute.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import psutil
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.kafka import Kafka, free_ports
from tests.peers.redis import Server, lease_server

ROOT = Path(__file__).resolve().parent.parent
TOPICS = {"orders": 6, "mails": 4, "audits": 4}
WAVE_S, BROKER_AWAY_S, LOOK_S = 600.0, 20.0, 30.0
WARM_SHARE = 1 / 4
"""Of the run: caches fill, first forecasts are made, the broker goes away and comes back."""
APP = "def handle(record):\n    return None\n"
SETTINGS = """
state = "{folder}/state"
[store]
url = "{store}"
[kafka]
bootstrap_servers = "{kafka}"
[api]
port = {port}
[jobs]
act_every = "5s"
retrain = "*/15 * * * *"
seal = "*/10 * * * *"
prune = "*/20 * * * *"
[models]
path = "{folder}/models"
[groups.orders]
topics = ["orders"]
mode = "act"
assignment = "planned"
step = "10s"
capacity_per_member = 40.0
start_time = "10s"
min_replicas = 1
max_replicas = 3
rescales_per_day = 500
moves_per_hour = 1000
[groups.orders.actuator]
kind = "process"
command = ["{python}", "-m", "headway", "worker", "--group", "orders", "--topics", "orders",
           "--handler", "app:handle", "--config", "{folder}/headway.toml"]
[groups.mails]
topics = ["mails"]
mode = "shadow"
capacity_per_member = 20.0
max_replicas = 4
[groups.audits]
topics = ["audits"]
step = "10s"
"""


class Load(threading.Thread):
    """Produces to all topics, and consumes ``mails`` and ``audits`` as an ordinary application would."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.over, self.sent = bootstrap, threading.Event(), Counter[str]()

    def run(self) -> None:
        """Go on until told to end."""
        producer = ck.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, "logger": _silent()})
        consumers = []
        for group in ("mails", "audits"):
            properties = {"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
            consumers.append(ck.Consumer(properties | {"logger": _silent()}))
            consumers[-1].subscribe([group])
        began, owed = time.monotonic(), dict.fromkeys(TOPICS, 0.0)
        while not self.over.wait(0.2):
            wave = 0.5 + 0.5 * math.sin(2 * math.pi * (time.monotonic() - began) / WAVE_S)
            for topic, rate in {"orders": 20 + 70 * wave, "mails": 15.0, "audits": 10.0}.items():
                owed[topic] += rate * 0.2
                for _ in range(int(owed[topic])):
                    with suppress(BufferError):
                        producer.produce(topic, b"x" * 100)
                        self.sent[topic] += 1
                owed[topic] %= 1
            producer.poll(0)
            for consumer in consumers:
                consumer.consume(200, 0.0)
        producer.flush(10)
        for consumer in consumers:
            consumer.close()


class Readers(threading.Thread):
    """Has the stream of events open, and asks for what the page asks for."""

    def __init__(self, base: str) -> None:
        super().__init__(daemon=True)
        self.base, self.over = base, threading.Event()
        self.answers, self.events, self.streams, self.waits = Counter[str](), 0, 0, list[float]()

    def run(self) -> None:
        """Go on until told to end; the stream is opened anew every minute, as by people who come and go."""
        threading.Thread(target=self._listen, daemon=True).start()
        paths = ["/", "/v1/overview", "/metrics", "/v1/jobs"]
        paths += [
            f"/v1/groups/{g}{rest}" for g in TOPICS for rest in ("", "/plan", "/forecast", "/series", "/timeline")
        ]
        number = 0
        while not self.over.wait(1.0):
            began = time.perf_counter()
            try:
                with urllib.request.urlopen(self.base + paths[number % len(paths)], timeout=30) as answer:
                    answer.read()
                    self.answers[str(answer.status)] += 1
                self.waits.append(time.perf_counter() - began)
            except urllib.error.HTTPError as error:
                self.answers[str(error.code)] += 1
            except OSError as error:
                self.answers[type(error).__name__] += 1
            number += 1

    def _listen(self) -> None:
        while not self.over.is_set():
            with suppress(OSError), urllib.request.urlopen(self.base + "/v1/events", timeout=30) as stream:
                self.streams += 1
                until = time.monotonic() + 60
                while time.monotonic() < until and not self.over.is_set():
                    self.events += stream.readline().startswith(b"event")


def _silent() -> Any:
    import logging

    log = logging.getLogger("load")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def write_history(path: Path) -> None:
    """Write two weeks of ``mails`` until an hour ago as a trace."""
    end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    lines = ["timestamp,series,value"]
    for minute in range(14 * 1440):
        count = int(225 + 120 * math.sin(2 * math.pi * minute / 1440))
        at = (end - timedelta(minutes=14 * 1440 - minute)).isoformat()
        lines += [f"{at},{partition},{count + partition}" for partition in range(TOPICS["mails"])]
    path.write_text("\n".join(lines) + "\n")


def look(serve: psutil.Process, store: redis.Redis) -> dict[str, Any]:
    """Measure everything that might grow."""
    with serve.oneshot():
        sizes: dict[str, Any] = {
            "rss_mb": serve.memory_info().rss / 2**20,
            "descriptors": serve.num_fds(),
            "sockets": len(serve.net_connections("all")),
            "threads": serve.num_threads(),
            "cpu_s": sum(serve.cpu_times()[:2]),
        }
    workers, others = [], 0
    for child in serve.children(recursive=True):
        with suppress(psutil.Error):
            if "worker" in child.cmdline():
                workers.append((child.create_time(), child.memory_info().rss / 2**20, child.num_fds()))
            else:
                others += 1
    oldest = min(workers, default=(0.0, 0.0, 0))
    keys = Counter(key.split(b":")[1].decode() for key in store.scan_iter("*", 1000))
    info = store.info("memory")
    return sizes | {
        "workers": len(workers),
        "oldest_worker_rss_mb": oldest[1],
        "oldest_worker_descriptors": oldest[2],
        "other_children": others,
        "keys": dict(sorted(keys.items())),
        "store_mb": info["used_memory"] / 2**20,
    }


def run(seconds: float) -> dict[str, Any]:
    """Run for that long; return what was measured."""
    (port,) = free_ports(1)
    base = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as name:
        folder = Path(name)
        kafka, server = (
            Kafka(folder / "kafka", heap="256m").start(),
            lease_server(folder / "store", durable=True).start(),
        )
        errors = (folder / "serve.err").open("w+")
        serve = None
        try:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            made = admin.create_topics([NewTopic(topic, count, 1) for topic, count in TOPICS.items()])
            for future in made.values():
                future.result(30)
            (folder / "app.py").write_text(APP)
            more = {"PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1"}
            fields = {"folder": folder, "kafka": kafka.bootstrap, "port": port, "python": sys.executable}
            fields["store"] = server.url
            (folder / "headway.toml").write_text(SETTINGS.format(**fields))
            write_history(folder / "mails.csv")
            ingest = [sys.executable, "-m", "headway", "ingest", "--input", "mails.csv", "--topic", "mails"]
            subprocess.run([*ingest, "--config", "headway.toml"], cwd=folder, check=True, env=os.environ | more)
            load = Load(kafka.bootstrap)
            load.start()
            command = [sys.executable, "-m", "headway", "serve", "--config", str(folder / "headway.toml")]
            serve = subprocess.Popen(command, cwd=folder, stdout=errors, stderr=errors, env=os.environ | more)
            return _watched(seconds, kafka, load, serve, base, server) | {"said": _last_lines(folder / "serve.err")}
        finally:
            if serve is not None and serve.poll() is None:
                serve.kill()
                serve.wait()
            kafka.stop()
            server.stop()
            errors.close()


def _watched(
    seconds: float, kafka: Kafka, load: Load, serve: subprocess.Popen[bytes], base: str, server: Server
) -> dict[str, Any]:
    _until(lambda: urllib.request.urlopen(base + "/readyz", timeout=5).status == 200, serve)
    readers, process, store = Readers(base), psutil.Process(serve.pid), server.client()
    readers.start()
    began, away, looks = time.monotonic(), False, []
    while (past := time.monotonic() - began) < seconds:
        assert serve.poll() is None, "headway serve ended by itself"
        if not away and past > seconds / 8:  # the broker goes away once, and comes back
            away = True
            kafka.kill(1)
            time.sleep(min(BROKER_AWAY_S, seconds / 10))
            kafka.restart(1)
        looks.append({"at_s": round(past, 1), **look(process, store)})
        say(f"{past:5.0f} s  " + "  ".join(f"{k} {v:.4g}" for k, v in looks[-1].items() if not isinstance(v, dict)))
        time.sleep(min(LOOK_S, seconds / 60))
    groups = {}
    for group in TOPICS:
        with urllib.request.urlopen(f"{base}/v1/groups/{group}", timeout=30) as answer:
            document = json.load(answer)
        groups[group] = {k: document[k] for k in ("state", "mode", "rung", "problems", "ages")}
    with urllib.request.urlopen(f"{base}/v1/jobs", timeout=30) as answer:
        jobs = json.load(answer)["jobs"]
    readers.over.set()
    load.over.set()
    ended = time.monotonic()
    children = process.children(recursive=True)
    commands = {p.pid: " ".join(p.cmdline()) for p in children}
    serve.send_signal(signal.SIGTERM)
    code = serve.wait(60)
    stopped_s = time.monotonic() - ended
    # a helper process of Python's own ends when it sees that its parent has gone: that takes an instant
    _, left = psutil.wait_procs(children, 10)
    load.join(20)
    return {
        "seconds": seconds,
        "looks": looks,
        "growth": growth(looks),
        "groups": groups,
        "failed_jobs": [j for j in jobs if j["last"] is not None and not j["last"]["ok"]],
        "sent": dict(load.sent),
        "answers": dict(readers.answers),
        "answer_ms_p50": 1000 * statistics.median(readers.waits or [0.0]),
        "events": readers.events,
        "streams": readers.streams,
        "exit_code": code,
        "stopped_s": stopped_s,
        "left_behind": len(left),
        "left_behind_commands": [commands[p.pid] for p in left],
    }


def growth(looks: list[dict[str, Any]]) -> dict[str, float]:
    """Return how much each size grew from the end of the warm-up to the end: medians of an eighth of the run each."""
    warm, span = int(len(looks) * WARM_SHARE), max(len(looks) // 8, 1)
    grown = {}
    for what in ("rss_mb", "descriptors", "sockets", "threads"):
        first, last = (statistics.median(at[what] for at in part) for part in (looks[warm:][:span], looks[-span:]))
        grown[what] = last / first - 1
    return grown


def _until(what: Any, serve: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert serve.poll() is None, "headway serve ended by itself"
        with suppress(OSError):
            if what():
                return
        time.sleep(0.3)
    raise TimeoutError(f"not within {seconds} s")


def _last_lines(path: Path, count: int = 40) -> list[str]:
    return path.read_text().splitlines()[-count:]


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)
