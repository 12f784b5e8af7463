"""Rivals whose path is known before the run: static peak, a cron copy of last week, and the clairvoyant limit."""

from __future__ import annotations

import math

import numpy as np

from balancer.simulator.batch import Floats, Integers

WEEK_MINUTES = 7 * 1440


def static_peak(history: Floats, capacity: float, max_replicas: int) -> int:
    """Return ``ceil(p99.9 of the one-minute rate over the last four weeks / capacity)``.

    Parameters
    ----------
    history
        Records per minute before the run.
    capacity
        Records/s of one member.
    max_replicas
        Never more; never fewer than one.

    Examples
    --------
    >>> static_peak(np.full(1440, 6000.0), 30.0, 64)
    4
    """
    peak = float(np.quantile(history[-4 * WEEK_MINUTES :], 0.999)) / 60
    return int(min(max(1, math.ceil(peak / capacity - 1e-9)), max_replicas))


def cron_last_week(
    history: Floats,
    minutes: int,
    capacity: float,
    max_replicas: int,
    *,
    utilisation: float = 0.8,
    block_minutes: int = 60,
    lead_minutes: int = 5,
) -> Integers:
    """Return a cron schedule copied from last week: per block, the busiest minute of the same block a week ago.

    Each block begins ``lead_minutes`` early, so that its members work in time. With less than a week of history, the
    last whole day is copied; with less than that, the busiest minute seen.

    Returns
    -------
    ndarray
        Replicas requested in each of the run's minutes.
    """
    season = WEEK_MINUTES if history.size >= WEEK_MINUTES else 1440
    if history.size < season:
        return np.full(minutes, static_peak(history, capacity * utilisation, max_replicas), dtype=np.int64)
    last = history[-season:]
    blocks = np.maximum.reduceat(last, np.arange(0, season, block_minutes))
    per_minute = np.repeat(blocks, block_minutes)[:season]
    ahead = np.maximum(per_minute, np.roll(per_minute, -lead_minutes))
    need = np.ceil(ahead / 60 / (utilisation * capacity) - 1e-9).astype(np.int64)
    path: Integers = np.clip(need[np.arange(minutes) % season], 1, max_replicas)
    return path


def needed_replicas(minutes: Floats, capacity: float, max_replicas: int) -> Integers:
    """Return the members that each minute needs: mean of this and the next minute over capacity, no backlog credit.

    Examples
    --------
    >>> needed_replicas(np.array([600.0, 1200.0, 1200.0]), 10.0, 64).tolist()
    [2, 2, 2]
    """
    return members_for(needed_records(minutes), capacity, max_replicas)


def needed_records(minutes: Floats) -> Floats:
    """Return the records that each minute must be ready for: the mean of this minute and the next."""
    mean: Floats = (minutes + np.append(minutes[1:], minutes[-1:])) / 2
    return mean


def members_for(demand: Floats, capacity: float, max_replicas: int) -> Integers:
    """Return the members that serve so many records per minute."""
    need: Integers = np.clip(np.ceil(demand / 60 / capacity - 1e-9).astype(np.int64), 1, max_replicas)
    return need


def cheapest_path(need: Integers, price: float) -> Integers:
    """Return the path ``n >= need`` of least ``hours + price * changes``, by dynamic programming over minutes."""
    edges = np.flatnonzero(np.diff(need)) + 1
    starts = np.concatenate([[0], edges])
    lengths = np.diff(np.concatenate([starts, [need.size]]))
    levels = need[starts]
    sizes = np.arange(int(levels.min()), int(levels.max()) + 1)
    cost = np.where(sizes >= levels[0], sizes * lengths[0] / 60, np.inf)
    source = np.empty((starts.size, sizes.size), dtype=np.int32)
    own = np.arange(sizes.size, dtype=np.int32)
    for k in range(1, starts.size):
        best = int(np.argmin(cost))
        switch = cost[best] + price
        stays = cost <= switch
        source[k] = np.where(stays, own, best)
        cost = np.where(stays, cost, switch) + np.where(sizes >= levels[k], sizes * lengths[k] / 60, np.inf)
    at = int(np.argmin(cost))
    path = np.empty(starts.size, dtype=np.int64)
    for k in range(starts.size - 1, -1, -1):
        path[k] = sizes[at]
        if k:
            at = int(source[k][at])
    return np.repeat(path, lengths)


def perfect(minutes: Floats, capacity: float, max_replicas: int, changes_per_day: float = 24.0) -> Integers:
    """Return the clairvoyant path per minute: least hours at no more than so many changes a day."""
    return least_hours(needed_replicas(minutes, capacity, max_replicas), changes_per_day)


def least_hours(need: Integers, changes_per_day: float = 24.0) -> Integers:
    """Return the path over what each minute needs that costs least at no more than so many changes a day.

    The price of a change is raised by bisection until the budget holds.
    """
    budget = changes_per_day * need.size / 1440
    low, high = 0.0, 1.0
    path = cheapest_path(need, low)
    if np.count_nonzero(np.diff(path)) <= budget:
        return path
    while np.count_nonzero(np.diff(path := cheapest_path(need, high))) > budget:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        candidate = cheapest_path(need, middle)
        if np.count_nonzero(np.diff(candidate)) <= budget:
            high, path = middle, candidate
        else:
            low = middle
    return path
