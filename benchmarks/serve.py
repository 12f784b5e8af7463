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


def scaler_ms(calls: int = 3000) -> float:
    """Return the p99 of KEDA's GetMetrics over gRPC on loopback, in milliseconds; 50 groups are posted."""
    import grpc

    from balancer.actuators.board import ScalerBoard
    from balancer.actuators.keda import externalscaler_pb2 as pb
    from balancer.actuators.keda import externalscaler_pb2_grpc as rpc
    from balancer.actuators.keda.server import serve_scaler
    from forecaster.topics import GroupId

    board = ScalerBoard()
    for n in range(GROUPS):
        board.scale(GroupId(f"group-{n}"), n, datetime.now(UTC))
    server, port = serve_scaler(board, lambda: datetime.now(UTC), "127.0.0.1:0")
    waits = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = rpc.ExternalScalerStub(channel)
        for n in range(calls):
            ref = pb.ScaledObjectRef(name="so", scalerMetadata={"group": f"group-{n % GROUPS}"})
            began = time.perf_counter()
            stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref, metricName="headway-replicas"))
            waits.append(time.perf_counter() - began)
    server.stop(0).wait()
    return float(np.quantile(waits[100:], 0.99)) * 1000


def tick_ms(ticks: int = 300) -> dict[str, float]:
    """Return how long a control tick of a group of 64 partitions takes, its log in a real store included (ms)."""
    import tempfile

    from balancer.actuators.memory import MemoryActuator
    from balancer.control import ControlLoop
    from balancer.group import GroupSnapshot, Member, PartitionState
    from balancer.plans.redis import RedisPlanStore
    from balancer.policy import ScalingPolicy
    from forecaster.forecast import Forecast, Rung
    from forecaster.stores.embedded import EmbeddedServer
    from forecaster.topics import GroupId, TopicPartition

    rng, group, levels = np.random.default_rng(0), GroupId("group"), (0.5, 0.8, 0.9, 0.95, 0.99)
    began, minute = datetime(2026, 1, 5, 9, tzinfo=UTC), timedelta(minutes=1)
    rates = np.sort(rng.gamma(4.0, 20.0, (PARTITIONS, 1440, len(levels))), axis=2)
    owned = tuple(TopicPartition("t", p) for p in range(PARTITIONS))
    target = MemoryActuator({group: 8})

    class Seen:
        at = began

        def observe(self, _: GroupId) -> GroupSnapshot:
            members = tuple(Member(f"m{m}", owned[m :: (target.current(group) or 1)]) for m in range(8))
            states = {tp: PartitionState(5, float(rng.gamma(4.0, 20.0))) for tp in owned}
            return GroupSnapshot(group, self.at, target.current(group), members, states)

        def close(self) -> None:
            pass

    seen = Seen()

    def forecast(_: GroupId, now: datetime) -> Forecast:
        origin, total = now.replace(second=0), rates.sum(axis=0)
        return Forecast("t", origin, minute, tuple(range(PARTITIONS)), levels, rates, total, "b", Rung.OWN_MODEL)

    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        plans = RedisPlanStore(server.url, "bench")
        token = plans.lead(group, "bench", timedelta(hours=1))
        assert token is not None
        policy = ScalingPolicy(capacity_per_member=800.0, lead_time=2 * minute, max_replicas=PARTITIONS)
        loop = ControlLoop(group, seen, forecast, plans, target, policy)
        waits = []
        for n in range(ticks):
            seen.at = began + n * timedelta(seconds=15)
            start = time.perf_counter()
            loop.tick(seen.at, token)
            waits.append(time.perf_counter() - start)
        plans.close()
    return {f"tick_p{q:g}_ms": round(float(np.quantile(waits, q / 100)) * 1000, 2) for q in (50, 99)}


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
    scaler, tick = scaler_ms(), tick_ms()
    print(f"scaler p99 {scaler:.2f} ms  " + "  ".join(f"{k} {v}" for k, v in tick.items()))
    for name, figures in (("serialised once a tick", ours), ("serialised per request", rival)):
        print(f"{name:<24}" + "  ".join(f"{k} {v}" for k, v in figures.items()))
    RESULT.parent.mkdir(exist_ok=True)
    document = {
        **ours,
        **tick,
        "scaler_p99_ms": round(scaler, 3),
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
