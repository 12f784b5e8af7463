"""Series in Redis beside plain RedisTimeSeries, on the same servers in the same run: ``python -m benchmarks.storage``.

Ratios are ours ÷ the rival's, medians of several rounds. The rival is what one would write by hand: ``TS.MADD`` per
topic in one pipeline, ``TS.MRANGE`` a day at a time, through redis-py with hiredis. What the rival would need hours for
it does on fewer days, and its cost counts by the sample; the figures say on how many.

Each part (``--only``) stands for itself and keeps its figures in the result file, so that a long run may be made in
pieces.
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
BACKFILLED = 1
"""Partitions of the comparison of backfills; each costs the server seconds in the slow way."""
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


def reading(
    url: str, client: redis.Redis, partitions: int, days: int, rival_days: int, rounds: int
) -> dict[str, float]:
    """Weeks of one topic into numpy: sealed days beside TS.MRANGE, with what other clients wait meanwhile.

    The rival reads the newest ``rival_days`` of them; costs are compared by the sample.
    """
    values = arrivals(partitions, days)
    cells = Cells(DAY0 * STEPS, values, np.ones(values.shape, dtype=np.bool_))
    key = SeriesKey("weeks", "arrivals")
    split = (days - rival_days) * STEPS
    with closing(open_store(url, "bench", layout="rows")) as sealed_only:
        for day in range(0, split, 7 * STEPS):
            part = slice(day, min(day + 7 * STEPS, split))
            sealed_only.backfill(key, Cells(cells.first_index + day, values[:, part], cells.known[:, part]))
    with closing(open_store(url, "bench", layout="timeseries")) as native:
        native.backfill(key, Cells(cells.first_index + split, values[:, split:], cells.known[:, split:]))
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
    with closing(open_store(url, "bench", layout="rows")) as store:
        for _ in range(rounds):
            client.slowlog_reset()
            with measured(client) as cost:
                read = store.read(key, cells.first_index, cells.end_index)
            sealed.append(cost)
            sealed_stalls.append(stall_us())
            assert np.array_equal(read.values, values)
            out = np.zeros(values.shape, dtype=np.int64)
            with measured(client) as cost:
                for day in range(days - rival_days, days):
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
            assert np.array_equal(out[:, split:], values[:, split:])
    client.config_set("slowlog-log-slower-than", 10_000)
    median, more = statistics.median, days / rival_days
    return {
        "ts_bytes_per_sample": ts_bytes,
        "sealed_bytes_per_sample": sealed_bytes,
        "sealed_vs_mrange_wall": median(c.wall_s for c in sealed) / (more * median(c.wall_s for c in mrange)),
        "sealed_vs_mrange_server_cpu": sum(c.server_cpu_s for c in sealed)
        / (more * sum(c.server_cpu_s for c in mrange)),
        "longest_stall_vs_mrange": median(sealed_stalls) / median(mrange_stalls),
        "sealed_read_wall_s": median(c.wall_s for c in sealed),
        "mrange_read_wall_s": median(c.wall_s for c in mrange),
        "read_partitions": partitions,
        "sealed_read_days": days,
        "mrange_read_days": rival_days,
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


def backfill(url: str, client: redis.Redis, newer_days: int) -> tuple[float, float]:
    """Two weeks of history behind some days that are there: beside the series and swapped, or into it.

    Returns the server's CPU time of the former over that of the latter, where the series is like ours (small chunks),
    and where it is as ``TS.CREATE`` makes it.
    """
    values = arrivals(BACKFILLED, 14 + newer_days, seed=7)
    known = np.ones(values.shape, dtype=np.bool_)
    split = 14 * STEPS
    older = Cells(DAY0 * STEPS, values[:, :split], known[:, :split])
    newer = Cells((DAY0 + 14) * STEPS, values[:, split:], known[:, split:])
    key = SeriesKey("late", "arrivals")
    with closing(open_store(url, f"draft-{newer_days}", layout="timeseries")) as store:
        store.backfill(key, newer)
        with measured(client) as draft:
            store.backfill(key, older)
    costs = []
    for chunk in ((), ("CHUNK_SIZE", 1024))[::-1]:
        names = [f"live-{newer_days}-{len(chunk)}-{p}" for p in range(BACKFILLED)]
        for name in names:
            client.execute_command("TS.CREATE", name, "DUPLICATE_POLICY", "LAST", *chunk)
        _add(client, names, newer)
        with measured(client) as live:
            _add(client, names, older)
        costs.append(draft.server_cpu_s / live.server_cpu_s)
    return costs[0], costs[1]


def _add(client: redis.Redis, names: list[str], cells: Cells) -> None:
    for p, name in enumerate(names):
        for start in range(0, cells.steps, 2000):
            words: list[Any] = []
            for i, value in enumerate(cells.values[p, start : start + 2000].tolist(), cells.first_index + start):
                words += (name, i * 60_000, value)
            client.execute_command("TS.MADD", *words)


def killed(folder: Path, times: int) -> dict[str, float]:
    """Kill the server amid ticks; count acknowledged ticks that are gone afterwards."""
    lost = acknowledged = 0
    key = SeriesKey("orders", "arrivals")
    with EmbeddedServer(folder) as server, closing(open_store(server.url, "kill")) as store:
        index = DAY0 * STEPS
        for _ in range(times):
            taken: list[int] = []
            is_killed = False
            end = time.monotonic() + 0.3
            while time.monotonic() < end or not is_killed:
                with suppress(StoreUnavailable):
                    store.append([Tick("orders", 60, index, {key: (np.array([index]), np.array([True]))})])
                    taken.append(index)
                index += 1
                if len(taken) >= 50 and not is_killed:
                    with suppress(ProcessLookupError):  # the one killed before is still being replaced
                        os.kill(server.pid, signal.SIGKILL)
                        is_killed = True
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


PARTS = ("ticks", "open_day", "backfill", "reading", "killed", "first_write")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--days", type=int, default=56, help="days read from sealed blocks; 56 is eight weeks")
    parser.add_argument("--rival-days", type=int, default=2, help="days read by TS.MRANGE")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to run; the others keep their figures")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "storage.json")
    args = parser.parse_args()
    parts = args.only or PARTS
    kept: dict[str, Any] = json.loads(args.out.read_text()) if args.only and args.out.exists() else {}
    figures: dict[str, float] = {k: v for k, v in kept.items() if isinstance(v, int | float)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with timeseries_server(folder / "server") as server, server.client() as client:
            about = client.info("server")
            if "ticks" in parts:
                with closing(open_store(server.url, "bench", layout="rows")) as rows:
                    figures |= shown(tick_costs(rows, client, max(args.rounds * 4, 10)))
                client.flushall()
            if "open_day" in parts:
                figures |= shown(open_day(server.url, args.partitions, args.rounds))
                client.flushall()
            if "backfill" in parts:
                for name_of, newer_days in (("", 1), ("_with_as_much_newer", 14)):
                    ratios = [backfill(server.url, client, newer_days) for _ in _flushed(client, 3)]
                    small, default = (statistics.median(some) for some in zip(*ratios, strict=True))
                    figures |= shown(
                        {
                            f"backfill_draft_vs_live_server_cpu{name_of}": small,
                            f"backfill_draft_vs_live_of_default_chunks_server_cpu{name_of}": default,
                        }
                    )
            if "reading" in parts:
                client.flushall()
                figures |= shown(reading(server.url, client, args.partitions, args.days, args.rival_days, args.rounds))
        if "killed" in parts:
            figures |= shown(killed(folder / "killed", 6))
        if "first_write" in parts:
            figures |= shown(first_write(folder / "first", args.rounds))
    machine = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "command": f"python -m benchmarks.storage {' '.join(sys.argv[1:])}".strip(),
        "at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    report = {
        **{k: round(float(v), 5) for k, v in figures.items()},
        "goals": {k: round(v, 5) for k, v in GOALS.items()},
        "met": {k: k in figures and figures[k] <= goal for k, goal in GOALS.items()},
        **machine,
        "parts": {**kept.get("parts", {}), **dict.fromkeys(parts, machine)},
        "versions": {
            "python": platform.python_version(),
            "valkey": about.get("valkey_version"),
            "redistimeseries": "1.12",
            **{name: version(name) for name in ("redis", "hiredis", "numpy")},
        },
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    for key, goal in GOALS.items():
        have = figures.get(key, float("nan"))
        print(f"{key:38} {have:>10.4g}   goal ≤ {goal:<8.4g} {'met' if have <= goal else 'MISSED'}")
    others = {k: v for k, v in figures.items() if k not in GOALS}
    print("\n" + "  ".join(f"{k} {v:.4g}" for k, v in others.items()))


def _flushed(client: redis.Redis, times: int) -> Iterator[int]:
    for n in range(times):
        client.flushall()
        yield n


if __name__ == "__main__":
    main()
