"""Series in Redis beside plain RedisTimeSeries, on the same servers in the same run: ``python -m benchmarks.storage``.

Ratios are ours ÷ the rival's, medians of several rounds. The rival is what one would write by hand: ``TS.MADD`` per
topic in one pipeline, ``TS.MRANGE`` a day at a time, through redis-py with hiredis.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import redis

from forecaster.errors import StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.opening import open_store
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_store import RedisSeriesStore
from tests.peers.timeseries import timeseries_server

DAY0 = 20_400  # a day in 2025, so that nothing lies in the future
STEPS = 1440
METRICS = (("arrivals", None), ("end_offset", None), ("lag", "billing"), ("committed", "billing"))
GOALS = {
    "rows_tick_vs_madd_wall": 1 / 15,
    "rows_tick_vs_madd_server_cpu": 1 / 20,
    "aof_bytes_vs_madd": 1 / 10,
    "ts_bytes_per_sample": 2.1,
    "sealed_bytes_per_sample": 1.5,
    "sealed_vs_mrange_wall": 1 / 20,
    "sealed_vs_mrange_server_cpu": 1 / 50,
    "open_day_rows_vs_ts_wall": 1 / 30,
    "longest_stall_vs_mrange": 1 / 10,
    "backfill_draft_vs_live_server_cpu": 1 / 20,
    "lost_acknowledged": 0,
    "embedded_first_write_s": 0.5,
}


@dataclass(slots=True)
class Cost:
    """What something cost: our wall time, the server's CPU time, bytes of its append-only file."""

    wall_s: float = 0.0
    server_cpu_s: float = 0.0
    aof_bytes: int = 0


@contextmanager
def measured(client: redis.Redis) -> Iterator[Cost]:
    def server() -> tuple[float, int]:
        cpu, kept = client.info("cpu"), client.info("persistence")
        return cpu["used_cpu_user"] + cpu["used_cpu_sys"], int(kept.get("aof_current_size", 0))

    cost = Cost()
    cpu, size = server()
    began = time.perf_counter()
    yield cost
    cost.wall_s = time.perf_counter() - began
    cpu_after, size_after = server()
    cost.server_cpu_s, cost.aof_bytes = cpu_after - cpu, size_after - size


def arrivals(partitions: int, days: int, seed: int = 0) -> np.ndarray:
    """Return records a minute, shape (partitions, steps): a daily wave, levels over a decade, Poisson noise."""
    rng = np.random.default_rng(seed)
    level = rng.lognormal(3.0, 0.8, (partitions, 1))
    wave = 1 + 0.7 * np.sin(2 * np.pi * np.arange(days * STEPS) / STEPS - rng.uniform(0, 1, (partitions, 1)))
    return rng.poisson(level * wave).astype(np.int64)


def tick_costs(rows: RedisSeriesStore, client: redis.Redis, rounds: int) -> dict[str, float]:
    """One tick of 100 topics × 100 partitions × 4 metrics: our rows beside TS.MADD."""
    keys = RedisKeys("bench")
    rng = np.random.default_rng(1)
    known = np.ones(100, dtype=np.bool_)
    topics = [f"topic-{n}" for n in range(100)]
    series = {t: [SeriesKey(t, metric, group) for metric, group in METRICS] for t in topics}
    names = {t: [keys.timeseries(k, p) for k in series[t] for p in range(100)] for t in topics}
    pipe = client.pipeline(transaction=False)
    for t in topics:
        for name in names[t]:
            pipe.execute_command("TS.CREATE", name, "RETENTION", 10**10, "CHUNK_SIZE", 1024, "DUPLICATE_POLICY", "LAST")
        pipe.execute()
    base = rng.integers(10**6, 10**8, (100, 1, 100))
    ours, madd = [], []
    for n in range(rounds + 2):
        index = DAY0 * STEPS + n
        small = rng.poisson(60, (100, 2, 100))
        base = base + small[:, :1]
        values = np.stack([small[:, 0], base[:, 0], small[:, 1], base[:, 0] - small[:, 1]], axis=1).astype(np.int64)
        ticks = [
            Tick(t, 60, index, {k: (values[i, m], known) for m, k in enumerate(series[t])}, "id")
            for i, t in enumerate(topics)
        ]
        with measured(client) as cost:
            rows.append(ticks)
        ours.append(cost)
        with measured(client) as cost:
            pipe = client.pipeline(transaction=False)
            for i, t in enumerate(topics):
                words: list[Any] = []
                for name, value in zip(names[t], values[i].ravel().tolist(), strict=True):
                    words += (name, index * 60_000, value)
                pipe.execute_command("TS.MADD", *words)
            pipe.execute()
        madd.append(cost)
    ours, madd = ours[2:], madd[2:]  # the first creates the blocks, the second is warm-up

    def ratio(of: Callable[[Cost], float]) -> float:
        return statistics.median(map(of, ours)) / statistics.median(map(of, madd))

    return {
        "rows_tick_vs_madd_wall": ratio(lambda c: c.wall_s),
        "rows_tick_vs_madd_server_cpu": sum(c.server_cpu_s for c in ours) / sum(c.server_cpu_s for c in madd),
        "aof_bytes_vs_madd": ratio(lambda c: c.aof_bytes),
        "rows_tick_wall_s": statistics.median(c.wall_s for c in ours),
        "madd_tick_wall_s": statistics.median(c.wall_s for c in madd),
    }


def reading(url: str, client: redis.Redis, partitions: int, days: int, rounds: int) -> dict[str, float]:
    """Weeks of one topic into numpy: sealed days beside TS.MRANGE, with what other clients wait meanwhile."""
    values = arrivals(partitions, days)
    cells = Cells(DAY0 * STEPS, values, np.ones(values.shape, dtype=np.bool_))
    key = SeriesKey("weeks", "arrivals")
    with closing(open_store(url, "bench", layout="timeseries")) as native:
        native.backfill(key, cells)
    names = [RedisKeys("bench").timeseries(key, p) for p in range(partitions)]
    infos = [client.execute_command("TS.INFO", name) for name in names[:: max(partitions // 20, 1)]]
    facts = [dict(zip(info[::2], info[1::2], strict=True)) for info in infos]
    ts_bytes = sum(f[b"memoryUsage"] for f in facts) / sum(f[b"totalSamples"] for f in facts)
    sealed_bytes = sum(len(client.get(RedisKeys("bench").day(key, DAY0 + d))) for d in range(days)) / values.size
    client.config_set("slowlog-log-slower-than", 0)
    client.config_set("slowlog-max-len", 10_000)

    def stall_us() -> int:
        found = [e["duration"] for e in client.slowlog_get(10_000) if not e["command"].startswith(b"SLOWLOG")]
        client.slowlog_reset()
        return int(max(found))

    sealed, mrange, sealed_stalls, mrange_stalls = [], [], [], []
    with closing(open_store(url, "bench", layout="timeseries")) as store:
        for _ in range(rounds):
            client.slowlog_reset()
            with measured(client) as cost:
                read = store.read(key, cells.first_index, cells.end_index)
            sealed.append(cost)
            sealed_stalls.append(stall_us())
            assert np.array_equal(read.values, values)
            out = np.zeros(values.shape, dtype=np.int64)
            with measured(client) as cost:
                for day in range(days):
                    start = (DAY0 + day) * 86_400_000
                    answer = client.execute_command(
                        "TS.MRANGE", start, start + 86_399_999, "WITHLABELS", "FILTER", "topic=weeks", "metric=arrivals"
                    )
                    for _, labels, samples in answer:
                        row = int(dict(labels)[b"partition"])
                        pairs = np.array(samples, dtype="S24").astype(np.float64)
                        at = (pairs[:, 0] // 60_000).astype(np.int64) - cells.first_index
                        out[row, at] = pairs[:, 1].astype(np.int64)
            mrange.append(cost)
            mrange_stalls.append(stall_us())
            assert np.array_equal(out, values)
    client.config_set("slowlog-log-slower-than", 10_000)
    median = statistics.median
    return {
        "ts_bytes_per_sample": ts_bytes,
        "sealed_bytes_per_sample": sealed_bytes,
        "sealed_vs_mrange_wall": median(c.wall_s for c in sealed) / median(c.wall_s for c in mrange),
        "sealed_vs_mrange_server_cpu": sum(c.server_cpu_s for c in sealed) / sum(c.server_cpu_s for c in mrange),
        "longest_stall_vs_mrange": median(sealed_stalls) / median(mrange_stalls),
        "sealed_read_wall_s": median(c.wall_s for c in sealed),
        "mrange_read_wall_s": median(c.wall_s for c in mrange),
        "read_days": days,
    }


def open_day(url: str, partitions: int, rounds: int) -> dict[str, float]:
    """The open day into numpy: rows beside our own reading of time series."""
    values = arrivals(partitions, 1, seed=5)
    known = np.ones(partitions, dtype=np.bool_)
    key = SeriesKey("today", "arrivals")
    walls: dict[str, list[float]] = {}
    for layout, cluster in (("rows", "open-rows"), ("timeseries", "open-ts")):
        with closing(open_store(url, cluster, layout=layout)) as store:
            for n in range(0, STEPS, 60):
                store.append(
                    [Tick("today", 60, DAY0 * STEPS + i, {key: (values[:, i], known)}) for i in range(n, n + 60)]
                )
            for _ in range(rounds):
                began = time.perf_counter()
                read = store.read(key, DAY0 * STEPS, (DAY0 + 1) * STEPS)
                walls.setdefault(layout, []).append(time.perf_counter() - began)
                assert np.array_equal(read.values, values)
    return {"open_day_rows_vs_ts_wall": statistics.median(walls["rows"]) / statistics.median(walls["timeseries"])}


def backfill(url: str, client: redis.Redis) -> dict[str, float]:
    """Two weeks of history behind two weeks that are there: beside the series and swapped, or into it."""
    values = arrivals(10, 28, seed=7)
    older = Cells(DAY0 * STEPS, values[:, : 14 * STEPS], np.ones((10, 14 * STEPS), dtype=np.bool_))
    newer = Cells((DAY0 + 14) * STEPS, values[:, 14 * STEPS :], np.ones((10, 14 * STEPS), dtype=np.bool_))
    key = SeriesKey("late", "arrivals")
    with closing(open_store(url, "draft", layout="timeseries")) as store:
        store.backfill(key, newer)
        with measured(client) as draft:
            store.backfill(key, older)
    with closing(open_store(url, "live", layout="timeseries")) as store:
        store.backfill(key, newer)
    with measured(client) as live:
        for p in range(10):
            name = RedisKeys("live").timeseries(key, p)
            for start in range(0, older.steps, 2000):
                words: list[Any] = []
                for i, value in enumerate(older.values[p, start : start + 2000].tolist(), older.first_index + start):
                    words += (name, i * 60_000, value)
                client.execute_command("TS.MADD", *words)
    return {"backfill_draft_vs_live_server_cpu": draft.server_cpu_s / live.server_cpu_s}


def killed(folder: Path, times: int) -> dict[str, float]:
    """Kill the server amid ticks; count acknowledged ticks that are gone afterwards."""
    lost = acknowledged = 0
    key = SeriesKey("orders", "arrivals")
    with EmbeddedServer(folder) as server, closing(open_store(server.url, "kill")) as store:
        index = DAY0 * STEPS
        for _ in range(times):
            taken: list[int] = []
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                with suppress(StoreUnavailable):
                    store.append([Tick("orders", 60, index, {key: (np.array([index]), np.array([True]))})])
                    taken.append(index)
                index += 1
                if len(taken) == 50:
                    os.kill(server.pid, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while True:
                try:
                    store.append([])
                    read = store.read(key, taken[0], taken[-1] + 1)
                    break
                except StoreUnavailable:
                    if time.monotonic() > deadline:
                        raise
            present = {i for i in taken if read.known[0, i - taken[0]] and read.values[0, i - taken[0]] == i}
            lost += len(taken) - len(present)
            acknowledged += len(taken)
    return {"lost_acknowledged": lost, "acknowledged": acknowledged, "kills": times}


def first_write(folder: Path, rounds: int) -> dict[str, float]:
    """From nothing to the first acknowledged tick on the embedded server."""
    key = SeriesKey("orders", "arrivals")
    took = []
    for n in range(rounds):
        began = time.perf_counter()
        with EmbeddedServer(folder / str(n)) as server, closing(open_store(server.url, "first")) as store:
            store.append([Tick("orders", 60, DAY0 * STEPS, {key: (np.array([1]), np.array([True]))})])
            took.append(time.perf_counter() - began)
    return {"embedded_first_write_s": statistics.median(took)}


def shown(figures: dict[str, float]) -> dict[str, float]:
    print(f"{time.process_time():7.1f} s  " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()), file=sys.stderr)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--days", type=int, default=56, help="days read by both sides; 56 is eight weeks")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "storage.json")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with timeseries_server(folder / "server") as server, server.client() as client:
            about = client.info("server")
            with closing(open_store(server.url, "bench", layout="rows")) as rows:
                figures |= shown(tick_costs(rows, client, max(args.rounds * 4, 10)))
            figures |= shown(open_day(server.url, args.partitions, args.rounds))
            figures |= shown(backfill(server.url, client))
            client.flushall()
            figures |= shown(reading(server.url, client, args.partitions, args.days, args.rounds))
        figures |= shown(killed(folder / "killed", 6))
        figures |= shown(first_write(folder / "first", args.rounds))
    report = {
        **{k: round(float(v), 5) for k, v in figures.items()},
        "goals": {k: round(v, 5) for k, v in GOALS.items()},
        "met": {k: figures[k] <= goal for k, goal in GOALS.items()},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "versions": {
            "python": platform.python_version(),
            "valkey": about.get("valkey_version"),
            "redistimeseries": "1.12",
            **{name: version(name) for name in ("redis", "hiredis", "numpy")},
        },
        "command": f"python -m benchmarks.storage {' '.join(sys.argv[1:])}".strip(),
        "at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    for key, goal in GOALS.items():
        print(f"{key:38} {figures[key]:>10.4g}   goal ≤ {goal:<8.4g} {'met' if figures[key] <= goal else 'MISSED'}")
    others = {k: v for k, v in figures.items() if k not in GOALS}
    print("\n" + "  ".join(f"{k} {v:.4g}" for k, v in others.items()))


if __name__ == "__main__":
    main()
