"""How fast the trace goes, and onto what: all that the producer needs, which must start in no time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

PACE = 60.0
"""Seconds of the trace in one of the wall."""
TOPIC, PARTITIONS = "clicks", 24


def rate_at(minutes: NDArray[np.float64]) -> Callable[[float], float]:
    """Return seconds of the wall since the start → records that should have been written by then.

    Examples
    --------
    >>> due = rate_at(np.array([75.0, 150.0]))
    >>> due(0.0), due(1.0), due(1.5), due(99.0)
    (0.0, 75.0, 150.0, 225.0)
    """
    total = np.concatenate([[0.0], np.cumsum(minutes)])
    edges = np.arange(total.size) * 60.0 / PACE
    return lambda since: float(np.interp(since, edges, total))
