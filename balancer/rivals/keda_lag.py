"""KEDA's Kafka scaler driving a Kubernetes HorizontalPodAutoscaler without ``behavior``.

KEDA polls lag every 30 s; the HPA syncs every 15 s. With an ``AverageValue`` target the HPA compares
``metric / (target * replicas)`` with its tolerance of 0.1, wants ``ceil(metric / target)``, goes up to at most
``max(2 * replicas, 4)`` per sync, and down to the highest wish of the last 300 s, the size that it found included.
"""

from __future__ import annotations

import numpy as np

from balancer.rivals.window import HighestWithin
from balancer.simulator.batch import Floats, Integers, Seen

POLL_S = 30
TOLERANCE = 0.1
DOWN_WINDOW_S = 300.0


def capped_lag(lag: Floats, threshold: Floats, partitions: int | None) -> Floats:
    """Return the metric KEDA reports: lag, cut to ``partitions * threshold`` by its *integer* division.

    Examples
    --------
    >>> capped_lag(np.array([29.0, 30.0]), np.array([5.0, 5.0]), 5).tolist()  # 29 // 5 is not above 5
    [29.0, 25.0]
    """
    if partitions is None:
        return lag
    return np.where(np.floor(lag / threshold) > partitions, partitions * threshold, lag)


def hpa_wish(metric: Floats, target: Floats, replicas: Integers, max_replicas: int) -> Integers:
    """Return the replicas that an HPA asks for in one sync, before its scale-down window.

    Examples
    --------
    >>> hpa_wish(np.array([29.0, 109.0]), np.array([5.0, 10.0]), np.array([5, 10]), 64).tolist()
    [6, 10]
    """
    ratio = metric / (target * np.maximum(replicas, 1))
    wish = np.where(np.abs(ratio - 1.0) <= TOLERANCE, replicas, np.ceil(metric / target - 1e-9)).astype(np.int64)
    return np.minimum(np.maximum(np.minimum(wish, np.maximum(2 * replicas, 4)), 1), max_replicas)


class KedaLag:
    """KEDA's lag rule, one lag threshold (records) a run."""

    def __init__(self, threshold: Floats, max_replicas: int, partitions: int | None = None) -> None:
        self._threshold = threshold
        self._max = max_replicas
        self._partitions = partitions
        self._window = HighestWithin(np.full(threshold.shape, DOWN_WINDOW_S))
        self._metric = np.zeros(threshold.shape)

    def decide(self, seen: Seen) -> Integers:
        """Return the members to request."""
        if seen.at_s % POLL_S == 0:
            self._metric = capped_lag(seen.lag, self._threshold, self._partitions)
        wish = hpa_wish(self._metric, self._threshold, seen.requested, self._max)
        highest = self._window.add(wish, seen.requested)
        return np.where(wish >= seen.requested, wish, np.minimum(seen.requested, highest))
