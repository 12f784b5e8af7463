"""The formula of Flink's Kubernetes autoscaler on one vertex, with its defaults.

``target = lag / catch_up + rate * restart / catch_up + rate / utilisation`` (records/s), over a window of 15 minutes,
acted on only when the present capacity leaves the band of utilisation ± 0.3; 5 minutes of rest after a change;
scale-down after an hour, to the highest wish of that hour, by at most 60 % at once.
"""

from __future__ import annotations

import numpy as np

from balancer.rivals.window import HighestWithin
from balancer.simulator.batch import SLOT_S, Floats, Integers, Seen

# The defaults of Flink's Kubernetes operator (job.autoscaler.*), in seconds and shares.
CATCH_UP_S = 1800.0
RESTART_S = 300.0
WINDOW_S = 900.0
REST_S = 300.0
DOWN_DELAY_S = 3600.0
BAND = 0.3
MAX_SCALE_DOWN = 0.6


def target_rate(rate: Floats, lag: Floats, utilisation: Floats | float) -> Floats:
    """Return the processing rate Flink aims at, in records/s.

    Examples
    --------
    >>> np.round(target_rate(np.array([1000.0, 1000.0]), np.array([0.0, 1.8e6]), 0.7)).tolist()
    [1595.0, 2595.0]
    """
    target: Floats = lag / CATCH_UP_S + rate * RESTART_S / CATCH_UP_S + rate / utilisation
    return target


class Flink:
    """Flink's rule, one target utilisation a run."""

    def __init__(self, utilisation: Floats, capacity: float, max_replicas: int) -> None:
        self._utilisation = utilisation
        self._most_used = np.minimum(utilisation + BAND, 1.0)
        self._least_used = np.maximum(utilisation - BAND, 0.05)
        self._capacity = capacity
        self._max = max_replicas
        self._rates = np.zeros((int(WINDOW_S / SLOT_S), utilisation.size))
        self._sum = np.zeros(utilisation.shape)
        self._seen = 0
        self._window = HighestWithin(np.full(utilisation.shape, DOWN_DELAY_S))
        self._changed_s = np.full(utilisation.shape, -np.inf)

    def decide(self, seen: Seen) -> Integers:
        """Return the members to request."""
        place = self._seen % len(self._rates)
        self._sum += seen.rate - self._rates[place]
        self._rates[place] = seen.rate
        self._seen += 1
        rate = np.maximum(self._sum, 0.0) / min(self._seen, len(self._rates))
        target = target_rate(rate, seen.lag, self._utilisation)
        wish = np.minimum(np.maximum(np.ceil(target / self._capacity - 1e-9).astype(np.int64), 1), self._max)
        highest = self._window.add(wish)
        have = seen.requested * self._capacity
        too_small = have < target_rate(rate, seen.lag, self._most_used)
        too_big = have > rate / self._least_used
        lowest = np.ceil(seen.requested * (1 - MAX_SCALE_DOWN)).astype(np.int64)
        down = np.maximum(np.minimum(seen.requested, highest), lowest)
        rested = seen.at_s - self._changed_s >= REST_S
        chosen = np.where(
            rested & too_small & (wish > seen.requested),
            wish,
            np.where(rested & too_big & (seen.at_s >= DOWN_DELAY_S), down, seen.requested),
        )
        self._changed_s = np.where(chosen != seen.requested, seen.at_s, self._changed_s)
        return chosen
