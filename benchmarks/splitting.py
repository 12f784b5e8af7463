"""Splitting on real Kafka: ``python -m benchmarks.splitting [--part switch|delay|producer|sketch|schedules ...]``.

switch: splits and merges under load; how long slots were held at the producers, and what other keys saw. delay: one
partition gets three times a member's capacity for a while, with and without splitting ahead. producer: records/s and
CPU beside confluent-kafka's own. sketch: size and recall. schedules: what ``python -m tests.splitting`` has counted.
Each part keeps its figures in ``benchmarks/results/splitting.json``; parts that are not run keep the old ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import numpy as np

from tests.chaos.bed import ROOT, until
from tests.peers.kafka import VERSION, Kafka
from tests.splitting.bed import Bed

RESULT = Path(__file__).parent / "results" / "splitting.json"


def quantiles(values: list[float]) -> dict[str, float]:
    """Return p50, p99 and maximum in milliseconds, and how many there were."""
    if not values:
        return {"n": 0}
    p50, p99 = (float(np.quantile(values, q)) for q in (0.5, 0.99))
    return {k: round(v * 1e3, 1) for k, v in (("p50", p50), ("p99", p99), ("max", max(values)))} | {"n": len(values)}


def switch(kafka: Kafka, rounds: int) -> dict[str, Any]:
    """Split and merge in turn; each producer says how long it held the slots."""
    effects: list[float] = []
    with Bed(kafka, partitions=2, groups=1) as bed:
        bed.planner()
        for instance in (1, 2):
            bed.worker(0, instance)
        for number in range(2):
            bed.producer(number, rate=150, keys=24)
        bed.flowing()
        spans: list[tuple[float, float, str, int]] = []
        for i in range(rounds):
            for kind in ("split", "merge"):
                began = time.time()
                ended = bed.wait(bed.request(kind, i % 2), 60)
                spans.append((began, time.time(), kind, i % 2))
                if ended.state == "done" and kind == "split":
                    effects.append(ended.seconds or 0.0)
                time.sleep(0.3)
        verdict, outputs = bed.finish()
        held = [h for n in range(2) for h in json.loads((bed.folder / f"p{n}.json").read_text())["holds"]]
        steps = [json.loads(line) for line in (bed.folder / "planner.steps").read_text().splitlines()]
    by_kind = _holds_by_kind(steps)
    others = _other_gaps(outputs, spans)
    calm = _other_gaps(outputs, [(end, end + 0.3, "", p) for _, end, _, p in spans])
    return {
        "switch_pause_ms": quantiles(held),
        "split_hold_ms": quantiles(by_kind["split"]),
        "merge_hold_ms": quantiles(by_kind["merge"]),
        "split_effect_s": {k: round(v / 1e3, 3) if k != "n" else v for k, v in quantiles(effects).items()},
        "other_keys_gap_ms": quantiles(others),
        "other_keys_gap_without_switch_ms": quantiles(calm),
        "switch_verdict": {"made": verdict.made, "lost": verdict.lost, "repeated": verdict.repeated},
    }


def _holds_by_kind(steps: list[Any]) -> dict[str, list[float]]:
    """Return STOP to START as committed, by kind."""
    since: dict[int, tuple[float, str]] = {}
    found: dict[str, list[float]] = {"split": [], "merge": []}
    for at, _, transitions in steps:
        holding = {n: kind for n, kind, phase, _, _ in transitions if phase in ("stopping", "fenced")}
        for number, kind in holding.items():
            since.setdefault(number, (at, kind))
        for number in set(since) - set(holding):
            began, kind = since.pop(number)
            found[kind].append(at - began)
    return found


def _other_gaps(outputs: dict[str, list[Any]], spans: list[tuple[float, float, str, int]]) -> list[float]:
    """Return, for each span and each key of another partition, the longest time between two records sent in it."""
    gaps = []
    for rows in outputs.values():
        for began, end, _, partition in spans:
            sent: dict[int, list[float]] = {}
            for row in rows:
                if row.partition == 1 - partition and began - 0.2 <= row.handled <= end + 0.2:
                    sent.setdefault(row.partition, []).append(row.handled)
            gaps += [max(np.diff(sorted(times))) for times in sent.values() if len(times) > 2]
    return [float(g) for g in gaps]


def delay(kafka: Kafka, seconds: float) -> dict[str, Any]:
    """One partition gets 3 × a member's capacity for ``seconds``; the same four members, without and with a split."""
    capacity, found = 120.0, {}
    weights = [10.0] * 6 + [1.0] * 6
    for name in ("unsplit", "split"):
        with Bed(kafka, partitions=2, groups=1, max_partitions=8) as bed:
            bed.planner()
            for instance in range(1, 5):
                bed.worker(0, instance, slow_s=1 / capacity, poll_records=20)
            keys = _keys_of(partition=0, count=12)
            peak_from = time.time() + 25
            profile = [[peak_from, 3 * capacity], [peak_from + seconds, 20.0]]
            bed.producer(0, rate=20, keys=12, names=keys, weights=weights, profile=profile, transaction_s=0.05)
            bed.flowing(5, 60)
            if name == "split":  # the forecast has said so an hour ago
                assert bed.wait(bed.request("split", 0, 4), 30).state == "done", bed.logs()
            time.sleep(max(0.0, peak_from + seconds + 2 - time.time()))
            until(lambda bed=bed: True, 1)
            if name == "split":
                merged = bed.wait(bed.request("merge", 0), 120)
                found["back_to_original"] = merged.state == "done" and not bed.table().lanes_of(0)  # type: ignore[union-attr]
            verdict, outputs = bed.finish(within_s=150)
            late = [r.handled - r.sent for rows in outputs.values() for r in rows if r.sent >= peak_from]
            found[name] = {"p99_s": round(float(np.quantile(late, 0.99)), 3), "lost": verdict.lost, "n": len(late)}
            found[name] |= {"repeated": verdict.repeated, "reordered": verdict.reordered}
    return {"delay": found, "p99_delay_gain": round(found["unsplit"]["p99_s"] / found["split"]["p99_s"], 1)}


def _keys_of(partition: int, count: int) -> list[str]:
    from balancer.routing.hashing import murmur2

    names = (f"key-{i}" for i in range(10_000))
    return [n for n in names if murmur2(n.encode()) % 2 == partition][:count]


def producer(kafka: Kafka, records: int, repeats: int) -> dict[str, Any]:
    """Send the same records with confluent-kafka's own producer and with the routed one, in turn."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from balancer.moves.routed_topic import RoutedTopic
    from balancer.moves.splitting import TopicLeader
    from balancer.routing.kafka import KafkaTableLog
    from balancer.routing.memory import MemoryRouteStore
    from balancer.routing.producer import RoutedProducer
    from balancer.routing.settings import RouteSettings

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("bench", 6, 1)])["bench"].result(30)
    store = MemoryRouteStore()
    TopicLeader(RoutedTopic(kafka.bootstrap, "bench"), KafkaTableLog(kafka.bootstrap), store, ["g"]).step()
    rng = np.random.default_rng(1)
    cumulative = np.cumsum(1 / np.arange(1, 1_000_001) ** 1.1)
    drawn = np.searchsorted(cumulative / cumulative[-1], rng.random(records))
    keys, value = [b"customer-%d" % k for k in drawn.tolist()], b"x" * 200
    common = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "partitioner": "murmur2_random"}

    def bare() -> Any:
        made = ck.Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"bare-{time.time()}", "log_level": 0, **common}
        )
        made.init_transactions(20)
        return made

    def routed() -> Any:
        settings = RouteSettings(
            name="bench", topics=("bench",), bootstrap_servers=kafka.bootstrap, properties={"log_level": 0, **common}
        )
        made = RoutedProducer(settings, store=store, tables=KafkaTableLog(kafka.bootstrap))
        made.init_transactions(20)
        return made

    figures: dict[str, list[tuple[float, float, float]]] = {"bare": [], "routed": []}
    for _ in range(repeats):
        for name, make in (("bare", bare), ("routed", routed)):
            client = make()
            wall, cpu = time.perf_counter(), time.process_time()
            client.begin_transaction()
            thread = time.thread_time()
            for i, key in enumerate(keys):
                client.produce("bench", value, key)
                if not i & 1023:
                    client.poll(0)
            thread = time.thread_time() - thread
            client.commit_transaction(60)
            took = time.perf_counter() - wall
            figures[name].append((records / took, (time.process_time() - cpu) / records * 1e6, thread / records * 1e6))
            if name == "routed":
                client.close()
    best = {k: (max(r for r, _, _ in v), min(c for _, c, _ in v), min(t for _, _, t in v)) for k, v in figures.items()}
    return {
        "producer_vs_bare": round(best["routed"][0] / best["bare"][0], 3),
        "producer_cpu_more_us": round(best["routed"][1] - best["bare"][1], 2),
        "producer_thread_more_us": round(best["routed"][2] - best["bare"][2], 2),
        "producer_records_per_s": {k: round(v[0]) for k, v in best.items()},
    }


def sketch() -> dict[str, Any]:
    """Feed the keys of Zipf 1.1 over a million keys, as samples do, and compare with the exact top hundred."""
    from datetime import UTC, datetime

    from balancer.key_sketch import KeySketch
    from balancer.routing.hashing import crc32

    rng, now = np.random.default_rng(3), datetime(2026, 1, 5, tzinfo=UTC)
    cumulative = np.cumsum(1 / np.arange(1, 1_000_001) ** 1.1)
    rows = np.searchsorted(cumulative / cumulative[-1], rng.random(500_000))
    made = KeySketch(4096)
    for part in np.array_split(rows, 50):
        keys = [(b"customer-%d" % k).hex() for k in part.tolist()]
        made.add(keys, [crc32(k.encode()) % 4096 for k in keys], float(len(keys)), now)
    top = {(b"customer-%d" % k).hex() for k in np.argsort(-np.bincount(rows), kind="stable")[:100].tolist()}
    found = {h.key for h in made.heavy(0.0, now, most=100)}
    return {"sketch_bytes": made.size_bytes, "sketch_recall_100": len(top & found) / 100}


def schedules(file: Path) -> dict[str, Any]:
    """Sum what the schedules have counted so far."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    exact, plain = ([r for r in rows if r["transactional"] is t] for t in (True, False))
    sums: dict[str, Any] = {k: sum(r[k] for r in exact) for k in ("lost", "repeated", "reordered", "made", "done")}
    sums |= {"schedules": len(exact), "two_groups": sum(r["groups"] == 2 for r in exact)}
    return {**sums, "plain": {k: sum(r[k] for r in plain) for k in ("lost", "repeated", "reordered", "made")}}


def main() -> int:
    """Run parts and keep their figures."""
    parts = ("sketch", "producer", "switch", "delay", "schedules")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="*", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=15, help="splits and merges of part switch")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the peak in part delay")
    args = parser.parse_args()
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found: dict[str, Any] = {}
    if "sketch" in args.part:
        found |= sketch()
    if {"producer", "switch", "delay"} & set(args.part):
        with tempfile.TemporaryDirectory() as folder, Kafka(folder) as kafka:
            if "producer" in args.part:
                found |= producer(kafka, args.records, args.repeats)
            if "switch" in args.part:
                found |= switch(kafka, args.rounds)
            if "delay" in args.part:
                found |= delay(kafka, args.seconds)
    if "schedules" in args.part:
        found |= schedules(ROOT / "build" / "splitting.jsonl")
    kept |= found
    kept["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    kept["versions"] = {"kafka": VERSION, "confluent_kafka": ck.version(), "python": platform.python_version()}
    kept["command"] = "python -m benchmarks.splitting"
    RESULT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    for name, value in found.items():
        print(f"{name:36} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
