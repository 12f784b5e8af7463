"""The median of several methods' paths on the log scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel, PathMethod
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]


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


def median_of(paths: Sequence[Floats], weights: Floats | None = None) -> Floats:
    """Return the (weighted) median over those that know; NaN where none does.

    Parameters
    ----------
    paths
        Arrays of one shape; NaN where a member cannot say.
    weights
        One a path, positive; equal if not given. Between two values the median is interpolated by weight.

    Examples
    --------
    >>> median_of([np.array([1.0, np.nan]), np.array([2.0, np.nan]), np.array([np.nan, np.nan])])
    array([1.5, nan])
    >>> median_of([np.array([1.0]), np.array([2.0]), np.array([9.0])], np.array([1.0, 1.0, 4.0]))
    array([6.2])
    """
    stacked = np.stack(paths)
    order = np.argsort(stacked, axis=0)  # NaN sorts last
    values = np.take_along_axis(stacked, order, axis=0)
    each = np.ones(len(paths)) if weights is None else np.asarray(weights, dtype=np.float64)
    share = np.where(np.isfinite(values), each[order], 0.0)
    place = np.cumsum(share, axis=0) - 0.5 * share
    half = 0.5 * share.sum(axis=0)
    count = (share > 0).sum(axis=0)
    last = np.maximum(count - 1, 0)
    low = np.clip((place <= half).sum(axis=0) - 1, 0, last)
    high = np.minimum(low + 1, last)

    def at(of: Floats, which: NDArray[np.int64]) -> Floats:
        found: Floats = np.take_along_axis(of, which[None], axis=0)[0]
        return found

    gap = at(place, high) - at(place, low)
    part = np.where(gap > 0, (half - at(place, low)) / np.where(gap > 0, gap, 1.0), 0.0)
    lower = at(values, low)
    out: Floats = np.where(count > 0, lower + np.clip(part, 0.0, 1.0) * (at(values, high) - lower), np.nan)
    return out
