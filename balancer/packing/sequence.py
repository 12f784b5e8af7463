"""Sequences of assignments, each starting from the last: what an algorithm moves, and how many members it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.assignors import range_owner, roundrobin_owner, sticky_owner, uniform_owner
from balancer.packing.bounds import l2_bound
from balancer.packing.keep import keep
from balancer.packing.members import pack
from balancer.packing.rivals import RIVALS, Packer

ALGORITHMS: Mapping[str, Packer] = {
    "keep": lambda loads, owner, capacity, order: keep(loads, owner, capacity),
    **RIVALS,
}
"""Name → algorithm that takes as many equal members as it needs. ``keep`` is ours, the others are rivals."""

FixedPacker = Callable[[NDArray[np.float64], NDArray[np.intp], float, int], NDArray[np.intp]]

FIXED: Mapping[str, FixedPacker] = {
    "keep": lambda loads, owner, capacity, members: pack(loads, np.full(members, capacity), owner).owner,
    "range": lambda loads, owner, capacity, members: range_owner([loads.size], members),
    "roundrobin": lambda loads, owner, capacity, members: roundrobin_owner([loads.size], members),
    "sticky": lambda loads, owner, capacity, members: sticky_owner(owner, members),
    "uniform": lambda loads, owner, capacity, members: uniform_owner(owner, members),
}
"""Name → algorithm for a given number of members: ours, and Kafka's own assignors."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceResult:
    """What one algorithm did, row by row.

    Parameters
    ----------
    owner
        Shape (rows, partitions), the owner after each row; -1 where a row has no such partition.
    consumers
        Shape (rows,), members that own something.
    rscore
        Shape (rows,), load that had to stop over the capacity (Landau et al.); first assignments are free.
    moved
        Shape (rows,), partitions that had to stop.
    lower_bound
        Shape (rows,), L2.
    busiest
        Shape (rows,), load of the busiest member over the capacity.
    """

    owner: NDArray[np.intp]
    consumers: NDArray[np.intp]
    rscore: NDArray[np.float64]
    moved: NDArray[np.intp]
    lower_bound: NDArray[np.intp]
    busiest: NDArray[np.float64]


def run_sequence(
    algorithm: str,
    rows: NDArray[np.float64],
    capacity: float,
    current: NDArray[np.intp] | None = None,
    *,
    members: int | None = None,
    seed: int = 0,
) -> SequenceResult:
    """Run one algorithm over rows of loads.

    Parameters
    ----------
    algorithm
        One of :data:`ALGORITHMS`, or of :data:`FIXED` when ``members`` is given.
    rows
        Shape (rows, partitions), records/s; NaN where a row has no such partition (it is given up, and is new when it
        comes back).
    capacity
        Records/s of one member.
    current
        Shape (partitions,), owner before the first row, -1 for nobody; None for nobody at all.
    members
        Fixed number of members; None lets the algorithm take as many as it needs.
    seed
        Of the order in which the classical algorithms see the partitions.

    Raises
    ------
    KeyError
        If there is no such algorithm.

    Examples
    --------
    >>> result = run_sequence("keep", np.array([[60.0, 30.0], [60.0, 50.0]]), 100.0)
    >>> result.consumers.tolist(), result.moved.tolist(), result.rscore.tolist()
    ([1, 2], [0, 1], [0.0, 0.5])
    """
    rng = np.random.default_rng(seed)
    count, partitions = rows.shape
    owner = np.full(partitions, -1, dtype=np.intp) if current is None else current.astype(np.intp)
    owners = np.full((count, partitions), -1, dtype=np.intp)
    consumers, moved, bound = (np.zeros(count, dtype=np.intp) for _ in range(3))
    rscore, busiest = np.zeros(count), np.zeros(count)
    for row, values in enumerate(rows):
        there = np.flatnonzero(~np.isnan(values))
        loads, before = values[there], owner[there]
        order = rng.permutation(there.size)
        if members is None:
            after = ALGORITHMS[algorithm](loads, before, capacity, order)
        else:
            after = FIXED[algorithm](loads, np.where(before < members, before, -1), capacity, members)
        stopped = (before >= 0) & (before != after)
        owner = np.full(partitions, -1, dtype=np.intp)
        owner[there] = after
        owners[row] = owner
        consumers[row] = np.unique(after).size
        moved[row] = int(stopped.sum())
        rscore[row] = float(loads[stopped].sum()) / capacity
        bound[row] = l2_bound(loads, capacity)
        busiest[row] = float(np.bincount(after, loads).max(initial=0.0)) / capacity
    return SequenceResult(owners, consumers, rscore, moved, bound, busiest)


def cardinal_bin_scores(consumers: Mapping[str, NDArray[np.intp]]) -> dict[str, float]:
    """CBS of Landau et al.: mean over the rows of (members - fewest of all algorithms) / fewest.

    Examples
    --------
    >>> cardinal_bin_scores({"a": np.array([4, 4]), "b": np.array([4, 5])})
    {'a': 0.0, 'b': 0.125}
    """
    fewest = np.maximum(np.minimum.reduce(list(consumers.values())), 1)
    return {name: float(((used - fewest) / fewest).mean()) for name, used in consumers.items()}


def known_algorithms(members: int | None) -> Sequence[str]:
    """Names that :func:`run_sequence` takes."""
    return tuple(ALGORITHMS if members is None else FIXED)
