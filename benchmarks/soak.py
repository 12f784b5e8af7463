"""Weeks of the whole product in minutes: ``make bench-soak``; an hour of it in earnest: ``--real 3600``.

Synthetic traffic with a known shape is recorded, forecast, planned, carried out on a target in memory, sealed, pruned
and retrained, all by the jobs that ``headway serve`` runs, under a clock that jumps from step to step. On the way there
are a clock change, holidays, more partitions from the third week on, outages, unseen stretches, and a restart of the
whole application every week. What it looks for is what grows: memory, descriptors, threads, keys, bytes in the store.

    python -m benchmarks.soak [--weeks 9]
    python -m benchmarks.soak --real 3600      # headway serve, worker processes and a real broker
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import redis

from balancer.actuators.board import ScalerBoard
from benchmarks import soak_hour
from benchmarks.figures import keep_figures
from forecaster.calendar import Calendar
from forecaster.stores.base import SeriesKey, Tick
from forecaster.synthetic import Generated, Traffic, generate
from forecaster.timegrid import TimeGrid
from headway.application import Application
from headway.assembly import assemble
from headway.configuration.settings import Settings
from headway.status import logs
from headway.wiring import open_application
from headway.work.children import Children
from headway.work.jobs import Jobs

TOPIC = GROUP = "orders"
START = datetime(2026, 2, 23, tzinfo=UTC)  # a Monday: Berlin changes its clocks in the fifth week, then comes Easter
ZONE, HOLIDAYS = "Europe/Berlin", "DE-BE"
STEP_S = 1800
DAY, WEEK = 86_400 // STEP_S, 7 * 86_400 // STEP_S
PARTITIONS, GROWN, GROWS_IN_WEEK = 6, 8, 2
CAPACITY = 120.0
WARM_WEEKS = 3
MAX_GROWTH = 0.02
AGED_EVERY = DAY // 4

# What the store lets expire by its own clock, it would have let expire by now under ours.
_AGE = """
local gone = 0
for _, key in ipairs(redis.call('KEYS', 'hw:*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    if left <= tonumber(ARGV[1]) then gone = gone + redis.call('DEL', key)
    else redis.call('PEXPIRE', key, left - tonumber(ARGV[1])) end
  end
end
return gone
"""


class Clock:
    """Says what it was set to."""

    now = START

    def __call__(self) -> datetime:
        """Return the instant."""
        return self.now


class Group:
    """What a consumer group would do with the arrivals: FIFO, as fast as its members are."""

    def __init__(self) -> None:
        self.members = 4
        self.end = np.zeros(GROWN, dtype=np.int64)
        self.committed = np.zeros(GROWN, dtype=np.int64)

    @property
    def lag(self) -> Any:
        """Records that wait, a partition each."""
        return self.end - self.committed

    def consume(self, arrivals: Any) -> Any:
        """Add arrivals, take what the members can, and return what was taken."""
        self.end += arrivals
        waiting, room = self.lag, self.members * CAPACITY * STEP_S
        taken = waiting if waiting.sum() <= room else (waiting * (room / waiting.sum())).astype(np.int64)
        self.committed += taken
        return taken


@dataclass(slots=True)
class Course:
    """What happened on the way."""

    failures: list[str] = field(default_factory=list)
    late_steps: int = 0
    rescales: int = 0
    job_runs: int = 0
    expired: int = 0
    said: Counter[str] = field(default_factory=Counter)


def traffic(weeks: int, seed: int) -> Generated:
    """Return the traffic of the whole run, with the partitions that come later."""
    shape = Traffic(rate=400.0, partitions=GROWN, skew=0.4)
    length, grid = timedelta(weeks=weeks), TimeGrid(STEP_S, ZONE)
    return generate(START, length, grid, shape, calendar=Calendar(HOLIDAYS), seed=seed, topic=TOPIC)


def settings(folder: Path) -> Settings:
    """Return what a user would write for this group."""
    group = {
        "topics": [TOPIC], "mode": "shadow", "capacity_per_member": CAPACITY, "start_time": "2m", "max_replicas": 12,
        "step": f"{STEP_S}s", "timezone": ZONE, "holidays": HOLIDAYS,
    }  # fmt: skip
    return Settings.model_validate(
        {"state": str(folder), "groups": {GROUP: group}, "models": {"path": str(folder / "models")}}
    )


def tick(made: Generated, at: int, group: Group) -> Tick | None:
    """Return the tick of one step; None where nobody looked."""
    count = PARTITIONS if at < GROWS_IN_WEEK * WEEK else GROWN
    counts = made.series.counts[:, at].astype(np.int64)
    counts[count:] = 0
    taken = group.consume(counts)
    if not made.series.known[0, at]:
        return None
    known = np.ones(count, dtype=np.bool_)
    values = {
        ("arrivals", None): counts, ("end_offset", None): group.end, ("consumed", GROUP): taken,
        ("committed", GROUP): group.committed, ("lag", GROUP): group.lag,
    }  # fmt: skip
    cells = {SeriesKey(TOPIC, n, g, STEP_S): (v[:count].copy(), known) for (n, g), v in values.items()}
    return Tick(TOPIC, STEP_S, made.series.first_index + at, cells)


def due(k: int) -> list[str]:
    """Return the jobs of a step of the week, as their schedules have them."""
    often = ["forecast"] if k % 2 == 0 else []
    hourly = ["seal"] if k % (3600 // STEP_S) == 1 else []
    daily = {DAY // 7: ["retrain"], DAY // 5: ["prune"]}.get(k % DAY, [])
    return [*often, "act", *hourly, *daily]


def sizes(app: Application) -> dict[str, Any]:
    """Measure everything that might grow; what only waits to be collected is no growth."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    client = redis.Redis.from_url(app.url, protocol=2)
    try:
        keys: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for key in client.scan_iter("hw:*", 1000):
            kind = key.split(b":")[1].decode()
            keys[kind] += 1
            used[kind] += client.memory_usage(key, samples=0) or 0
    finally:
        client.close()
    series = sum(used[kind] for kind in ("row", "ts", "day", "meta"))
    return {
        "rss_mb": int(status.split("VmRSS:")[1].split()[0]) / 1024,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "keys": dict(sorted(keys.items())),
        "series_kb": series / 1000,
        "decisions_kb": (used["decision"] + used["log"] + used["attached"]) / 1000,
        "store_kb": sum(used.values()) / 1000,
    }


def one_step(app: Application, jobs: Jobs, clock: Clock, made: Generated, at: int, group: Group, seen: Course) -> None:
    """Let one step pass: it is recorded, and what is due runs."""
    clock.now = START + timedelta(seconds=(at + 1) * STEP_S)
    recorded = tick(made, at, group)
    if recorded is not None:
        app.store.append([recorded])
    seen.late_steps += int(group.lag.sum() > group.members * CAPACITY * 60)
    for name in due(at % WEEK):
        result = jobs.run_now(name, GROUP)
        seen.job_runs += 1
        if not result.ok:
            seen.failures.append(f"{clock.now:%Y-%m-%d %H:%M} {name}: {result.detail}")
        elif name == "retrain":
            seen.said[result.detail.split(":")[1].strip() if ":" in result.detail else result.detail] += 1
    plan = app.view(GROUP).plan
    if plan is not None:
        seen.rescales += plan.replicas != group.members
        group.members = plan.replicas


def soak(weeks: float, folder: Path, seed: int, life: int = WEEK) -> dict[str, Any]:
    """Run the weeks, started anew after ``life`` steps, and return what was measured at the end of each life."""
    made, group, clock, seen = traffic(max(int(np.ceil(weeks)), 1), seed), Group(), Clock(), Course()
    steps, per_end = int(weeks * WEEK), []
    for first in range(0, steps, life):
        with ExitStack() as stack:
            app = stack.enter_context(open_application(settings(folder), clock))
            app.trainers = Children(1, 600, "retraining")
            stack.callback(app.trainers.close)
            logs.configure("warning")  # not a line for each of its hundred thousand decisions
            jobs = assemble(app, stack, ScalerBoard())
            age = redis.Redis.from_url(app.url, protocol=2)
            stack.callback(age.close)
            for at in range(first, min(first + life, steps)):
                one_step(app, jobs, clock, made, at, group, seen)
                if (at + 1) % AGED_EVERY == 0:
                    seen.expired += int(age.eval(_AGE, 0, AGED_EVERY * STEP_S * 1000))
                if (at + 1) % DAY == 0:
                    say(f"{clock.now:%a %d %b}: {group.members} members, rung {app.view(GROUP).rung}")
            scores = app.view(GROUP).scores
            per_end.append(sizes(app) | {"rung": app.view(GROUP).rung, "wape": scores.get("wape")})
            say(f"week {len(per_end)}: {per_end[-1]}")
    return {
        "weeks": per_end,
        "failures": seen.failures,
        "late_steps": seen.late_steps,
        "rescales": seen.rescales,
        "job_runs": seen.job_runs,
        "expired": seen.expired,
        "retrained": dict(seen.said),
    }


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)


def growth(weeks: list[dict[str, Any]]) -> dict[str, float]:
    """Return how much each size grew from the end of the warm-up to the end, relative."""
    warm, last = weeks[WARM_WEEKS - 1], weeks[-1]
    return {what: last[what] / warm[what] - 1 for what in ("rss_mb", "descriptors", "threads", "decisions_kb")}


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
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(args.weeks, Path(folder), args.seed)
    figures |= {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu, "max_growth": MAX_GROWTH}
    if len(figures["weeks"]) > WARM_WEEKS:
        figures["growth"] = growth(figures["weeks"])
        print("growth:", {what: f"{value:+.2%}" for what, value in figures["growth"].items()})
    print({k: v for k, v in figures.items() if k not in ("weeks", "growth")})
    keep_figures("soak", figures, ("numpy", "scikit-learn", "redis"))


if __name__ == "__main__":
    main()
