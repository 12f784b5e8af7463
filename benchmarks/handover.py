"""Hand-over on real Kafka, beside the group protocols: ``python -m benchmarks.handover [--quick]``.

Part 1: random moves under load. Part 2: a fourth worker joins and leaves, under the plan, ``range``,
``cooperative-sticky`` and KIP-848 at their defaults, on the same topic and load. Part 3: a worker is killed, and one is
frozen. Part 4: from 3 to 6 workers. Part 5: records/s beside a plain loop. Everything that came out is checked for
lost, repeated and reordered records.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from benchmarks import handover_loop
from forecaster.topics import TopicPartition
from tests.chaos.bed import Bed, until
from tests.chaos.rows import Row, Verdict, longest_gaps, owner_changes, quantile
from tests.peers.kafka import VERSION, Kafka

RESULT = Path(__file__).parent / "results" / "handover.json"
PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative_sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip848": {"group.protocol": "consumer"},
}
BROKER_DEFAULTS = {
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.min.heartbeat.interval.ms": 5000,
    "group.consumer.session.timeout.ms": 45000,
    "group.consumer.min.session.timeout.ms": 45000,
    "group.initial.rebalance.delay.ms": 3000,
}


def ms(seconds: Iterable[float]) -> dict[str, float]:
    """Return p50, p99 and maximum in milliseconds, and how many there were."""
    values = list(seconds)
    named = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {k: round(quantile(values, q) * 1e3, 1) for k, q in named.items()} | {"n": len(values)} if values else {}


def others(rows: list[Row], moves: list[tuple[float, float, set[int]]]) -> list[float]:
    """Return the longest pause of each partition that did not move, around each move."""
    return [
        gap
        for start, end, moved in moves
        for p, (gap, changed) in longest_gaps(rows, start, end).items()
        if p not in moved and not changed
    ]


def moves(kafka: Kafka, rate: float, count: int) -> dict[str, Any]:
    """Part 1."""
    rnd = random.Random(7)
    with Bed("moves", kafka=kafka, rate=rate) as bed:
        bed.start_planner()
        bed.start_flow()
        for i in (1, 2, 3):
            bed.worker(f"w{i}", i)
        bed.ready(1, 2, 3, within_s=90)
        bed.settled(1, 2, 3)
        bed.spread(1, 2, 3)
        time.sleep(3)
        quiet = time.monotonic() - 2.5, time.monotonic()
        made = []
        for _ in range(count):
            p = rnd.randrange(bed.partitions)
            target = rnd.choice([i for i in (1, 2, 3) if i != bed.owner(p)])
            start = time.monotonic()
            move = bed.mover.move(TopicPartition(bed.input, p), target)
            until(lambda move=move: bed.mover.state_of(move).is_over, 60, bed.logs)
            made.append((start, time.monotonic() + 0.05, {p}))
            time.sleep(rnd.uniform(0.05, 0.25))
        time.sleep(1)
        rows, verdict = bed.finish(120)
        changes = [c for c in owner_changes(rows) if c.source != c.target and c.at > quiet[0]]
        return {
            "moved_pause_ms": ms(c.handled for c in changes),
            "moved_visible_pause_ms": ms(c.seen for c in changes),
            "other_pause_ms": ms(others(rows, made)),
            "quiet_pause_ms": ms(gap for gap, _ in longest_gaps(rows, *quiet).values()),
            "visible_latency_ms": ms(r.seen - r.written for r in rows if r.written > quiet[0]),
            "verdict": asdict(verdict),
        }


def joins(kafka: Kafka, protocol: str, rate: float, repeats: int, window_s: float) -> dict[str, Any]:
    """Part 2: a fourth member joins, and later leaves."""
    with Bed(protocol.replace("_", "-"), kafka=kafka, rate=rate) as bed:
        bed.start_flow()
        join, leave = _plan(bed) if protocol == "planned" else _group(bed, PROTOCOLS[protocol])
        spans: dict[str, list[tuple[float, float]]] = {"join": [], "leave": []}
        start = time.monotonic()
        time.sleep(window_s / 2)
        quiet = start, time.monotonic()
        for _ in range(repeats):
            for kind, act in (("join", join), ("leave", leave)):
                start = time.monotonic()
                act()
                time.sleep(window_s)
                spans[kind].append((start, time.monotonic()))
        rows, verdict = bed.finish(120)
        found: dict[str, Any] = {"verdict": asdict(verdict)}
        found["quiet_pause_ms"] = ms(gap for gap, _ in longest_gaps(rows, *quiet).values())
        for kind, times in spans.items():
            gaps = [pair for span in times for pair in longest_gaps(rows, *span).values()]
            found[kind] = {
                "moved_pause_ms": ms(gap for gap, changed in gaps if changed),
                "other_pause_ms": ms(gap for gap, changed in gaps if not changed),
            }
        return found


def _plan(bed: Bed) -> tuple[Any, Any]:
    bed.start_planner()
    for i in (1, 2, 3):
        bed.worker(f"w{i}", i)
    bed.ready(1, 2, 3, within_s=90)
    bed.settled(1, 2, 3)
    bed.spread(1, 2, 3)
    lives = [0]

    def join() -> None:
        lives[0] += 1
        bed.worker("w4", 4)
        bed.lives(4, lives[0])
        bed.mover.follow({TopicPartition(bed.input, p): 4 if p < 3 else p % 3 + 1 for p in range(12)})

    def leave() -> None:
        bed.mover.follow({TopicPartition(bed.input, p): p % 3 + 1 for p in range(12)})
        until(lambda: all(bed.owner(p) == p % 3 + 1 for p in range(12)), 30, bed.logs)
        bed.end("w4")

    return join, leave


def _group(bed: Bed, properties: dict[str, str]) -> tuple[Any, Any]:
    def member(i: int) -> None:
        config = {
            "bootstrap": bed.kafka.bootstrap,
            "group": bed.group,
            "input": bed.input,
            "output": bed.output,
            "instance": i,
            "properties": properties,
        }
        bed.spawn(f"w{i}", "benchmarks.handover_rival", json.dumps(config))

    for i in (1, 2, 3):
        member(i)
    time.sleep(20)
    return (lambda: member(4)), (lambda: bed.end("w4"))


def failover(kafka: Kafka, how: signal.Signals, rate: float) -> tuple[float, Verdict]:
    """Part 3: seconds from the fault until the last of the worker's partitions was handled again."""
    with Bed("failover", kafka=kafka, rate=rate) as bed:
        bed.start_planner()
        bed.start_flow()
        for i in (1, 2, 3):
            bed.worker(f"w{i}", i)
        bed.ready(1, 2, 3, within_s=90)
        bed.settled(1, 2, 3)
        bed.spread(1, 2, 3)
        time.sleep(2)
        mine = {p for p in range(12) if bed.owner(p) == 1}
        at = time.monotonic()
        bed.processes["w1"].send_signal(how)
        until(lambda: all(bed.owner(p) in (2, 3) for p in mine), 60, bed.logs)
        time.sleep(1.5)
        rows, verdict = bed.finish(120)
        later = [r for r in rows if r.instance != 1 and r.handled > at]
        first = {p: min(r.handled for r in later if r.partition == p) for p in mine}
        return max(first.values()) - at, verdict


def scale_up(kafka: Kafka, rate: float) -> dict[str, Any]:
    """Part 4: from 3 to 6 workers under load; how late records were meanwhile."""
    with Bed("scale", kafka=kafka, rate=rate) as bed:
        bed.start_planner()
        bed.start_flow()
        for i in (1, 2, 3):
            bed.worker(f"w{i}", i)
        bed.ready(1, 2, 3, within_s=90)
        bed.settled(1, 2, 3)
        bed.spread(1, 2, 3)
        time.sleep(2)
        start = time.monotonic()
        for i in (4, 5, 6):
            bed.worker(f"w{i}", i)
        bed.ready(4, 5, 6, within_s=90)
        warm = time.monotonic()
        bed.mover.follow({TopicPartition(bed.input, p): p % 6 + 1 for p in range(12)})
        until(lambda: all(bed.owner(p) == p % 6 + 1 for p in range(12)), 60, bed.logs)
        time.sleep(2)
        rows, verdict = bed.finish(120)
        late = [r.seen - r.written for r in rows if r.written > start]
        moved = [r.seen - r.written for r in rows if r.written > warm]
        return {
            "late_ms": ms(late),
            "late_while_moving_ms": ms(moved),
            "later_than_1s": sum(x > 1 for x in moved),
            "verdict": asdict(verdict),
        }


def main() -> None:
    """Measure, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer moves, joins and pairs")
    parser.add_argument("--rate", type=float, default=2000.0, help="records/s")
    parser.add_argument("--parts", default="moves,joins,failover,scale,loop")
    args = parser.parse_args()
    parts = args.parts.split(",")
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result |= {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start",
        "versions": {"kafka": VERSION, "confluent-kafka": str(ck.version()), "librdkafka": str(ck.libversion()[0]),
                     "python": platform.python_version()},
        "command": "python -m benchmarks.handover " + " ".join(sys.argv[1:]),
    }  # fmt: skip
    verdicts: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, heap="512m", overrides=BROKER_DEFAULTS) as kafka:
        if "moves" in parts:
            result |= moves(kafka, args.rate, 40 if args.quick else 210)
            verdicts.append(result.pop("verdict"))
            _say("moves", result["moved_pause_ms"], result["other_pause_ms"])
        if "joins" in parts:
            for protocol in ("planned", *PROTOCOLS):
                found = joins(kafka, protocol, args.rate, 1 if args.quick else 3, 8.0 if protocol != "kip848" else 12.0)
                verdicts.append(found.pop("verdict"))
                result[protocol] = found
                for kind in ("join", "leave"):
                    _say(f"{protocol} {kind}", found[kind]["moved_pause_ms"], found[kind]["other_pause_ms"])
        if "failover" in parts:
            for name, how in (("failover_s", signal.SIGKILL), ("failover_frozen_s", signal.SIGSTOP)):
                took, verdict = failover(kafka, how, args.rate)
                verdicts.append(asdict(verdict))
                result[name] = round(took, 3)
                print(f"{name:28s} {took:.2f} s", flush=True)
        if "scale" in parts:
            found = scale_up(kafka, args.rate)
            verdicts.append(found.pop("verdict"))
            result["scale_up_3_to_6"] = found
            print(f"{'3 to 6 workers':28s} {found}", flush=True)
        if "loop" in parts:
            result["throughput"] = []
            for partitions in (12, 100) if args.quick else (12, 100, 400):
                topic, out = f"loop-in-{partitions}", f"loop-out-{partitions}"
                with Bed("loop", kafka=kafka, partitions=1) as bed:
                    bed.create(topic, partitions)
                    bed.create(out, partitions)
                records = 60_000 if args.quick else 150_000
                handover_loop.fill(kafka.bootstrap, topic, partitions, records)
                found = handover_loop.compare(kafka.bootstrap, topic, out, partitions, records, 3 if args.quick else 7)
                result["throughput"].append(found)
                print(f"loop over {partitions} partitions: {found}", flush=True)
            result["throughput_vs_bare_loop"] = min(f["ratio"] for f in result["throughput"])
    for key in ("produced", "lost", "repeated", "reordered"):
        result[key] = sum(v[key] for v in verdicts)
    print({k: result[k] for k in ("produced", "lost", "repeated", "reordered")})
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


def _say(name: str, moved: dict[str, float], other: dict[str, float]) -> None:
    def cell(x: dict[str, float]) -> str:
        return f"{x['p50']:8.0f} {x['p99']:8.0f} {x['max']:8.0f} ({x['n']})" if x else "       -"

    print(f"{name:28s} moved {cell(moved)}   other {cell(other)}   ms p50 p99 max (n)", flush=True)


if __name__ == "__main__":
    main()
