"""Weeks of the whole product in minutes: ``make bench-soak``.

Synthetic traffic with a known shape is recorded, forecast, planned, carried out on a target in memory, sealed, pruned
and retrained, all by the jobs that ``headway serve`` runs, under a clock that jumps from step to step. On the way there
are a clock change, holidays, more partitions from the fourth week on, outages, unseen stretches, and a restart of the
whole application every week. What it looks for is what grows: memory, descriptors, threads, keys, bytes in the store.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from balancer.actuators.board import ScalerBoard
from benchmarks import soak_hour
from benchmarks.figures import keep_figures
from forecaster.calendar import Calendar
from forecaster.stores.base import SeriesKey, Tick
from forecaster.synthetic import Generated, Traffic, generate
from forecaster.timegrid import TimeGrid
from headway.application import Application
from headway.jobs import Jobs
from headway.settings import Settings
from headway.wiring import assemble, open_application

TOPIC = GROUP = "orders"
START = datetime(2026, 2, 23, tzinfo=UTC)  # a Monday: Berlin changes its clocks in the fifth week, then comes Easter
ZONE, HOLIDAYS = "Europe/Berlin", "DE-BE"
STEP_S = 300
PARTITIONS, GROWN, GROWS_IN_WEEK = 6, 8, 3
CAPACITY = 120.0
WARM_WEEKS = 3
MAX_GROWTH = 0.02


class Clock:
    """Says what it was set to."""

    now = START

    def __call__(self) -> datetime:
        """Return the instant."""
        return self.now


class Group:
    """What a consumer group would do with the arrivals: FIFO, as fast as its members are."""

    def __init__(self) -> None:
        self.end = np.zeros(GROWN, dtype=np.int64)
        self.committed = np.zeros(GROWN, dtype=np.int64)

    def consume(self, arrivals: Any, members: int) -> Any:
        """Add arrivals, take what the members can, and return what was taken."""
        self.end += arrivals
        waiting = self.end - self.committed
        room = members * CAPACITY * STEP_S
        taken = waiting if waiting.sum() <= room else (waiting * (room / waiting.sum())).astype(np.int64)
        self.committed += taken
        return taken


def traffic(weeks: int, seed: int) -> Generated:
    """Return the traffic of the whole run, with the partitions that come later."""
    grid = TimeGrid(STEP_S, ZONE)
    shape = Traffic(rate=400.0, partitions=GROWN, skew=0.4)
    return generate(START, timedelta(weeks=weeks), grid, shape, calendar=Calendar(HOLIDAYS), seed=seed, topic=TOPIC)


def settings(folder: Path) -> Settings:
    """Return what a user would write for this group."""
    group = {
        "topics": [TOPIC], "mode": "shadow", "capacity_per_member": CAPACITY, "start_time": "2m", "max_replicas": 12,
        "step": f"{STEP_S}s", "timezone": ZONE, "holidays": HOLIDAYS,
    }  # fmt: skip
    return Settings.model_validate(
        {"state": str(folder), "groups": {GROUP: group}, "models": {"path": str(folder / "models")}}
    )


def tick(index: int, made: Generated, at: int, group: Group, members: int) -> Tick | None:
    """Return the tick of one step; None where nobody looked."""
    count = PARTITIONS if at * STEP_S < GROWS_IN_WEEK * 7 * 86_400 else GROWN
    counts = made.series.counts[:, at].astype(np.int64)
    counts[count:] = 0
    taken = group.consume(counts, members)
    if not made.series.known[0, at]:
        return None
    known = np.ones(count, dtype=np.bool_)
    values = {
        ("arrivals", None): counts, ("end_offset", None): group.end, ("consumed", GROUP): taken,
        ("committed", GROUP): group.committed, ("lag", GROUP): group.end - group.committed,
    }  # fmt: skip
    cells = {SeriesKey(TOPIC, n, g, STEP_S): (v[:count].copy(), known) for (n, g), v in values.items()}
    return Tick(TOPIC, STEP_S, index, cells)


def sizes(app: Application) -> dict[str, float]:
    """Measure everything that might grow."""
    status = Path("/proc/self/status").read_text()
    rss_kb = int(status.split("VmRSS:")[1].split()[0])
    health = app.store.health()
    return {
        "rss_mb": rss_kb / 1024,
        "descriptors": float(len(list(Path("/proc/self/fd").iterdir()))),
        "threads": float(threading.active_count()),
        "store_bytes": float(health.used_bytes or 0),
    }


def soak(weeks: int, folder: Path, seed: int) -> dict[str, Any]:
    """Run the weeks, and return what was measured at the end of each."""
    made, group, clock = traffic(weeks, seed), Group(), Clock()
    per_week = 7 * 86_400 // STEP_S
    failures, per_end, late_steps, runs, members = [], [], 0, 0, 4
    for week in range(weeks):
        with ExitStack() as stack:
            app = stack.enter_context(open_application(settings(folder), clock))
            jobs: Jobs = assemble(app, stack, ScalerBoard())
            for k in range(per_week):
                at = week * per_week + k
                clock.now = START + timedelta(seconds=(at + 1) * STEP_S)
                one = tick(made.series.first_index + at, made, at, group, members)
                if one is not None:
                    app.store.append([one])
                late_steps += int((group.end - group.committed).sum() > members * CAPACITY * 60)
                due = [("act", True), ("forecast", k % 3 == 0), ("seal", k % 12 == 1), ("prune", k % 288 == 55)]
                for name in [name for name, yes in due if yes] + (["retrain"] if k % 288 == 39 else []):
                    result = jobs.run_now(name, GROUP)
                    runs += 1
                    if not result.ok:
                        failures.append(f"{clock.now:%Y-%m-%d %H:%M} {name}: {result.detail}")
                view = app.view(GROUP)
                if view.plan is not None:
                    members = view.plan.replicas
                if k % 288 == 287:
                    say(f"week {week + 1}/{weeks} {clock.now:%a %d %b} members {members} rung {view.rung} {sizes(app)}")
            per_end.append(sizes(app) | {"rung": app.view(GROUP).rung, "wape": app.view(GROUP).scores.get("wape")})
    return {"weeks": per_end, "failures": failures, "late_steps": late_steps, "job_runs": runs}


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)


def growth(weeks: list[dict[str, Any]], what: str) -> float:
    """Return how much a size grew from the end of the warm-up to the end, relative."""
    return float(weeks[-1][what] / weeks[WARM_WEEKS - 1][what] - 1)


def main() -> None:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", type=float, metavar="SECONDS", help="headway serve against a real broker instead")
    args = parser.parse_args()
    if args.real is not None:
        figures = soak_hour.run(args.real)
        print({k: v for k, v in figures.items() if k != "looks"})
        keep_figures("soak_hour", figures, ("numpy", "redis", "confluent-kafka"))
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = soak(args.weeks, Path(folder), args.seed)
    weeks = result["weeks"]
    figures = {
        **result,
        "seconds": time.monotonic() - began,
        "growth": {what: growth(weeks, what) for what in ("rss_mb", "descriptors", "threads")},
        "goals": {"growth": MAX_GROWTH},
    }
    for number, row in enumerate(weeks, 1):
        said = (f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print(f"week {number}: " + "  ".join(said))
    print(f"growth after week {WARM_WEEKS}: {figures['growth']}; failures: {result['failures'] or 'none'}")
    keep_figures("soak", figures, ("numpy", "scikit-learn", "redis"))


if __name__ == "__main__":
    main()
