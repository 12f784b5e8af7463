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
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import numpy as np
from numpy.typing import NDArray

from balancer.routing.table import SlotTable
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
    """Split and merge partition 0 in turn. Producers 0 and 1 write to all of it; 2 writes to partition 1 alone."""
    effects: list[float] = []
    with Bed(kafka, partitions=2, groups=1) as bed:
        bed.planner()
        for instance in (1, 2):
            bed.worker(0, instance)
        for number in range(2):
            bed.producer(number, rate=100, keys=24)
        bed.producer(2, rate=100, keys=12, names=_keys_of(partition=1, count=12))
        bed.flowing()
        for _ in range(rounds):
            for kind in ("split", "merge"):
                ended = bed.wait(bed.request(kind, 0), 60)
                if ended.state == "done" and kind == "split":
                    effects.append(ended.seconds or 0.0)
                time.sleep(0.7)
        verdict, outputs = bed.finish()
        held = [h for n in range(2) for h in json.loads((bed.folder / f"p{n}.json").read_text())["holds"]]
        steps = [json.loads(line) for line in (bed.folder / "planner.steps").read_text().splitlines()]
        spent = _spent(bed.log("planner"))
    spans = _holds(steps)
    by_kind = {kind: [end - began for began, end, k in spans if k == kind] for kind in ("split", "merge")}
    during = [(began, end + 0.1) for began, end, _ in spans]
    calm = [(end + 0.35, end + 0.45 + end - began) for began, end, _ in spans]
    return {
        "switch_pause_ms": quantiles(held),
        "split_hold_ms": quantiles(by_kind["split"]),
        "merge_hold_ms": quantiles(by_kind["merge"]),
        "hold_spent_ms": spent,
        "split_effect_s": {k: round(v / 1e3, 3) if k != "n" else v for k, v in quantiles(effects).items()},
        "other_keys_gap_ms": quantiles(_gaps(outputs, during)),
        "other_keys_gap_without_switch_ms": quantiles(_gaps(outputs, calm)),
        "switch_verdict": {"made": verdict.made, "lost": verdict.lost, "repeated": verdict.repeated},
    }


def _spent(log: str) -> dict[str, dict[str, float]]:
    """Return the median of what each kind of hold was spent on, in milliseconds, as the leader has noted it."""
    parts: dict[str, dict[str, list[float]]] = {}
    for kind, text in re.findall(r" (split|merge) \d+ held its slots for \d+ ms: (.*)", log):
        for part in text.split(", "):
            what, ms = part.split()
            parts.setdefault(kind, {}).setdefault(what, []).append(float(ms))
    return {kind: {what: float(np.median(ms)) for what, ms in rows.items()} for kind, rows in parts.items()}


def _holds(steps: list[Any]) -> list[tuple[float, float, str]]:
    """Return (STOP, START or abort, kind) of each transition, as committed."""
    since: dict[int, tuple[float, str]] = {}
    found = []
    for at, _, transitions in steps:
        holding = {n: kind for n, kind, phase, _, _ in transitions if phase in ("stopping", "fenced")}
        for number, kind in holding.items():
            since.setdefault(number, (at, kind))
        for number in set(since) - set(holding):
            began, kind = since.pop(number)
            found.append((began, at, kind))
    return found


def _gaps(outputs: dict[str, list[Any]], windows: list[tuple[float, float]]) -> list[float]:
    """Return for each window the longest time in which nothing of producer 2, which no switch concerns, was handled."""
    gaps = []
    for rows in outputs.values():
        times = np.sort([row.handled for row in rows if row.producer == 2])
        for began, end in windows:
            here = times[(times >= began) & (times <= end)]
            around = np.concatenate(([times[times < began].max(initial=began - 1)], here, times[times > end][:1]))
            gaps.append(float(np.diff(around).max(initial=0.0)))
    return gaps


def delay(kafka: Kafka, seconds: float) -> dict[str, Any]:
    """One partition gets 3 × a member's capacity for ``seconds``; the same four members, without and with splits.

    The planner sees the peak in a forecast an hour ahead and a quiet one after it; what it plans is asked for as it is.
    """
    capacity, before_s = 80.0, 12.0
    found: dict[str, Any] = {}
    keys = _keys_of(partition=0, count=24)
    weights = [1.0 / (i + 6) for i in range(len(keys))]
    for name in ("unsplit", "split"):
        with Bed(kafka, partitions=2, groups=1, max_partitions=8) as bed:
            bed.planner()
            for instance in range(1, 5):
                bed.worker(0, instance, slow_s=0.75 / capacity, poll_records=10)
            peak_from = time.time() + before_s + 8
            profile = [[peak_from, 3 * capacity], [peak_from + seconds, 10.0]]
            bed.producer(0, rate=10, keys=len(keys), names=keys, weights=weights, profile=profile)
            bed.flowing(5, 60)
            if name == "split":  # the forecast has said so for an hour
                plan = _planned(bed, [3 * capacity, 0.0], keys, weights, capacity)
                ended = bed.ask(plan.kind, 0, plan.placement)
                assert ended.state == "done", (ended, bed.logs())
                found["lanes"] = plan.lanes
                found["ready_before_peak_s"] = round(peak_from - time.time(), 1)
                table = bed.table()
                assert table is not None
                _assign(bed, _loads(table, keys, weights, 3 * capacity), capacity)
            time.sleep(max(0.0, peak_from + seconds - time.time()))
            if name == "split":
                table = bed.table()
                assert table is not None
                rates = [5.0] * (1 + max(table.moved.values(), default=1))
                plan = _planned(bed, rates, keys, weights, capacity)
                assert plan.kind == "merge", plan
                ended = bed.ask("merge", 0)
                after = bed.table()
                found["back_to_original"] = ended.state == "done" and after is not None and not after.moved
            verdict, outputs = bed.finish()
            late = [
                r.handled - r.sent
                for rows in outputs.values()
                for r in rows
                if peak_from <= r.sent < peak_from + seconds
            ]
            found[name] = {"p99_s": round(float(np.quantile(late, 0.99)), 3), "lost": verdict.lost, "n": len(late)}
            found[name] |= {"repeated": verdict.repeated, "reordered": verdict.reordered}
    return {"delay": found, "p99_delay_gain": round(found["unsplit"]["p99_s"] / found["split"]["p99_s"], 1)}


def _planned(bed: Bed, rates: list[float], keys: list[str], weights: list[float], capacity: float) -> Any:
    """Return what the planner makes of a forecast for the topic, with the keys' shares as a sketch has them."""
    from datetime import UTC, datetime, timedelta

    from balancer.splits import SplitPolicy, plan_splits

    table = bed.table()
    assert table is not None
    shares = _shares(table, keys, weights)
    now = datetime.now(UTC)
    rows = np.repeat(np.array(rates)[:, None], 24, axis=1)
    step, policy = timedelta(minutes=15), SplitPolicy(max_partitions=bed.max_partitions)
    return plan_splits(table, rows, now + timedelta(hours=1), step, capacity, policy, now, shares=shares)[0]


def _shares(table: SlotTable, keys: list[str], weights: list[float]) -> NDArray[np.float64]:
    shares = np.zeros(table.slots)
    for key, weight in zip(keys, weights, strict=True):
        shares[table.slot_of_key(key.encode())] += weight / sum(weights)
    return shares


def _loads(table: SlotTable, keys: list[str], weights: list[float], rate: float) -> NDArray[np.float64]:
    """Return records/s of each partition at a rate of the topic: what the forecast says, laid out by slots."""
    shares = _shares(table, keys, weights)
    count = 1 + max(table.partitions - 1, *table.moved.values())
    return np.array([rate * shares[list(table.slots_of(p))].sum() for p in range(count)])


def _assign(bed: Bed, loads: NDArray[np.float64], capacity: float) -> None:
    """Have the group's partitions lie on its members as a plan would have them, by load; wait until they do."""
    from balancer.leases.base import MoveRequest
    from balancer.leases.redis import RedisLeaseStore
    from balancer.packing.members import pack
    from forecaster.topics import GroupId, TopicPartition

    leases = RedisLeaseStore(bed.server.url, "main", GroupId(bed.groups[0]))

    def owners() -> list[int]:
        held = [leases.view().leases.get(TopicPartition(bed.topic, p)) for p in range(loads.size)]
        return [-1 if lease is None or lease.owner is None else lease.owner.instance - 1 for lease in held]

    until(lambda: -1 not in owners(), 30, bed.logs)  # lanes are granted when they open, to whoever has least
    before = owners()
    wanted = pack(loads, np.full(4, capacity), np.array(before)).owner.tolist()
    for partition, (now, target) in enumerate(zip(before, wanted, strict=True)):
        if now != target:
            leases.request(MoveRequest(f"b{partition}", TopicPartition(bed.topic, partition), target + 1))
    until(lambda: owners() == wanted, 30, bed.logs)
    leases.close()


def _keys_of(partition: int, count: int) -> list[str]:
    from balancer.routing.hashing import murmur2

    names = (f"key-{i}" for i in range(10_000))
    return [n for n in names if murmur2(n.encode()) % 2 == partition][:count]


def producer(kafka: Kafka, records: int, repeats: int) -> dict[str, Any]:
    """Send the same records with confluent-kafka's own producer and with the routed one, in turn.

    Once with records of 1,000 bytes, where the broker is the limit (the client's queue is full for much of the time),
    and once with 200 bytes, where on a small machine the client is.
    """
    found: dict[str, Any] = {}
    for name, size in (("", 1000), ("_small", 200)):
        found |= {f"producer{name}_{k}": v for k, v in _producer(kafka, records, repeats, size).items()}
    return found


def _producer(kafka: Kafka, records: int, repeats: int, size: int) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, NewTopic

    from balancer.moves.routed_topic import RoutedTopic
    from balancer.moves.splitting import TopicLeader
    from balancer.routing.kafka import KafkaTableLog
    from balancer.routing.memory import MemoryRouteStore
    from balancer.routing.producer import RoutedProducer
    from balancer.routing.settings import RouteSettings

    topic = f"bench-{size}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(30)
    store = MemoryRouteStore()
    TopicLeader(RoutedTopic(kafka.bootstrap, topic), KafkaTableLog(kafka.bootstrap), store, ["g"]).step()
    rng = np.random.default_rng(1)
    cumulative = np.cumsum(1 / np.arange(1, 1_000_001) ** 1.1)
    drawn = np.searchsorted(cumulative / cumulative[-1], rng.random(records))
    keys, value = [b"customer-%d" % k for k in drawn.tolist()], os.urandom(size)
    common = {"linger.ms": 5, "queue.buffering.max.kbytes": 16_384, "partitioner": "murmur2_random", "acks": "all"}

    def bare() -> Any:
        made = ck.Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"bare-{time.time()}", "log_level": 0, **common}
        )
        made.init_transactions(20)
        return made

    def routed() -> Any:
        settings = RouteSettings(
            name=topic, topics=(topic,), bootstrap_servers=kafka.bootstrap, properties={"log_level": 0, **common}
        )
        made = RoutedProducer(settings, store=store, tables=KafkaTableLog(kafka.bootstrap))
        made.init_transactions(20)
        return made

    figures: dict[str, list[tuple[float, ...]]] = {"bare": [], "routed": []}
    for _ in range(repeats):
        for name, make in (("bare", bare), ("routed", routed)):
            client = make()
            wall, cpu = time.perf_counter(), time.process_time()
            client.begin_transaction()
            thread, waited = time.thread_time(), 0.0
            for i, key in enumerate(keys):
                while True:
                    try:
                        client.produce(topic, value, key)
                        break
                    except BufferError:
                        since = time.perf_counter()
                        client.poll(0.01)
                        waited += time.perf_counter() - since
                if not i & 1023:
                    client.poll(0)
            thread = time.thread_time() - thread
            client.commit_transaction(60)
            took, us = time.perf_counter() - wall, 1e6 / records
            figures[name].append((took * us, (time.process_time() - cpu) * us, thread * us, waited / took))
            if name == "routed":
                client.close()
    middle = {k: np.median(np.array(v), axis=0) for k, v in figures.items()}
    more = middle["routed"] - middle["bare"]
    return {
        "vs_bare": round(float(middle["bare"][0] / middle["routed"][0]), 3),
        "cpu_more_us": round(float(more[1]), 2),
        "thread_more_us": round(float(more[2]), 2),
        "records_per_s": {k: round(1e6 / float(v[0])) for k, v in middle.items()},
        "queue_full_share": {k: round(float(v[3]), 2) for k, v in middle.items()},
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
    """Sum what the schedules of the latest version have counted so far."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    rows = [r for r in rows if r["version"] == rows[-1]["version"]]
    exact, plain = ([r for r in rows if r["transactional"] is t] for t in (True, False))
    sums: dict[str, Any] = {k: sum(r[k] for r in exact) for k in ("lost", "repeated", "reordered", "made", "done")}
    sums |= {"schedules": len(exact), "two_groups": sum(r["groups"] == 2 for r in exact)}
    sums["version"] = rows[-1]["version"] if rows else None
    return {**sums, "plain": {k: sum(r[k] for r in plain) for k in ("lost", "repeated", "reordered", "made")}}


def main() -> int:
    """Run parts and keep their figures."""
    parts = ("sketch", "producer", "switch", "delay", "schedules")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="*", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=40, help="splits and merges of part switch")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=7)
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
