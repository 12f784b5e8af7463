"""The median of several methods' paths on the log scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel, PathMethod
from forecaster.methods.pathwise import PathwiseMethod


class MedianBlend(PathwiseMethod):
    """Median of members that need no training; a member that cannot say is left out of the median.

    The median protects from flash crowds, where an additive season and a runaway level extrapolate one event into
    errors of eight to ten times.

    Parameters
    ----------
    members
        Methods that draw paths.

    Examples
    --------
    >>> from forecaster.methods.seasonal_naive import SeasonalNaive
    >>> MedianBlend([SeasonalNaive("day"), SeasonalNaive("week")]).days_needed()
    1.0
    """

    name = "median_blend"
    rung = Rung.GRID_STATE

    def __init__(self, members: Sequence[PathMethod]):
        self.members = members

    def days_needed(self) -> float:
        """What the least demanding member needs."""
        return min(member.days_needed() for member in self.members)

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> NDArray[np.float64]:
        """Take the median of what the members say."""
        return median_of([member.paths(panel, origins, horizon) for member in self.members])


def median_of(paths: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the median over those that know; NaN where none does.

    Examples
    --------
    >>> median_of([np.array([1.0, np.nan]), np.array([2.0, np.nan]), np.array([np.nan, np.nan])])
    array([1.5, nan])
    """
    stacked = np.sort(np.stack(paths), axis=0)  # NaN sorts last
    count = np.isfinite(stacked).sum(axis=0)
    low = np.maximum((count - 1) // 2, 0)[None]
    high = np.maximum(count // 2, 0)[None]
    high = np.minimum(high, stacked.shape[0] - 1)
    middle = 0.5 * (np.take_along_axis(stacked, low, 0) + np.take_along_axis(stacked, high, 0))[0]
    out: NDArray[np.float64] = np.where(count > 0, middle, np.nan)
    return out
