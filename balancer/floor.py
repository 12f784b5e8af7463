"""The reactive floor: what is seen now, with its velocity, below which a forecast never takes demand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RECENT_MINUTES = 4


def reactive_rate(recent: Floats, lead_s: float, expected: Floats | float = 0.0) -> Floats:
    """Return the rate to expect when a request made now takes effect, from the last four minutes alone.

    Parameters
    ----------
    recent
        Shape (4, ...): records/s of the last four complete minutes, the newest first.
    lead_s
        Seconds until a request takes effect.
    expected
        Records/s that the plan reckons with now, shape (...). A rise that stays below it was foreseen: the forecast
        says where it leads, and nothing is carried on.

    Returns
    -------
    ndarray
        Mean of the last two minutes, plus its rise against the two before carried on over the lead time; at most
        twice the mean. A fall is not carried on.

    Examples
    --------
    >>> reactive_rate(np.array([120.0, 110.0, 100.0, 90.0]), 120.0).item()
    145.0
    """
    now = (recent[0] + recent[1]) / 2
    before = (recent[2] + recent[3]) / 2
    rise = np.where(now > expected, np.maximum(now - before, 0.0) / 2 * (lead_s / 60 + 1), 0.0)
    rate: Floats = now + np.minimum(rise, now)
    return rate
