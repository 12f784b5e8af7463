"""What ``n`` members sustain together: a pool in proportion, partitions as far as the busiest member goes.

Where one partition alone passes a member's capacity, nobody can help it; the others must not suffer for it. So the
members needed are judged by the busiest member that owns *several* partitions: more members relieve that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.assignors import paces

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CapacityCurve:
    """Records/s that 0, 1, 2 … members sustain, never falling.

    Parameters
    ----------
    rates
        Shape (max members + 1,), records/s, rising (not strictly); the first is 0.
    reach
        Same shape: the demand beyond which more members would serve more; infinite where nobody shares a member.
    useful
        Same shape: the fewest members that reach as far as so many do.
    """

    rates: Floats
    reach: Floats
    useful: Integers
    each: float | None = None
    """Records/s of one member where members simply add up; None where partitions decide."""

    @property
    def max_members(self) -> int:
        """Largest size on the curve."""
        return int(self.rates.size - 1)

    def need(self, demand: Floats) -> Integers:
        """Return the fewest members that serve all of a demand that members can; the largest useful size at most.

        Examples
        --------
        >>> pool_curve(10.0, 4).need(np.array([0.0, 10.0, 10.5, 99.0])).tolist()
        [0, 1, 2, 4]
        """
        if self.each is not None:
            return np.minimum(np.ceil(demand / self.each - 1e-12), self.max_members).astype(np.int64)
        size = self.reach.searchsorted(np.asarray(demand) * (1 - 1e-12), side="left")
        return self.useful[np.minimum(size, self.max_members)]

    def serves(self, members: Integers, demand: Floats) -> Floats:
        """Return records/s that so many members work off, what no number of members could left out of the demand.

        Examples
        --------
        Half of 40 records/s come to one partition, twice what a member serves; two members do all they can for it,
        four would do more for the others.

        >>> curve = assigned_curve(10.0, np.array([3.0, 1.0, 1.0, 1.0]), 4)
        >>> curve.serves(np.array([2, 4]), np.array([40.0, 40.0])).tolist()
        [20.0, 40.0]
        """
        size = np.minimum(members, self.max_members)
        if self.each is not None:
            return self.rates[size]
        served: Floats = np.minimum(np.maximum(demand, self.rates[size]), self.reach[size])
        return served


def pool_curve(capacity: float, max_members: int) -> CapacityCurve:
    """Return the curve of members that share one pool of work."""
    sizes = np.arange(max_members + 1)
    rates = sizes.astype(np.float64) * capacity
    return CapacityCurve(rates, rates, sizes, capacity)


def assigned_curve(
    capacity: float,
    shares: Floats,
    max_members: int,
    assignor: str = "planned",
    topics: Sequence[int] | None = None,
) -> CapacityCurve:
    """Return the curve of members that own partitions: the busiest member that owns several sets the pace.

    Parameters
    ----------
    capacity
        Records/s of one member.
    shares
        Weight of the load in each partition, the topics one after the other.
    max_members
        Largest size to consider; more members than partitions never help.
    assignor
        As for :func:`balancer.assignors.paces`.
    topics
        Partitions of each topic; None is one topic.

    Examples
    --------
    Six even partitions: four or five members are no faster than three.

    >>> curve = assigned_curve(10.0, np.full(6, 1 / 6), 6, "range")
    >>> curve.rates.round().tolist(), curve.useful.tolist()
    ([0.0, 10.0, 20.0, 30.0, 30.0, 30.0, 60.0], [0, 1, 2, 3, 3, 3, 6])

    One partition has half of the load: a third and a fourth member do not help it, and do help the others.

    >>> hot = assigned_curve(10.0, np.array([3.0, 1.0, 1.0, 1.0]), 4)
    >>> hot.rates.tolist(), hot.reach.tolist(), hot.need(np.array([15.0, 25.0, 40.0])).tolist()
    ([0.0, 10.0, 20.0, 20.0, 20.0], [0.0, 10.0, 20.0, 30.0, inf], [2, 3, 4])
    """
    top = min(max_members, shares.size)
    rates, reach = np.zeros(top + 1), np.zeros(top + 1)
    if top:
        busiest, shared = paces(shares, top, assignor, topics)
        rates[1:] = capacity / busiest
        reach[1:] = np.divide(capacity, shared, out=np.full(top, np.inf), where=shared > 0)
    rates, reach = np.maximum.accumulate(rates), np.maximum.accumulate(reach)
    grows = np.concatenate([[True], reach[1:] > reach[:-1] * (1 + 1e-9)])
    useful = np.maximum.accumulate(np.where(grows, np.arange(top + 1), 0))
    return CapacityCurve(rates, reach, useful)
