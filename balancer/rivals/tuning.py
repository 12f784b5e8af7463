"""Rivals tuned on history: a grid of settings simulated in one pass, and the best one by a stated wish."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from balancer.rivals.fixed import WEEK_MINUTES
from balancer.rivals.flink import Flink
from balancer.rivals.keda_lag import KedaLag
from balancer.rivals.rate_reactive import RateReactive
from balancer.simulator.batch import BatchFigures, BatchPolicy, Floats, Setting, run_batch

UTILISATIONS = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
WINDOWS_S = (300.0, 600.0, 900.0, 1800.0, 3600.0, 5400.0)
LAG_SECONDS = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0)
FLINK_UTILISATIONS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Wish:
    """What tuning looks for: the fewest late records within ``hours``, or the fewest hours within ``late_share``.

    Both limits are per history as a whole; exactly one is given.
    """

    hours: float | None = None
    late_share: float | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A family of settings: how to build the policy for many runs, and what each setting is."""

    names: tuple[str, ...]
    settings: tuple[tuple[float, ...], ...]
    build: Callable[[tuple[Floats, ...]], BatchPolicy]


def rate_grid(capacity: float, max_replicas: int) -> Grid:
    """Return the grid of the rate rule: utilisation × scale-down window."""
    return Grid(
        ("utilisation", "window_s"),
        tuple(itertools.product(UTILISATIONS, WINDOWS_S)),
        lambda values: RateReactive(values[0], values[1], capacity, max_replicas),
    )


def keda_grid(capacity: float, max_replicas: int, partitions: int | None) -> Grid:
    """Return the grid of KEDA's lag rule: thresholds worth 2 to 30 s of one member."""
    return Grid(
        ("lag_threshold",),
        tuple((max(1.0, s * capacity),) for s in LAG_SECONDS),
        lambda values: KedaLag(values[0], max_replicas, partitions),
    )


def flink_grid(capacity: float, max_replicas: int) -> Grid:
    """Return the grid of Flink's formula: target utilisation."""
    return Grid(
        ("utilisation",),
        tuple((u,) for u in FLINK_UTILISATIONS),
        lambda values: Flink(values[0], capacity, max_replicas),
    )


def history_weeks(history: Floats, weeks: int = 3) -> tuple[Floats, Floats]:
    """Cut the end of a history into rows of a week each (or one shorter row), and the minute before each.

    Examples
    --------
    >>> rows, before = history_weeks(np.arange(3 * 10080.0), 2)
    >>> rows.shape, before.tolist()
    ((2, 10080), [20159.0, 10079.0])
    """
    whole = min(weeks, (history.size - 1) // WEEK_MINUTES)
    length = WEEK_MINUTES if whole else max(1, history.size - 1)
    rows = [history[history.size - (k + 1) * length :][:length] for k in range(max(whole, 1))]
    before = [history[history.size - (k + 1) * length - 1] for k in range(max(whole, 1))]
    return np.array(rows), np.array(before)


def score(grid: Grid, setting: Setting, *, in_place: bool = True) -> tuple[Floats, Floats, Floats]:
    """Simulate every setting on every row; return (late share, hours, changes a day), one entry a setting.

    ``in_place`` as in :func:`balancer.simulator.batch.run_batch`: rows are weeks cut out of a history.
    """
    rows = setting.minutes.shape[0]
    count = len(grid.settings)
    values = tuple(np.repeat(np.array(column), rows) for column in zip(*grid.settings, strict=True))
    row = np.tile(np.arange(rows), count)
    figures: BatchFigures = run_batch(grid.build(values), setting, row, in_place=in_place)
    volume = setting.minutes.sum(axis=1)
    weight = volume / max(volume.sum(), 1e-9)
    late = (figures.late_share.reshape(count, rows) * weight).sum(axis=1)
    hours = figures.hours.reshape(count, rows).sum(axis=1)
    rescales = figures.rescales_per_day.reshape(count, rows).mean(axis=1)
    return late, hours, rescales


def choose(grid: Grid, scores: tuple[Floats, Floats, Floats], wish: Wish) -> tuple[BatchPolicy, str]:
    """Return the policy (for one run) whose scores serve the wish best, and its setting in words.

    Where no setting keeps the limit, the one that comes nearest to it is taken.
    """
    late, hours, _ = scores
    if wish.hours is not None:
        allowed, cost, excess = hours <= wish.hours, late + 1e-12 * hours, hours
    else:
        limit = wish.late_share if wish.late_share is not None else 1e-4
        allowed, cost, excess = late <= limit, hours, late
    best = int(np.argmin(np.where(allowed, cost, np.inf))) if allowed.any() else int(np.argmin(excess))
    chosen = grid.settings[best]
    words = ", ".join(f"{name} {value:g}" for name, value in zip(grid.names, chosen, strict=True))
    return grid.build(tuple(np.array([v]) for v in chosen)), words


def tune(grid: Grid, setting: Setting, wish: Wish) -> tuple[BatchPolicy, str]:
    """Score every setting on history and choose by the wish."""
    return choose(grid, score(grid, setting), wish)
