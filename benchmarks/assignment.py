"""Assignment: every algorithm on the random walks of arXiv 2402.06085, a skewed topic, and large groups.

python -m benchmarks.assignment [--rows 500] [--seed 0] [--planning-only]

Three questions: how much load each algorithm stops, at how many consumers (R-score and cardinal bin score); what the
assignment alone is worth on a skewed topic, at the same members, beside Kafka's range and sticky; how long a plan
takes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.assignment import assign
from balancer.assignors import range_owner, sticky_owner
from balancer.group import Member
from balancer.packing.keep import keep
from balancer.packing.members import pack
from balancer.packing.sequence import ALGORITHMS, cardinal_bin_scores, run_sequence
from benchmarks.figures import RESULTS, keep_figures
from forecaster.topics import TopicPartition

DELTAS = (5, 10, 15, 20, 25)
DATA = Path(__file__).parents[1] / "data" / "worldcup98_1min.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planning-only", action="store_true", help="time the plans again, keep the other figures")
    args = parser.parse_args()
    figures: dict[str, Any]
    if args.planning_only:
        figures = json.loads((RESULTS / "assignment.json").read_text())
    else:
        figures = walks(32, args.rows, args.seed)
        figures["partitions_100"] = walks(100, args.rows, args.seed)
        figures["zipf"] = skewed_topic(args.seed)
    figures |= planning(args.seed)
    print(f"\nkept in {keep_figures('assignment', figures, ('numpy', 'scipy'))}")


def walk(partitions: int, rows: int, delta: float, seed: int) -> NDArray[np.float64]:
    """Loads that start anywhere in 0..100 and walk by up to delta a row (the authors' generator)."""
    rng = np.random.default_rng(seed)
    out = [rng.uniform(0, 100, partitions)]
    for _ in range(rows - 1):
        out.append(np.clip(out[-1] + rng.uniform(-delta, delta, partitions), 0, 100))
    return np.array(out)


def walks(partitions: int, rows: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for delta in DELTAS:
        loads = walk(partitions, rows, delta, seed)
        results = {name: run_sequence(name, loads, 100.0, seed=seed) for name in ALGORITHMS}
        scores = cardinal_bin_scores({name: r.consumers for name, r in results.items()})
        figures[str(delta)] = {
            name: {
                "rscore": float(r.rscore[1:].mean()),
                "cbs": scores[name],
                "consumers": float(r.consumers.mean()),
                "above_l2": float((r.consumers - r.lower_bound).mean()),
                "moved": float(r.moved[1:].mean()),
            }
            for name, r in results.items()
        }
    print(f"\n{partitions} partitions, {rows} rows: mean R-score / CBS, lower is better")
    print(f"{'':10}" + "".join(f"{f'd={d}':>14}" for d in DELTAS))
    for name in ALGORITHMS:
        cells = [figures[str(d)][name] for d in DELTAS]
        print(f"{name:10}" + "".join(f"{c['rscore']:>8.3f}/{c['cbs']:.3f}" for c in cells))
    return figures


def skewed_topic(seed: int, members: int = 4, partitions: int = 32, pause_s: float = 0.5) -> dict[str, Any]:
    """Delays of one busy World Cup day on a Zipf topic whose hot keys drift, at the same members for everybody.

    Ours sees the last five minutes of each partition alone, plans for a fifth more, and stalls what it moves for
    ``pause_s``. Range and sticky stay as they were dealt: the group's size never changes.
    """
    with gzip.open(DATA, "rt") as file:
        values = [float(row["value"]) for row in csv.DictReader(file)]
    minutes = np.array(values)
    days = minutes[: minutes.size // 1440 * 1440].reshape(-1, 1440)
    day = days[days.sum(axis=1).argmax()] / 60
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0, 0.02, (1440, partitions)), axis=0)
    share = rng.permutation(1 / np.arange(1, partitions + 1)) * np.exp(drift)
    rates = day[:, None] * share / share.sum(axis=1, keepdims=True)
    capacity = float(max(rates.max() / 0.95, day.max() / (members * 0.85)))
    figures: dict[str, Any] = {"members": members, "partitions": partitions, "capacity": capacity}
    nobody = np.full(partitions, -1, dtype=np.intp)
    for name, start in (
        ("range", range_owner([partitions], members)),
        ("sticky", sticky_owner(nobody, members)),
        ("keep", None),
    ):
        figures[name] = _delays(rates, capacity, members, start, pause_s)
    for name in ("range", "sticky"):
        figures[f"p99_gain_over_{name}"] = figures[name]["p99_s"] / max(figures["keep"]["p99_s"], 1.0)
    print(
        f"\n{partitions} partitions, Zipf 1.0, {members} members of {capacity:.0f} records/s, the busiest World Cup day"
    )
    print(f"{'':10}{'p50 s':>10}{'p99 s':>10}{'max s':>10}{'moves':>8}")
    for name in ("range", "sticky", "keep"):
        f = figures[name]
        print(f"{name:10}{f['p50_s']:>10.1f}{f['p99_s']:>10.1f}{f['max_s']:>10.1f}{f['moves']:>8}")
    return figures


def _delays(
    rates: NDArray[np.float64], capacity: float, members: int, owner: NDArray[np.intp] | None, pause_s: float
) -> dict[str, float]:
    """Fluid queues in steps of a second; a member shares its capacity by the work that its partitions have.

    A delay below the step counts as one second.
    """
    minutes, partitions = rates.shape
    planned = owner is None
    room = np.full(members, capacity)
    if owner is None:
        owner = pack(rates[0], room, np.full(partitions, -1, dtype=np.intp)).owner
    backlog = np.zeros(partitions)
    served = np.zeros((minutes * 60 + 1, partitions))
    moves = 0
    for minute in range(minutes):
        stall = np.zeros(partitions)
        if planned and minute >= 5:
            recent = rates[minute - 5 : minute].mean(axis=0) + backlog / 300
            packing = pack(recent * 1.2, room, owner)
            moves += int(packing.moved.sum())
            stall, owner = np.where(packing.moved, pause_s, 0.0), packing.owner
        for second in range(60):
            work = backlog + rates[minute]
            may = np.clip(1.0 - stall, 0.0, 1.0)
            stall = np.maximum(stall - 1.0, 0.0)
            able = work * may
            asked = np.bincount(owner, able, members)
            done = able * np.minimum(1.0, capacity / np.maximum(asked, 1e-12))[owner]
            backlog = work - done
            at = minute * 60 + second
            served[at + 1] = served[at] + done
    arrived = np.concatenate((np.zeros((1, partitions)), np.cumsum(np.repeat(rates, 60, axis=0), axis=0)))
    delay = np.empty((minutes * 60, partitions))
    for p in range(partitions):
        done_at = np.searchsorted(served[:, p], arrived[1:, p] - 1e-6)
        delay[:, p] = np.maximum(done_at - np.arange(1, minutes * 60 + 1), 0)
    weight = np.repeat(rates, 60, axis=0).ravel()
    order = np.argsort(delay.ravel(), kind="stable")
    position = np.cumsum(weight[order]) / weight.sum()
    at = {
        name: float(delay.ravel()[order[np.searchsorted(position, q)]]) for name, q in (("p50_s", 0.5), ("p99_s", 0.99))
    }
    return {**at, "max_s": float(delay[np.repeat(rates, 60, axis=0) > 0].max()), "moves": moves}


def planning(seed: int) -> dict[str, Any]:
    """Time of one plan: dealt anew, after a drift, with a tenth of the members leaving, and at 95 % of all capacity."""
    out: dict[str, Any] = {"planning": {}}
    for partitions in (1_000, 10_000):
        out["planning"][str(partitions)] = {name: _seconds(case) for name, case in _cases(partitions, seed).items()}
    small, large = out["planning"]["1000"], out["planning"]["10000"]
    out["plan_1000_cpu_ms"] = 1000 * max(c["cpu_s"] for c in small.values())
    out["plan_10000_cpu_s"] = max(c["cpu_s"] for c in large.values())
    out["plan_1000_ms"] = 1000 * max(c["wall_s"] for c in small.values())
    out["plan_10000_s"] = max(c["wall_s"] for c in large.values())
    print(f"\n{'one plan':12}{'1,000':>22}{'10,000 partitions':>22}")
    for name in small:
        cells = [f"{1000 * c['wall_s']:.0f} ms (CPU {1000 * c['cpu_s']:.0f})" for c in (small[name], large[name])]
        print(f"{name:12}{cells[0]:>22}{cells[1]:>22}")
    return out


def _cases(partitions: int, seed: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(seed)
    loads = rng.uniform(0, 100, partitions)
    members = int(loads.sum() / 100 / 0.85)
    room, nobody = np.full(members, 100.0), np.full(partitions, -1, dtype=np.intp)
    before = pack(loads, room, nobody).owner
    later = np.clip(loads + rng.uniform(-10, 10, partitions), 0, 100)
    fewer = room * 1.05
    fewer[rng.choice(members, members // 10, replace=False)] = 0.0
    names = [TopicPartition("orders", p) for p in range(partitions)]
    named = dict(zip(names, later.tolist(), strict=True))
    owned: list[list[TopicPartition]] = [[] for _ in range(members)]
    for p, m in zip(names, before.tolist(), strict=True):
        owned[m].append(p)
    team = [Member(f"m{m:05d}", tuple(o)) for m, o in enumerate(owned)]
    return {
        "anew": lambda: pack(loads, room, nobody),
        "drift": lambda: pack(later, room, before),
        "leaving": lambda: pack(later, fewer, before),
        "tight": lambda: pack(np.minimum(later * 1.12, 100), room, before),
        "by_name": lambda: assign(named, team, capacity=100.0),
        "open_ended": lambda: keep(later, before, 100.0),
    }


def _seconds(case: Callable[[], object], repeats: int = 5) -> dict[str, float]:
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        case()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall_s": min(walls), "cpu_s": min(cpus)}


if __name__ == "__main__":
    main()
