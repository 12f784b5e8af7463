"""What ``n`` members sustain together: a pool in proportion, partitions as far as the busiest member goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.assignors import busiest_shares

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CapacityCurve:
    """Records/s that 0, 1, 2 … members sustain, never falling.

    Parameters
    ----------
    rates
        Shape (max members + 1,), records/s, rising (not strictly); the first is 0.
    useful
        Same shape: the fewest members that sustain as much as so many do.
    """

    rates: Floats
    useful: Integers
    each: float | None = None
    """Records/s of one member where members simply add up; None where partitions decide."""

    @property
    def max_members(self) -> int:
        """Largest size on the curve."""
        return int(self.rates.size - 1)

    def need(self, demand: Floats) -> Integers:
        """Return the fewest members that sustain a demand; the largest useful size where none does.

        Examples
        --------
        >>> pool_curve(10.0, 4).need(np.array([0.0, 10.0, 10.5, 99.0])).tolist()
        [0, 1, 2, 4]
        """
        if self.each is not None:
            return np.minimum(np.ceil(demand / self.each - 1e-12), self.max_members).astype(np.int64)
        size = np.searchsorted(self.rates, np.asarray(demand) * (1 - 1e-12), side="left")
        return self.useful[np.minimum(size, self.max_members)]


def pool_curve(capacity: float, max_members: int) -> CapacityCurve:
    """Return the curve of members that share one pool of work."""
    sizes = np.arange(max_members + 1)
    return CapacityCurve(sizes.astype(np.float64) * capacity, sizes, capacity)


def assigned_curve(
    capacity: float,
    shares: Floats,
    max_members: int,
    assignor: str = "planned",
    topics: Sequence[int] | None = None,
) -> CapacityCurve:
    """Return the curve of members that own partitions: the busiest member sets the pace.

    Parameters
    ----------
    capacity
        Records/s of one member.
    shares
        Weight of the load in each partition, the topics one after the other.
    max_members
        Largest size to consider; more members than partitions never help.
    assignor
        As for :func:`balancer.assignors.busiest_shares`.
    topics
        Partitions of each topic; None is one topic.

    Examples
    --------
    Six even partitions: four or five members are no faster than three.

    >>> curve = assigned_curve(10.0, np.full(6, 1 / 6), 6, "range")
    >>> curve.rates.round().tolist(), curve.useful.tolist()
    ([0.0, 10.0, 20.0, 30.0, 30.0, 30.0, 60.0], [0, 1, 2, 3, 3, 3, 6])
    """
    top = min(max_members, shares.size)
    rates = np.zeros(top + 1)
    if top:
        rates[1:] = capacity / busiest_shares(shares, top, assignor, topics)
    best = np.maximum.accumulate(rates)
    grows = np.concatenate([[True], best[1:] > best[:-1] * (1 + 1e-9)])
    useful = np.maximum.accumulate(np.where(grows, np.arange(top + 1), 0))
    return CapacityCurve(best, useful)
