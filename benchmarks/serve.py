"""How fast the API answers, how much memory it takes, and what serialising once a tick is worth.

A server process with 50 groups x 64 partitions in memory; forecast (by topic) and plan are asked for over keep-alive
connections. The rival is the same server with every document serialised anew for each request.

The idle figure is that of ``headway serve`` itself: the resident memory of its process with as many groups, ``--hours``
of history each, when every one has its forecast and its plan: the median of a minute, and the most within it, when
forecasts are made.

    python -m benchmarks.serve [--part api|scaler|tick|idle] [--seconds 5] [--connections 8]
        [--hours 48] [--groups 50]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import RESULTS, keep_figures

GROUPS, PARTITIONS = 50, 64


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
    from headway.configuration.settings import Settings
    from headway.operation.audit import Audit
    from headway.operation.operations import Operations
    from headway.status.board import Board
    from headway.status.metrics import Metrics

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
        view.forecasts[name] = forecast
        view.plan, view.snapshot, view.at = plan, snapshot, {"plan": now}
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
    port = _free_port()
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


def idle_mb(groups: int = GROUPS, hours: int = 48) -> dict[str, Any]:
    """Return the resident memory of ``headway serve`` (MB), its store apart, once every group has been planned."""
    from forecaster.stores.base import Cells, SeriesKey
    from forecaster.stores.embedded import EmbeddedServer
    from forecaster.stores.opening import open_store

    names, port = [f"group-{n}" for n in range(groups)], _free_port()
    end = int(time.time()) // 60
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "store") as server:
        sections = "".join(
            f'[groups.{name}]\ntopics = ["{name}"]\ncapacity_per_member = 800.0\nmax_replicas = 64\n' for name in names
        )
        config = Path(folder) / "headway.toml"
        config.write_text(
            f'state = "{folder}/state"\n[store]\nurl = "{server.url}"\n[models]\npath = "{folder}/models"\n{sections}'
        )
        store = open_store(server.url, "main")
        shape = (PARTITIONS, hours * 60)
        for name in names:
            counts = rng.poisson(80.0, shape).astype(np.int64)
            store.backfill(SeriesKey(name, "arrivals", None, 60), Cells(end - shape[1], counts, counts >= 0))
        store.close()
        command = [sys.executable, "-m", "headway", "serve", "--config", str(config)]
        environ = {**os.environ, "HEADWAY_API__PORT": str(port), "OMP_NUM_THREADS": "1"}
        began = time.monotonic()
        process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            planned = 0
            while planned < groups:
                if time.monotonic() - began > 240:
                    raise TimeoutError(f"{planned} of {groups} groups were planned within 240 s")
                time.sleep(1.0)
                with contextlib.suppress(OSError):
                    found = _get(port, "/v1/groups")["groups"]
                    planned = sum(g["replicas"]["planned"] is not None and "forecast" in g["ages"] for g in found)
            took = time.monotonic() - began
            seen = []
            for _ in range(65):  # a forecast of every group is within
                time.sleep(1.0)
                seen.append(_rss_mb(process.pid))
            low, high = (round(float(np.quantile(seen, q)), 1) for q in (0.5, 1.0))
            return {"idle_mb": low, "idle_peak_mb": high, "idle_hours": hours, "all_planned_s": round(took, 1)}
        finally:
            process.terminate()
            process.wait(40)


def _get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.load(answer)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def api(seconds: float, connections: int) -> dict[str, Any]:
    """Measure both servers."""
    return {**run(True, seconds, connections), "per_request": run(False, seconds, connections)}


def main() -> None:
    """Measure the parts, print them, and keep the result; parts that were not asked for keep their figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", action="append", choices=("api", "scaler", "tick", "idle"))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--serve", type=int)
    parser.add_argument("--uncached", action="store_true")
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, not chosen.uncached)
        return
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "api": lambda: api(chosen.seconds, chosen.connections),
        "scaler": lambda: {"scaler_p99_ms": round(scaler_ms(), 3)},
        "tick": tick_ms,
        "idle": lambda: idle_mb(chosen.groups, chosen.hours),
    }
    path = RESULTS / "serve.json"
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in chosen.part or parts:
        found = parts[name]()
        figures |= found
        print(name, "  ".join(f"{k} {v}" for k, v in found.items()), flush=True)
        figures |= {"groups": GROUPS, "partitions": PARTITIONS}
        keep_figures("serve", figures, ("fastapi", "uvicorn", "numpy"))


if __name__ == "__main__":
    main()
