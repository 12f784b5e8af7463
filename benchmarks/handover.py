"""Hand-over on real Kafka, beside the group protocols: ``python -m benchmarks.handover [--quick] [--pieces a,b]``.

It runs piece by piece and keeps what each found, so that a long run may be interrupted: pieces that were measured at
this version of the code are left out.

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
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from benchmarks import handover_loop
from forecaster.topics import TopicPartition
from tests.chaos.bed import Bed, until
from tests.chaos.rows import Timeline, Verdict, owner_changes, quantile
from tests.chaos.version import code_version
from tests.peers.kafka import VERSION, Kafka

RESULT = Path(__file__).parent / "results" / "handover.json"
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative_sticky": COOPERATIVE,
    "kip848": {"group.protocol": "consumer"},
    "cooperative_sticky_500ms": {**COOPERATIVE, "heartbeat.interval.ms": 500},
    "kip848_500ms": {"group.protocol": "consumer"},
}
"""Client properties; ``_500ms`` heart-beats every 500 ms instead of every 3 s (classic) or 5 s (KIP-848)."""
BROKER_DEFAULTS = {
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 45000,
    "group.consumer.min.session.timeout.ms": 45000,
    "group.initial.rebalance.delay.ms": 3000,
}


def ms(seconds: Iterable[float]) -> dict[str, float]:
    """Return p50, p99 and maximum in milliseconds, and how many there were."""
    values = list(seconds)
    named = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {k: round(quantile(values, q) * 1e3, 1) for k, q in named.items()} | {"n": len(values)} if values else {}


def others(line: Timeline, moves: list[tuple[float, float, set[int]]]) -> list[float]:
    """Return the longest pause of each partition that did not move, around each move."""
    return [
        gap
        for start, end, moved in moves
        for p, (gap, changed) in line.longest_gaps(start, end).items()
        if p not in moved and not changed
    ]


def quiet_gaps(line: Timeline, spans: list[tuple[float, float]], length: float) -> list[float]:
    """Return the longest pause of each partition in windows of a length, in spans in which nothing moves."""
    found = []
    for start, end in spans:
        while start + length <= end:
            found += [gap for gap, _ in line.longest_gaps(start, start + length).values()]
            start += length
    return found


def moves(kafka: Kafka, rate: float, count: int) -> tuple[dict[str, Any], Verdict]:
    """Part 1."""
    rnd = random.Random(7)
    with Bed("moves", kafka=kafka, rate=rate) as bed:
        bed.start_team(1, 2, 3)
        time.sleep(7)
        quiet = [(time.monotonic() - 5, time.monotonic())]
        made = []
        for _ in range(count):
            p = rnd.randrange(bed.partitions)
            target = rnd.choice([i for i in (1, 2, 3) if i != bed.owner(p)])
            start = time.monotonic()
            move = bed.mover.move(TopicPartition(bed.input, p), target)
            until(lambda move=move: bed.mover.state_of(move).is_over, 60, bed.logs)
            made.append((start, time.monotonic() + 0.05, {p}))
            time.sleep(rnd.uniform(0.05, 0.25))
        time.sleep(5.5)
        quiet.append((time.monotonic() - 5, time.monotonic()))
        rows, verdict = bed.finish(120)
        line, start = Timeline(rows), quiet[0][0]
        changes = [c for c in owner_changes(rows) if c.source != c.target and c.at > start]
        length = quantile((end - begin for begin, end, _ in made), 0.5)
        return {
            "moved_pause_ms": ms(c.handled for c in changes),
            "moved_visible_pause_ms": ms(c.seen for c in changes),
            "other_pause_ms": ms(others(line, made)),
            "quiet_pause_ms": ms(quiet_gaps(line, quiet, length)),
            "quiet_window_ms": round(length * 1e3),
            "visible_latency_ms": ms(r.seen - r.written for r in rows if r.written > start),
        }, verdict


def joins(kafka: Kafka, protocol: str, rate: float, repeats: int, window_s: float) -> tuple[dict[str, Any], Verdict]:
    """Part 2: a fourth member joins, and later leaves."""
    with Bed(protocol.replace("_", "-"), kafka=kafka, rate=rate) as bed:
        if protocol == "kip848_500ms":
            bed.configure_group("consumer.heartbeat.interval.ms", 500)
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
        line = Timeline(rows)
        found: dict[str, Any] = {"quiet_pause_ms": ms(gap for gap, _ in line.longest_gaps(*quiet).values())}
        for kind, times in spans.items():
            gaps = [pair for span in times for pair in line.longest_gaps(*span).values()]
            found[kind] = {
                "moved_pause_ms": ms(gap for gap, changed in gaps if changed),
                "other_pause_ms": ms(gap for gap, changed in gaps if not changed),
            }
        return found, verdict


def _plan(bed: Bed) -> tuple[Any, Any]:
    bed.start_team(1, 2, 3)
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


def _group(bed: Bed, properties: dict[str, str | int]) -> tuple[Any, Any]:
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

    bed.start_flow()
    for i in (1, 2, 3):
        member(i)
    time.sleep(12)
    return (lambda: member(4)), (lambda: bed.end("w4"))


def failover(kafka: Kafka, how: signal.Signals, rate: float) -> tuple[float, float, Verdict]:
    """Part 3: seconds from the fault until half, and until all of the worker's partitions were handled again."""
    with Bed("failover", kafka=kafka, rate=rate) as bed:
        bed.start_team(1, 2, 3)
        time.sleep(2)
        mine = {p for p in range(12) if bed.owner(p) == 1}
        at = time.monotonic()
        bed.processes["w1"].send_signal(how)
        until(lambda: all(bed.owner(p) in (2, 3) for p in mine), 60, bed.logs)
        time.sleep(1.5)
        rows, verdict = bed.finish(120)
        later = [r for r in rows if r.instance != 1 and r.handled > at]
        first = {p: min(r.handled for r in later if r.partition == p) for p in mine}
        return quantile((t - at for t in first.values()), 0.5), max(first.values()) - at, verdict


def scale_up(kafka: Kafka, rate: float) -> tuple[dict[str, Any], Verdict]:
    """Part 4: from 3 to 6 workers under load; how late records were meanwhile."""
    with Bed("scale", kafka=kafka, rate=rate) as bed:
        bed.start_team(1, 2, 3)
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
        }, verdict


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of the benchmark: what it found, and what became of its records."""

    found: dict[str, Any]
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rate: float
    moves: int
    repeats: int
    pairs: int
    records: int


def _moves(kafka: Kafka, size: Size) -> Piece:
    found, verdict = moves(kafka, size.rate, size.moves)
    _say("moves", found["moved_pause_ms"], found["other_pause_ms"])
    return Piece(found, [verdict])


def _joins(kafka: Kafka, size: Size, protocol: str) -> Piece:
    found, verdict = joins(kafka, protocol, size.rate, size.repeats, 10.0 if protocol == "kip848" else 8.0)
    for kind in ("join", "leave"):
        _say(f"{protocol} {kind}", found[kind]["moved_pause_ms"], found[kind]["other_pause_ms"])
    return Piece({protocol: found}, [verdict])


def _failover(kafka: Kafka, size: Size, name: str, how: signal.Signals) -> Piece:
    runs = [failover(kafka, how, size.rate) for _ in range(size.repeats)]
    worst = max(last for _, last, _ in runs)
    print(f"{name:28s} {worst:.2f} s (each: {[round(last, 2) for _, last, _ in runs]})", flush=True)
    found = {name: round(worst, 3), f"{name}_each": [round(last, 3) for _, last, _ in runs]}
    return Piece(found, [verdict for _, _, verdict in runs])


def _scale(kafka: Kafka, size: Size) -> Piece:
    found, verdict = scale_up(kafka, size.rate)
    print(f"{'3 to 6 workers':28s} {found}", flush=True)
    return Piece({"scale_up_3_to_6": found}, [verdict])


def _loop(kafka: Kafka, size: Size, partitions: int) -> Piece:
    topic, out = f"loop-in-{partitions}", f"loop-out-{partitions}"
    with Bed("loop", kafka=kafka, partitions=1) as bed:
        bed.create(topic, partitions)
        bed.create(out, partitions)
    handover_loop.fill(kafka.bootstrap, topic, partitions, size.records)
    found = handover_loop.compare(kafka.bootstrap, topic, out, partitions, size.records, size.pairs)
    print(f"loop over {partitions} partitions: {found}", flush=True)
    return Piece({f"loop_{partitions}": found}, [])


PIECES: dict[str, Callable[[Kafka, Size], Piece]] = {
    "moves": _moves,
    **{name: partial(_joins, protocol=name) for name in ("planned", *PROTOCOLS)},
    "failover_s": partial(_failover, name="failover_s", how=signal.SIGKILL),
    "failover_frozen_s": partial(_failover, name="failover_frozen_s", how=signal.SIGSTOP),
    "scale": _scale,
    **{f"loop_{n}": partial(_loop, partitions=n) for n in (12, 100, 400)},
}


def main() -> None:
    """Measure, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer moves, joins and pairs")
    parser.add_argument("--rate", type=float, default=2000.0, help="records/s")
    parser.add_argument("--pieces", default=",".join(PIECES), help="which, separated by commas")
    parser.add_argument("--again", action="store_true", help="also those that were measured at this version")
    args = parser.parse_args()
    size = Size(args.rate, 40, 1, 3, 60_000) if args.quick else Size(args.rate, 210, 3, 7, 150_000)
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result["runs"] = {name: run for name, run in result.get("runs", {}).items() if name in PIECES}
    runs: dict[str, dict[str, Any]] = result["runs"]
    version = code_version()
    wanted = [name for name in args.pieces.split(",") if args.again or runs.get(name, {}).get("version") != version]
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, heap="512m", overrides=BROKER_DEFAULTS) as kafka:
        for name in wanted:
            load = os.getloadavg()[0]
            piece = PIECES[name](kafka, size)
            result |= piece.found
            sums = {k: sum(asdict(v)[k] for v in piece.verdicts) for k in COUNTS}
            runs[name] = {"version": version, "load": round(load, 1), "quick": args.quick, **sums}
            _write(result)
    print({k: result.get(k) for k in COUNTS})


COUNTS = ("produced", "lost", "repeated", "reordered")


def _write(result: dict[str, Any]) -> None:
    """Write what is known, with sums over all pieces."""
    result |= {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}; load at the start of each piece: see runs",
        "versions": {"kafka": VERSION, "confluent-kafka": str(ck.version()), "librdkafka": str(ck.libversion()[0]),
                     "python": platform.python_version()},
        "command": "python -m benchmarks.handover",
    }  # fmt: skip
    for key in COUNTS:
        result[key] = sum(run[key] for run in result["runs"].values())
    loops = [result[f"loop_{n}"]["ratio"] for n in (12, 100, 400) if f"loop_{n}" in result]
    if loops:
        result["throughput_vs_bare_loop"] = min(loops)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


def _say(name: str, moved: dict[str, float], other: dict[str, float]) -> None:
    def cell(x: dict[str, float]) -> str:
        return f"{x['p50']:8.0f} {x['p99']:8.0f} {x['max']:8.0f} ({x['n']})" if x else "       -"

    print(f"{name:28s} moved {cell(moved)}   other {cell(other)}   ms p50 p99 max (n)", flush=True)


if __name__ == "__main__":
    main()
