"""Cells of several writes and days joined into one range."""

from __future__ import annotations

from collections.abc import Sequence

from forecaster.stores.base import Cells
from forecaster.stores.retention import steps_per_day


def day_range(day: int, step_s: int) -> tuple[int, int]:
    """Return the numbers of a day's first step and of the first after it.

    Examples
    --------
    >>> day_range(1, 3600)
    (24, 48)
    """
    steps = steps_per_day(step_s)
    return day * steps, (day + 1) * steps


def days_between(first_index: int, end_index: int, step_s: int) -> range:
    """Return the days (since 1970-01-01) that the steps ``[first_index, end_index)`` touch.

    Examples
    --------
    >>> list(days_between(23, 25, 3600)), list(days_between(24, 24, 3600))
    ([0, 1], [])
    """
    steps = steps_per_day(step_s)
    return range(first_index // steps, -(-end_index // steps)) if end_index > first_index else range(0)


def join(parts: Sequence[Cells], first_index: int, end_index: int) -> Cells:
    """Lay parts over ``[first_index, end_index)``; where they overlap, a later known cell wins.

    There are as many rows as the widest part has; what no part knows is not known.

    Examples
    --------
    >>> import numpy as np
    >>> under = Cells(0, np.array([[1, 2, 3]]), np.ones((1, 3), dtype=bool))
    >>> over = Cells(1, np.array([[9, 0], [7, 7]]), np.array([[True, False], [True, True]]))
    >>> join([under, over], 0, 4).values.tolist()
    [[1, 9, 3, 0], [0, 7, 7, 0]]
    """
    result = Cells.missing(first_index, max((p.partitions for p in parts), default=0), max(end_index - first_index, 0))
    for part in parts:
        write_onto(result, part)
    return result


def write_onto(target: Cells, part: Cells) -> None:
    """Write every known cell of ``part`` that falls into ``target`` upon it, in place.

    Raises
    ------
    ValueError
        If ``part`` has more partitions.
    """
    if part.partitions > target.partitions:
        raise ValueError(f"{part.partitions} partitions do not fit into {target.partitions}")
    lo, hi = max(target.first_index, part.first_index), min(target.end_index, part.end_index)
    if lo >= hi:
        return
    into = (slice(0, part.partitions), slice(lo - target.first_index, hi - target.first_index))
    known = part.known[:, lo - part.first_index : hi - part.first_index]
    values = part.values[:, lo - part.first_index : hi - part.first_index]
    if known.all():
        target.values[into] = values
        target.known[into] = True
    else:
        target.values[into][known] = values[known]
        target.known[into] |= known
