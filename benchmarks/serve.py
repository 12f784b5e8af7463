"""How fast the API answers, how much memory it takes, and what serialising once a tick is worth.

A server process with 50 groups x 64 partitions in memory; forecast (by topic) and plan are asked for over keep-alive
connections. The rival is the same server with every document serialised anew for each request.

    python -m benchmarks.serve [--seconds 5] [--connections 8]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import numpy as np

GROUPS, PARTITIONS = 50, 64
RESULT = Path(__file__).parent / "results" / "serve.json"


def serve(port: int, cached: bool) -> None:
    """Run the server; the parent ends it."""
    import uvicorn

    from balancer.group import GroupSnapshot, Member, PartitionState
    from balancer.plan import Bound, PlannedStep, ScalingPlan
    from balancer.plans.memory import MemoryPlanStore
    from forecaster.forecast import Forecast, Rung
    from forecaster.stores.memory import MemorySeriesStore
    from forecaster.topics import GroupId, TopicPartition
    from headway.api.server import create_app
    from headway.application import Application
    from headway.audit import Audit
    from headway.board import Board
    from headway.metrics import Metrics
    from headway.operations import Operations
    from headway.settings import Settings

    now, levels = datetime(2026, 1, 5, 9, tzinfo=UTC), (0.5, 0.9, 0.95, 0.99)
    names = [f"group-{n}" for n in range(GROUPS)]
    settings = Settings(groups={name: {"topics": [name]} for name in names})
    plans, board = MemoryPlanStore(), Board()
    if not cached:
        board.rendered = lambda name, key, build: json.dumps(build(board.get(name)), default=str).encode()
    rng = np.random.default_rng(0)
    for name in names:
        rates = np.sort(rng.gamma(4.0, 20.0, (PARTITIONS, 360, len(levels))), axis=2)
        step, numbers, total = timedelta(minutes=1), tuple(range(PARTITIONS)), rates.sum(axis=0)
        forecast = Forecast(name, now, step, numbers, levels, rates, total, "b", Rung.OWN_MODEL)
        steps = tuple(PlannedStep(now + timedelta(minutes=20 * k), 3 + k % 5, 100.0) for k in range(18))
        plan = ScalingPlan(GroupId(name), now, steps, Bound(), ("because",))
        partitions = {TopicPartition(name, p): PartitionState(3, 20.0) for p in range(PARTITIONS)}
        snapshot = GroupSnapshot(GroupId(name), now, 3, (Member("a"), Member("b"), Member("c")), partitions)
        view = board.add(name, (name,))
        view.forecasts, view.plan, view.snapshot, view.at = {name: forecast}, plan, snapshot, {"plan": now}
    app = Application(settings, MemorySeriesStore(), plans, board, Operations(plans, Audit()), Metrics(), lambda: now)
    uvicorn.run(create_app(app), port=port, log_level="error", lifespan="off", access_log=False)


async def _ask(port: int, paths: list[str], until: float, waits: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    n = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(f"GET {paths[n % len(paths)]} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head[:80]
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        waits.append(time.perf_counter() - began)
        n += 1
    writer.close()


async def _measure(port: int, seconds: float, connections: int) -> tuple[float, float]:
    paths = [f"/v1/groups/group-{n}/{what}" for n in range(GROUPS) for what in ("forecast?by=topic", "plan")]
    for warm in (0.5, seconds):
        waits: list[float] = []
        began = time.perf_counter()
        until = began + warm
        shifted = [paths[k * 7 :] + paths[: k * 7] for k in range(connections)]
        await asyncio.gather(*(_ask(port, p, until, waits) for p in shifted))
        took = time.perf_counter() - began
    return len(waits) / took, float(np.quantile(waits, 0.99)) * 1000


def run(cached: bool, seconds: float, connections: int) -> dict[str, float]:
    """Start a server, measure it, and end it."""
    import socket
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.serve", "--serve", str(port), *(() if cached else ("--uncached",))]
    server = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        idle = _rss_mb(server.pid)
        rate, p99 = asyncio.run(_measure(port, seconds, connections))
        return {"requests_per_s": round(rate, 1), "p99_ms": round(p99, 2), "rss_mb": round(idle, 1)}
    finally:
        server.terminate()
        server.wait(10)


def _rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> None:
    """Measure, print a table, and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--serve", type=int)
    parser.add_argument("--uncached", action="store_true")
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, not chosen.uncached)
        return
    ours = run(True, chosen.seconds, chosen.connections)
    rival = run(False, chosen.seconds, chosen.connections)
    for name, figures in (("serialised once a tick", ours), ("serialised per request", rival)):
        print(f"{name:<24}" + "  ".join(f"{k} {v}" for k, v in figures.items()))
    RESULT.parent.mkdir(exist_ok=True)
    document = {
        **ours,
        "per_request": rival,
        "groups": GROUPS,
        "partitions": PARTITIONS,
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg()},
        "versions": {name: version(name) for name in ("fastapi", "uvicorn", "numpy")},
        "python": platform.python_version(),
        "command": "python -m benchmarks.serve",
    }
    RESULT.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
