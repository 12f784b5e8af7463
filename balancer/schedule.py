"""Replicas over the horizon at least cost: an exact dynamic programme over when to change.

Given the members needed in each cell, the path ``n >= need`` that minimises *paid hours + price × changes* keeps one
size over a run of cells, and that size is the run's highest need. So it is enough to choose where runs end::

    M(k) = min over j > k of  max(need[k..j-1]) * hours[k..j-1] + (price + M(j) if j < cells else 0)

``M(k)`` is the cost of the cells from ``k`` on with a free choice of size at ``k``. ``docs/planner-math.md`` derives
the need from expected lateness. Arrays of many runs have the cells as their *first* axis; the planner's single run
goes through plain numbers, which is faster than arrays of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NO_CHEAPER = 1e-12


def reaches(covered: Integers) -> tuple[Integers, ...]:
    """Return, for 1, 2 … cells ahead as far as any request must cover, each cell's cell there.

    Parameters
    ----------
    covered
        Shape (cells,): the last cell that a request made in each cell must cover.
    """
    cell = np.arange(covered.size)
    return tuple(np.minimum(cell + ahead, covered) for ahead in range(1, int((covered - cell).max()) + 1))


def highest_of(need: Integers, ahead: Sequence[Integers]) -> Integers:
    """Return what must be *requested* in each cell so that ``need`` works: the highest need of it and its cells ahead.

    The working set is the smallest request within the last lead time, so it covers every need if and only if each
    request covers every need until a lead time later.

    Parameters
    ----------
    need
        Shape (cells, ...).
    ahead
        Cells ahead of each, as :func:`reaches` names them.

    Examples
    --------
    >>> highest_of(np.array([1, 1, 5, 2]), reaches(np.array([1, 2, 3, 3]))).tolist()
    [1, 5, 5, 2]
    """
    result = need
    for cells in ahead:
        result = np.maximum(result, need[cells])
    return result


def first_choices(need: Integers, hours: Floats, price: Floats, current: Integers) -> Integers:
    """Return the size to request now in each of many runs; see :func:`first_choice`.

    Parameters
    ----------
    need
        Shape (cells, runs), members.
    hours
        Shape (cells,), hours of each cell.
    price
        Member-hours per change, shape (runs,).
    current
        What is requested now, shape (runs,).
    """
    cells = need.shape[0]
    until = np.concatenate([[0.0], np.cumsum(hours)])
    highest = need.astype(np.float64)
    tail = np.zeros((cells + 1, need.shape[1]))
    cost = np.empty_like(highest)
    for k in range(cells - 1, -1, -1):
        run = highest[k:]
        np.maximum(run[1:], run[0], out=run[1:])
        part = np.multiply(run, (until[k + 1 :] - until[k])[:, None], out=cost[k:])
        part += tail[k + 1 :]
        if k:
            np.min(part, axis=0, out=tail[k])
            tail[k] += price
    where = cost.argmin(axis=0)
    runs = np.arange(need.shape[1])
    best = cost[where, runs]
    keep = np.where(highest <= current, current * until[1:, None] + tail[1:], np.inf).min(axis=0)
    chosen: Integers = np.where(keep <= best + price + _NO_CHEAPER, current, highest[where, runs]).astype(np.int64)
    return chosen


@dataclass(frozen=True, slots=True)
class Stretch:
    """From cell ``cell`` on: ``replicas`` members."""

    cell: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Costs of one run's horizon, and the cheapest path from any first size.

    Parameters
    ----------
    need
        Members that must be requested in each cell.
    price
        Member-hours per change.
    best
        M of each cell, and 0 at the end.
    ends
        Where the cheapest run that starts in each cell ends.
    until
        Hours from now to each cell's start, and to the end.
    """

    need: tuple[int, ...]
    price: float
    best: tuple[float, ...]
    ends: tuple[int, ...]
    until: tuple[float, ...]

    def first_choice(self, current: int) -> int:
        """Return the cheapest path's first size, or ``current`` if keeping it for now costs no more than changing.

        Examples
        --------
        >>> schedule([2, 2, 2, 2], [0.25] * 4, 2.0).first_choice(3)  # saves 1 hour, costs 2
        3
        >>> schedule([2, 2, 2, 2], [0.25] * 4, 0.5).first_choice(3)
        2
        >>> schedule([4, 2, 2, 2], [0.25] * 4, 9.0).first_choice(3)
        4
        """
        keep, _ = self._keeping(current)
        if keep <= self.best[0] + self.price + _NO_CHEAPER:
            return current
        return max(self.need[: self.ends[0]])

    def _keeping(self, size: int) -> tuple[float, int]:
        """Return (cost, cells) of the cheapest path that keeps ``size`` for some cells; infinite if it cannot."""
        cells, least, end = len(self.need), float("inf"), 0
        for k in range(cells):
            if self.need[k] > size:
                break
            cost = size * self.until[k + 1] + (self.price + self.best[k + 1] if k + 1 < cells else 0.0)
            if cost < least:
                least, end = cost, k + 1
        return least, end

    def path(self, first: int) -> tuple[Stretch, ...]:
        """Return the cheapest path that begins with ``first`` members.

        Examples
        --------
        >>> schedule([2, 2, 5, 5], [1.0] * 4, 0.5).path(2)
        (Stretch(cell=0, replicas=2), Stretch(cell=2, replicas=5))
        """
        path = [Stretch(0, first)]
        at = max(self._keeping(first)[1], 1)
        while at < len(self.need):
            end = self.ends[at]
            replicas = max(self.need[at:end])
            if replicas != path[-1].replicas:
                path.append(Stretch(at, replicas))
            at = end
        return tuple(path)


def schedule(need: Sequence[int], hours: Sequence[float], price: float) -> Schedule:
    """Return the costs of one run's horizon."""
    cells = len(need)
    until = [0.0]
    for h in hours:
        until.append(until[-1] + h)
    best, ends = [0.0] * (cells + 1), [cells] * cells
    for k in range(cells - 1, -1, -1):
        highest, least, end, begun = 0, float("inf"), cells, until[k]
        for j in range(k, cells):
            if need[j] > highest:
                highest = need[j]
            cost = highest * (until[j + 1] - begun)
            if j + 1 < cells:
                cost += price + best[j + 1]
            if cost < least:
                least, end = cost, j + 1
        best[k], ends[k] = least, end
    return Schedule(tuple(need), price, tuple(best), tuple(ends), tuple(until))
