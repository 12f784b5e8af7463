"""Decisions against the rivals, on real traces: ``python -m benchmarks.decisions [--sets taxi,…] [--starts 120,300]``.

Each set is scaled to 6,000 records a minute on average; steps over a minute are interpolated, then drawn as Poisson
counts. One member carries 1/12 to 1/40 of the p99.9 of the four weeks before the test week, the last of the set.
Everything is learned or tuned on the history before it. Rivals with settings are tuned twice: fewest late records at
no more than our hours, and fewest hours at no more than our late records (both on history).

``work_hours`` is all records over one member's capacity: fewer member-hours serve them under no policy. ``informed`` is
the limit with the same information (:mod:`balancer.simulator.informed`): what it costs to be ready for all that history
has shown. The frontiers say what the best settings *in hindsight* would have reached on the test week.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from balancer.knobs import Knobs
from balancer.learning import Past, learn_knobs, try_knobs
from balancer.rivals.tuning import Grid, Wish, choose, history_weeks, keda_grid, rate_grid, score
from balancer.simulator.arrivals import ArrivalTrace, spread, zipf_shares
from balancer.simulator.compare import limit_hours, run_rival
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.informed import informed_path
from balancer.simulator.outcome import Outcome
from balancer.simulator.ticking import describe, run_headway
from balancer.simulator.world import World, run_path, run_rule
from forecaster.ingest.trace import read_trace
from headway.reports.simulation import frame_of, past_of, ridge_forecaster, setting_of

WEEK = 10080
RESULTS = Path(__file__).parent / "results" / "decisions.json"
RIVALS = ("static_peak", "perfect", "cron_last_week", "rate_reactive", "keda_lag", "flink")
T0 = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TraceSet:
    """A file, the series to take (None: the sum of all), and members at the peak."""

    file: str
    series: str | None
    members: int
    seasonal: bool = True
    weeks: int = 30
    missing: float | None = None
    """What the file writes for "not known"."""


SETS = {
    "taxi": TraceSet("nyc_taxi_30min.csv.gz", None, 40),
    "bikes": TraceSet("dc_bikeshare_1h.csv.gz", None, 20),
    "pedestrians": TraceSet("melbourne_pedestrians_1h.csv.gz", None, 20, missing=-1),
    "worldcup": TraceSet("worldcup98_1min.csv.gz", None, 12),
    "aws_elb": TraceSet("aws_elb_requests_5min.csv.gz", None, 10, seasonal=False),
    "twitter": TraceSet("twitter_mentions_5min.csv.gz", "AAPL", 10, seasonal=False),
    "crane": TraceSet("crane_metrics_1min.csv.gz", "svc02", 10, seasonal=False),
}


def minutes_of(folder: Path, wanted: TraceSet) -> np.ndarray:
    """Return records per minute, 6,000 at the mean."""
    series = read_trace(folder / wanted.file, wanted.series, missing=wanted.missing)
    known = series.known.all(axis=0)
    values = series.counts.sum(axis=0)[known]
    step = series.grid.step_s // 60
    at = np.flatnonzero(known) * step
    length = at[-1] + step
    if step == 1:
        per_minute = np.interp(np.arange(length), at, values)
    else:
        per_minute = np.interp(np.arange(length), at + step / 2, values) / step
    per_minute = per_minute[-wanted.weeks * WEEK :]
    per_minute *= 6000 / per_minute.mean()
    if step > 1:
        return np.random.default_rng(7).poisson(per_minute).astype(float)
    return np.round(per_minute)


def measure(
    name: str,
    start_s: float,
    folder: Path,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None],
    rivals: Sequence[str] = RIVALS,
) -> None:
    """Measure every policy on one set at one start time; ``keep`` gets what there is after each stage."""
    wanted = SETS[name]
    minutes = minutes_of(folder, wanted)
    first = minutes.size - WEEK
    peak = float(np.quantile(minutes[max(0, first - 4 * WEEK) : first], 0.999)) / 60
    trace = ArrivalTrace(T0, 60, minutes[None])
    world = World(
        trace, T0 + timedelta(minutes=first), trace.end, peak / wanted.members, start_s, 6.0, 60.0, 6 * wanted.members
    )
    forecaster = ridge_forecaster(world.minutes)
    outcomes: dict[str, Outcome] = {}
    seconds: dict[str, float] = {}

    began = time.process_time()
    past = past_of(world, forecaster)
    knobs, ours_hours, ours_late = Knobs(), float("inf"), 1e-4
    if past is not None:
        setting, frame = setting_of(world, past), frame_of(world)
        knobs, _ = learn_knobs(past, setting, frame)
        on_history = try_knobs(past, [knobs], setting, frame, 24, (1.0,))
        ours_hours, ours_late = float(on_history.hours[0]), float(on_history.late[0])
    seconds["learning_cpu_s"] = time.process_time() - began
    began = time.process_time()
    batch = forecaster(world.first_minute, world.first_minute + world.run_minutes)
    seconds["forecasts_cpu_s"] = time.process_time() - began
    began = time.process_time()
    outcomes["headway"] = run_headway(world, batch, knobs)
    seconds["headway_cpu_s"] = time.process_time() - began
    limit = limit_hours(world)
    informed = run_path(world, informed_path(world, past, batch), clairvoyant=True)
    bounds: dict[str, Any] = {
        "limit_hours": limit,
        "work_hours": float(world.arrivals.sum()) / world.capacity / 3600,
        "informed": replace(informed, hours_vs_limit=informed.hours / limit).figures(),
    }

    def figures() -> dict[str, Any]:
        measured = {k: replace(o, hours_vs_limit=o.hours / limit).figures() for k, o in outcomes.items()}
        return {**measured, **bounds, "knobs": knobs.to_json(), "seconds": seconds}

    say(f"{name} {start_s:g} s: {describe(knobs)}: {line(outcomes['headway'], limit)}")
    say(f"  {'same information':28s} {line(informed, limit)}")
    for rival in [r for r in ("static_peak", "perfect", "cron_last_week") if r in rivals]:
        outcomes[rival] = run_rival(rival, world, Wish(late_share=1e-4))
        say(f"  {rival:28s} {line(outcomes[rival], limit)}")
    keep(figures())

    rows, before = (past.minutes, past.before[:, -1]) if past is not None else history_weeks(world.history)
    grids: dict[str, Grid] = {
        "rate_reactive": rate_grid(world.capacity, world.limit_replicas),
        "keda_lag": keda_grid(world.capacity, world.limit_replicas, None),
    }
    for rival, grid in [(r, g) for r, g in grids.items() if r in rivals]:
        scores = score(grid, world.setting(rows, before))
        for suffix, wish in (
            ("at_our_hours", Wish(hours=ours_hours)),
            ("at_our_late", Wish(late_share=max(ours_late, 1e-6))),
        ):
            policy, words = choose(grid, scores, wish)
            label = f"{rival}_{suffix}"
            outcomes[label] = run_rule(world, policy, (words,))
            say(f"  {label:28s} {line(outcomes[label], limit)}")
        keep(figures())
    if "flink" in rivals:
        outcomes["flink"] = run_rival("flink", world, Wish(late_share=1e-4))
        say(f"  {'flink':28s} {line(outcomes['flink'], limit)}")
        keep(figures())
    bounds["frontier_in_hindsight"] = {
        "headway": hindsight(world, batch, knobs),
        "rate_reactive": front(*score(grids["rate_reactive"], world.setting(*test_week(world)), in_place=False)),
    }
    for policy_name, points in bounds["frontier_in_hindsight"].items():
        kept = [p for p in points if p["late_share"] <= 1e-4]
        say(f"  {policy_name} in hindsight: {kept[0] if kept else points[-1]}")
    keep(figures())


def measure_month(folder: Path, days: float, skew: float) -> dict[str, Any]:
    """Time a run over 32 partitions, observed every 15 s and planned every minute; forecasts in batch, timed apart."""
    minutes = minutes_of(folder, SETS["taxi"])
    trace = spread(ArrivalTrace(T0, 60, minutes[None]), zipf_shares(32, skew, 0)).poisson(0)
    first, count = minutes.size - 30 * 1440, int(days * 1440)
    peak = float(np.quantile(minutes[first - 4 * WEEK : first], 0.999)) / 60
    start = T0 + timedelta(minutes=first)
    world = World(trace, start, start + timedelta(minutes=count), peak / 16, 120.0, 6.0, 60.0, 32)
    forecaster = ridge_forecaster(world.minutes)
    began = time.process_time()
    batch = forecaster(first, first + count)
    forecasts_s = time.process_time() - began
    began, wall = time.process_time(), time.perf_counter()
    outcome = run_headway(world, batch, Knobs())
    spent = {"cpu_s": time.process_time() - began, "wall_s": time.perf_counter() - wall, "forecasts_cpu_s": forecasts_s}
    return {"days": days, "partitions": 32, "skew": skew, **spent, **outcome.figures()}


def test_week(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Return the run itself as the one row to simulate, and the minute before it."""
    return world.arrivals[None], world.minutes[None, world.first_minute - 1]


def hindsight(world: World, batch: ForecastBatch | None, knobs: Knobs) -> list[dict[str, float]]:
    """Return what other knobs around the learned ones would have reached, had they been chosen on the run itself."""
    if batch is None:
        return []
    before = world.minutes[None, world.first_minute - 4 : world.first_minute]
    past = Past(world.arrivals[None], before, batch.cells()[None], batch.levels)
    around = [
        replace(knobs, trust_forecast=True, near_level=near, far_level=min(near, 0.8), slack=slack, floor=floor,
                correction=correction)
        for near, slack, (correction, floor) in itertools.product(
            (0.7, 0.9, 0.98, 0.995), (0.0, 0.1, 0.2), ((0.0, 0.0), (0.1, 0.8)))
    ]  # fmt: skip
    setting = world.setting(past.minutes, past.before[:, -1])
    tried = try_knobs(past, [knobs, *around], setting, frame_of(world), 24, (1.0,), in_place=False)
    return front(tried.late, tried.hours, tried.rescales_per_day, most=24.0)


def front(late: np.ndarray, hours: np.ndarray, changes: np.ndarray, most: float = np.inf) -> list[dict[str, float]]:
    """Return the points that none beats in both late records and hours, the cheapest first."""
    points: list[dict[str, float]] = []
    for i in np.lexsort((late, hours)).tolist():
        if changes[i] <= most and (not points or late[i] < points[-1]["late_share"]):
            points.append(
                {"late_share": float(late[i]), "hours": float(hours[i]), "rescales_per_day": float(changes[i])}
            )
    return points


def line(outcome: Outcome, limit: float) -> str:
    """Return an outcome in one line."""
    return (
        f"late {outcome.late_share:9.4%}  hours {outcome.hours:9.1f}  x{outcome.hours / limit:.3f} of the limit  "
        f"{outcome.rescales_per_day:6.1f} changes a day"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=Path(os.environ.get("HEADWAY_TRACES", "../shared/traces")))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--starts", default="120,300")
    parser.add_argument(
        "--rivals", default=",".join(RIVALS), help="others keep their kept figures: they do not depend on ours"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--month", type=float, metavar="DAYS", help="instead: time DAYS × 32 partitions (a month: 30)")
    parser.add_argument("--skew", type=float, default=0.3, help="with --month: Zipf's exponent over the partitions")
    args = parser.parse_args()
    if args.month is not None:
        timed = measure_month(args.traces, args.month, args.skew)
        print(json.dumps(timed, indent=2))
        kept = json.loads(args.out.read_text()) if args.out.exists() else {}
        args.out.write_text(json.dumps({**kept, "month_32_partitions": timed}, indent=2) + "\n")
        return
    for name in args.sets.split(","):
        for start in args.starts.split(","):

            def keep(figures: dict[str, Any], name: str = name, start: str = start) -> None:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                kept = json.loads(args.out.read_text()) if args.out.exists() else {}
                present = kept.setdefault("decisions", {}).setdefault(name, {}).get(start, {})
                kept["decisions"][name][start] = {**present, **figures}
                kept["machine"] = {"system": platform.platform(), "cores": os.cpu_count()}
                kept["versions"] = {"python": sys.version.split()[0], "numpy": np.__version__}
                kept["command"] = "python -m benchmarks.decisions"
                args.out.write_text(json.dumps(kept, indent=2) + "\n")

            measure(name, float(start), args.traces, lambda text: print(text, flush=True), keep, args.rivals.split(","))


if __name__ == "__main__":
    main()
