"""What a reactive autoscaler would have asked for beside us, on the same recorded arrivals.

The rule is the one that most teams run: the last minute's rate over a target share of capacity, and down only to the
highest wish of the last five minutes (the stabilisation window of Kubernetes' own autoscaler).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TARGET = 0.8
WINDOW_S = 300


def reactive_members(
    rates: NDArray[np.float64], step_s: int, capacity: float, least: int, most: int
) -> NDArray[np.float64]:
    """Return the members that the rule would request after each step; NaN where the step is not known.

    Parameters
    ----------
    rates
        Shape (steps,), records/s, NaN where not known.
    step_s
        Length of a step in seconds.
    capacity
        Records/s of one member.
    least, most
        Bounds of the group.

    Examples
    --------
    >>> reactive_members(np.array([100.0, 10.0, 10.0, 10.0]), 150, 10.0, 1, 50).tolist()
    [13.0, 13.0, 2.0, 2.0]
    """
    known = ~np.isnan(rates)
    wished = np.where(known, np.ceil(np.where(known, rates, 0.0) / (TARGET * capacity) - 1e-9), 0.0)
    wished = np.clip(wished, least, most)
    width = max(1, WINDOW_S // step_s)
    padded = np.concatenate([np.full(width - 1, least), np.where(known, wished, least)])
    highest = np.lib.stride_tricks.sliding_window_view(padded, width).max(axis=1)
    return np.where(known, highest, np.nan)
