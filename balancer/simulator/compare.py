"""Rivals in one world, side by side, with the clairvoyant limit that everybody is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from balancer.capacity import assigned_curve
from balancer.rivals.fixed import cron_last_week, perfect, static_peak
from balancer.rivals.tuning import Grid, Wish, flink_grid, history_weeks, keda_grid, rate_grid, tune
from balancer.simulator.batch import Integers
from balancer.simulator.outcome import Outcome
from balancer.simulator.packers import PACKERS, run_packer
from balancer.simulator.world import World, run_path, run_rule

RIVALS = ("keda_lag", "rate_reactive", "cron_last_week", "flink", "static_peak", "perfect")


def run_rival(name: str, world: World, wish: Wish) -> Outcome:
    """Run one rival by name, tuned by ``wish`` on the history before the run where it has something to tune.

    Raises
    ------
    KeyError
        If there is no such rival.
    """
    if name in PACKERS:
        return run_packer(name, world)
    limit = world.limit_replicas
    if name == "static_peak":
        size = static_peak(world.history, world.capacity, limit) if world.history.size else limit
        return run_path(world, np.full(world.run_minutes, size, dtype=np.int64), notes=(f"{size} replicas",))
    if name == "perfect":
        return run_path(world, _perfect(world), clairvoyant=True)
    if name == "cron_last_week":
        path = cron_last_week(world.history, world.run_minutes, world.capacity, limit)
        return run_path(world, path, notes=("busiest minute of the same hour last week, utilisation 0.8",))
    grids: dict[str, Callable[[], Grid]] = {
        "keda_lag": lambda: keda_grid(world.capacity, limit, world.trace.queues if world.trace.partitioned else None),
        "rate_reactive": lambda: rate_grid(world.capacity, limit),
        "flink": lambda: flink_grid(world.capacity, limit),
    }
    grid = grids[name]()
    rows, before = history_weeks(world.history) if world.history.size > 1 else (world.arrivals[None, :1], np.zeros(1))
    setting = world.setting(rows, before)
    if world.trace.partitioned:  # history is served as the run will be: by members that share partitions by count
        setting = replace(setting, curve=assigned_curve(world.capacity, world.shares, limit, "range"))
    policy, words = tune(grid, setting, wish)
    return run_rule(world, policy, notes=(f"tuned on history: {words}",))


def against_limit(outcomes: Mapping[str, Outcome], limit_hours: float) -> dict[str, Outcome]:
    """Return the outcomes with ``hours_vs_limit`` filled in."""
    return {name: replace(o, hours_vs_limit=o.hours / limit_hours) for name, o in outcomes.items()}


def limit_hours(world: World) -> float:
    """Return the member-hours of the clairvoyant path at no more than 24 changes a day."""
    return float(_perfect(world).sum()) / 60


def _perfect(world: World) -> Integers:
    return np.maximum(perfect(world.arrivals, world.capacity, world.limit_replicas), world.min_replicas)


def compare(world: World, names: Sequence[str], wish: Wish | None = None) -> dict[str, Outcome]:
    """Run rivals by name; those that tune look for the fewest hours at no more than one late record in 10,000."""
    outcomes = {name: run_rival(name, world, wish or Wish(late_share=1e-4)) for name in names}
    return against_limit(outcomes, limit_hours(world))
