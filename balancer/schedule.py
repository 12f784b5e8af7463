"""Replicas over the horizon at least cost: an exact dynamic programme over when to change.

Given the members needed in each cell, the path ``n >= need`` that minimises *paid hours + price × changes* keeps one
size over a run of cells, and that size is the run's highest need. So it is enough to choose where runs end::

    M(k) = min over j > k of  max(need[k..j-1]) * hours[k..j-1] + (price + M(j) if j < cells else 0)

``M(k)`` is the cost of the cells from ``k`` on with a free choice of size at ``k``. All functions work on arrays whose
last axis is the cells; leading axes are runs. ``docs/planner-math.md`` derives the need from expected lateness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def brought_forward(need: Integers, covered: Integers) -> Integers:
    """Return what must be *requested* in each cell so that ``need`` works: the highest need until ``covered``.

    The working set is the smallest request within the last lead time, so it covers every need if and only if each
    request covers every need until a lead time later.

    Examples
    --------
    >>> brought_forward(np.array([1, 1, 5, 2]), np.array([1, 2, 3, 3])).tolist()
    [1, 5, 5, 2]
    """
    span = int((covered - np.arange(covered.size)).max(initial=0))
    result = need
    for ahead in range(1, span + 1):
        reach = covered[:-ahead] >= np.arange(covered.size - ahead) + ahead
        shifted = np.where(reach, need[..., ahead:], 0)
        result = np.concatenate([np.maximum(result[..., :-ahead], shifted), result[..., -ahead:]], axis=-1)
    return result


def cost_to_go(need: Integers, hours: Floats, price: Floats | float) -> tuple[Floats, Integers]:
    """Return (M, first run's end): least cost from each cell on, and where the run that starts there ends.

    Parameters
    ----------
    need
        Shape (..., cells), members.
    hours
        Shape (cells,), hours of each cell.
    price
        Member-hours per change, shape (...).

    Returns
    -------
    tuple of ndarray
        M of shape (..., cells + 1), the last entry 0; ends of shape (..., cells).
    """
    cells = need.shape[-1]
    lead = need.shape[:-1]
    until = np.concatenate([[0.0], np.cumsum(hours)])
    best = np.zeros((*lead, cells + 1))
    tail = np.zeros((*lead, cells + 1))
    ends = np.empty((*lead, cells), dtype=np.int64)
    highest = need.astype(np.float64)
    price = np.asarray(price, dtype=np.float64)
    for k in range(cells - 1, -1, -1):
        run = highest[..., k:]
        if k < cells - 1:
            np.maximum(run, run[..., :1], out=run)
        cost = run * (until[k + 1 :] - until[k])
        cost += tail[..., k + 1 :]
        where = cost.argmin(axis=-1)
        ends[..., k] = where + (k + 1)
        best[..., k] = np.take_along_axis(cost, where[..., None], axis=-1)[..., 0]
        tail[..., k] = best[..., k] + price
    return best, ends


def first_choice(need: Integers, hours: Floats, price: Floats | float, current: Integers) -> Integers:
    """Return the size to request now: the cheapest path's first size, or ``current`` if keeping it costs no more.

    Keeping is compared with its exact cost: as long as ``current`` covers the need, at any later cell one may change.

    Examples
    --------
    >>> hours = np.full(4, 0.25)
    >>> first_choice(np.array([2, 2, 2, 2]), hours, 2.0, np.array(3)).item()  # saves 1 hour, costs 2
    3
    >>> first_choice(np.array([2, 2, 2, 2]), hours, 0.5, np.array(3)).item()
    2
    >>> first_choice(np.array([4, 2, 2, 2]), hours, 9.0, np.array(3)).item()
    4
    """
    best, ends = cost_to_go(need, hours, price)
    cells = need.shape[-1]
    until = np.concatenate([[0.0], np.cumsum(hours)])
    highest = np.maximum.accumulate(need, axis=-1)
    chosen = np.take_along_axis(highest, ends[..., :1] - 1, axis=-1)[..., 0]
    change = np.asarray(price, dtype=np.float64)[..., None]
    leave = best[..., 1:] + np.where(np.arange(1, cells + 1) < cells, change, 0.0)
    enough = highest <= current[..., None]
    keep = np.where(enough, current[..., None] * until[1:] + leave, np.inf).min(axis=-1)
    result: Integers = np.where(keep <= best[..., 0] + change[..., 0] + 1e-12, current, chosen)
    return result


@dataclass(frozen=True, slots=True)
class Stretch:
    """From cell ``cell`` on: ``replicas`` members."""

    cell: int
    replicas: int


def cheapest_stretches(need: Integers, hours: Floats, price: float, first: int) -> tuple[Stretch, ...]:
    """Return the cheapest path that begins with ``first`` members, which must cover the first cell.

    Examples
    --------
    >>> cheapest_stretches(np.array([2, 2, 5, 5]), np.full(4, 1.0), 0.5, 2)
    (Stretch(cell=0, replicas=2), Stretch(cell=2, replicas=5))
    """
    best, ends = cost_to_go(need, hours, price)
    cells = need.size
    until = np.concatenate([[0.0], np.cumsum(hours)])
    enough = int(np.argmax(need > first)) if (need > first).any() else cells
    enough = max(enough, 1)
    stops = np.arange(1, enough + 1)
    cost = first * until[stops] + np.where(stops < cells, price + best[stops], 0.0)
    at = int(stops[int(cost.argmin())])
    path = [Stretch(0, first)]
    while at < cells:
        end = int(ends[at])
        replicas = int(need[at:end].max())
        if replicas != path[-1].replicas:
            path.append(Stretch(at, replicas))
        at = end
    return tuple(path)
