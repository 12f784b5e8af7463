"""Optima by mixed-integer programming (SciPy's HiGHS): the oracle of the tests, and an option for small groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from balancer.packing.bounds import TOLERANCE
from balancer.packing.members import Packing, pack, utilization


def fewest_bins(loads: NDArray[np.float64], capacity: float, seconds: float = 10.0) -> int:
    """Optimal number of equal members (bin packing); loads above the capacity take a member alone.

    Parameters
    ----------
    loads
        Records/s, one a partition.
    capacity
        Records/s of one member.
    seconds
        Time limit of the solver.

    Raises
    ------
    TimeoutError
        If the optimum was not proved in time.

    Examples
    --------
    >>> fewest_bins(np.array([60.0, 60.0, 40.0, 30.0]), 100.0)
    2
    """
    from balancer.packing.bounds import l2_bound
    from balancer.packing.rivals import best_fit_decreasing

    hot = int((loads >= capacity).sum())
    s = np.sort(loads[(loads < capacity) & (loads > 0)])[::-1]
    if not s.size:
        return hot
    low = l2_bound(s, capacity)
    high = int(best_fit_decreasing(s, np.full(s.size, -1), capacity).max()) + 1
    if low == high:
        return hot + low
    p, m = s.size, high
    # x[j, b] partition j in bin b; y[b] bin b is used. Bins are used in order, and partition j in a bin up to j alone.
    rows = [np.repeat(np.arange(p), m), p + np.tile(np.arange(m), p), p + np.arange(m), p + m + np.arange(m - 1)]
    cols = [np.arange(p * m), np.arange(p * m), p * m + np.arange(m), p * m + np.arange(m - 1)]
    data = [np.ones(p * m), np.repeat(s, m), np.full(m, -capacity * (1 + TOLERANCE)), np.ones(m - 1)]
    rows.append(p + m + np.arange(m - 1))
    cols.append(p * m + 1 + np.arange(m - 1))
    data.append(-np.ones(m - 1))
    shape = (p + 2 * m - 1, p * m + m)
    matrix = coo_array((np.concatenate(data), (np.concatenate(rows), np.concatenate(cols))), shape=shape)
    lower = np.concatenate((np.ones(p), np.full(m, -np.inf), np.zeros(m - 1)))
    upper = np.concatenate((np.ones(p), np.zeros(m), np.full(m - 1, np.inf)))
    top = np.ones(p * m + m)
    top[: p * m] = (np.arange(m)[None, :] <= np.arange(p)[:, None]).ravel()
    answer = milp(
        np.concatenate((np.zeros(p * m), np.ones(m))),
        constraints=LinearConstraint(matrix.tocsr(), lower, upper),
        integrality=np.ones(p * m + m),
        bounds=Bounds(np.concatenate((np.zeros(p * m), np.ones(low), np.zeros(m - low))), top),
        options={"time_limit": seconds},
    )
    if answer.status != 0:
        raise TimeoutError(f"no proved optimum of {p} partitions within {seconds} s: {answer.message}")
    return hot + round(float(answer.fun))


def pack_exactly(
    loads: NDArray[np.float64],
    capacity: NDArray[np.float64],
    owner: NDArray[np.intp],
    *,
    skew_limit: float = 1.25,
    budget: int | None = None,
    pinned: NDArray[np.bool_] | None = None,
    preferred: NDArray[np.bool_] | None = None,
    seconds: float = 10.0,
) -> Packing:
    """Least load above capacity, and under that least load moved: the optimum that :func:`pack` approaches.

    Parameters are those of :func:`balancer.packing.members.pack`. The skew limit counts where it can be kept: the
    heuristic's busiest member is never exceeded. ``preferred`` breaks ties.

    Raises
    ------
    ValueError
        As :func:`balancer.packing.members.pack`.
    TimeoutError
        If HiGHS found nothing in time.

    Examples
    --------
    >>> pack_exactly(np.array([60.0, 30.0, 20.0]), np.array([80.0, 50.0]), np.array([0, 0, 0])).owner
    array([0, 1, 0])
    """
    start = pack(loads, capacity, owner, skew_limit=skew_limit, budget=budget, pinned=pinned, preferred=preferred)
    usable = np.flatnonzero(capacity > 0)
    p, m = loads.size, usable.size
    if not p:
        return start
    held = owner >= 0
    total = max(float(loads.sum()), 1e-9)
    mean = total / float(capacity.sum())
    top = max(min(1.0, skew_limit * mean), float(start.utilization.max()) if start.utilization.max() <= 1 else 0.0)
    stays = owner[:, None] == usable[None, :]
    cost = np.where(held[:, None] & ~stays, loads[:, None] / total + 1e-6, 0.0)
    if preferred is not None:
        cost = cost + np.where(preferred[:, usable], 0.0, 1e-7)
    # x[j, b], then over[b]: load above the limit, in shares of all load, far dearer than any movement.
    columns = np.arange(p * m)
    rows = np.concatenate((np.repeat(np.arange(p), m), p + np.tile(np.arange(m), p), p + np.arange(m)))
    cols = np.concatenate((columns, columns, p * m + np.arange(m)))
    data = np.concatenate((np.ones(p * m), np.repeat(loads, m), np.full(m, -total)))
    lower = np.concatenate((np.ones(p), np.full(m, -np.inf)))
    upper = np.concatenate((np.ones(p), capacity[usable] * top * (1 + TOLERANCE)))
    constraints = [LinearConstraint(coo_array((data, (rows, cols))).tocsr(), lower, upper)]
    if budget is not None:
        counts = np.concatenate(((held[:, None] & ~stays & (capacity[owner] > 0)[:, None]).ravel(), np.zeros(m)))
        constraints.append(LinearConstraint(counts[None, :].astype(float), -np.inf, budget))
    least = np.zeros((p, m))
    if pinned is not None:
        least[pinned] = stays[pinned]
    answer = milp(
        np.concatenate((cost.ravel(), np.full(m, 1e3))),
        constraints=constraints,
        integrality=np.concatenate((np.ones(p * m), np.zeros(m))),
        bounds=Bounds(
            np.concatenate((least.ravel(), np.zeros(m))), np.concatenate((np.ones(p * m), np.full(m, np.inf)))
        ),
        options={"time_limit": seconds},
    )
    if answer.x is None:
        raise TimeoutError(f"no assignment of {p} partitions within {seconds} s: {answer.message}")
    best = usable[answer.x[: p * m].reshape(p, m).argmax(axis=1)]
    return Packing(best, held & (best != owner), utilization(best, loads, capacity))
