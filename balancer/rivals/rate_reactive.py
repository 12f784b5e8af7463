"""The rate rule that most teams write themselves: last minute's rate over a target utilisation, plus lag to drain."""

from __future__ import annotations

import numpy as np

from balancer.rivals.window import HighestWithin
from balancer.simulator.batch import Floats, Integers, Seen

DRAIN_S = 120.0


class RateReactive:
    """``ceil((rate of the last minute / utilisation + lag / 120 s) / capacity)``; down only to the window's highest.

    Parameters
    ----------
    utilisation
        Target share of capacity, one entry a run.
    window_s
        Scale-down window in seconds, one entry a run.
    capacity
        Records/s of one member.
    max_replicas
        Upper limit.
    """

    def __init__(self, utilisation: Floats, window_s: Floats, capacity: float, max_replicas: int) -> None:
        self._utilisation = utilisation
        self._capacity = capacity
        self._max = max_replicas
        self._window = HighestWithin(window_s)

    def decide(self, seen: Seen) -> Integers:
        """Return the members to request."""
        demand = seen.rate / self._utilisation + seen.lag / DRAIN_S
        wanted = np.minimum(np.maximum(np.ceil(demand / self._capacity - 1e-9).astype(np.int64), 1), self._max)
        highest = self._window.add(wanted, seen.requested)
        return np.where(wanted >= seen.requested, wanted, np.minimum(seen.requested, highest))
