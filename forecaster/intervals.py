"""From a path to quantiles: errors seen at past origins, and sums of partitions that agree with the topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HISTORY_MULTIPLE = 4.0
"""No forecast, at any level, exceeds this many times the largest count of the row's history."""

DEFAULT_SPREAD = 0.25
"""Mean absolute error on the log scale that is assumed when a history is too short to measure one."""

_MIN_ERRORS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How far the truth lay from a path, on the log scale: a scale per row and one shape for all rows.

    Parameters
    ----------
    scale
        Shape (rows,): mean absolute error of each row.
    shape
        Sorted errors in units of their row's scale, from all rows.
    """

    scale: Floats
    shape: Floats

    @classmethod
    def of(cls, errors: Floats) -> Spread:
        """Measure a spread.

        Parameters
        ----------
        errors
            Shape (rows, n): truth minus path; NaN where either is unknown.

        Examples
        --------
        >>> Spread.of(np.zeros((1, 20))).offsets([0.5, 0.9])
        array([[0., 0.]])
        """
        known = np.isfinite(errors)
        count = known.sum(axis=1)
        total = np.where(known, np.abs(errors), 0.0).sum(axis=1)
        enough = count >= _MIN_ERRORS
        own = total / np.maximum(count, 1)
        typical = float(np.median(own[enough])) if enough.any() else DEFAULT_SPREAD
        scale = np.where(enough, own, np.maximum(typical, own))
        usable = (enough & (own > 0))[:, None] & known
        safe = np.where(scale > 0, scale, 1.0)[:, None]
        pool = np.sort((errors / safe)[usable])
        return cls(scale, pool if pool.size >= _MIN_ERRORS else _laplace())

    def offsets(self, levels: Sequence[float]) -> Floats:
        """Return what to add to a path for each level, shape (rows, levels): zero at 0.5, rising along the levels."""
        asked = np.asarray(levels, dtype=np.float64)
        ranks = np.clip(asked * (self.shape.size + 1) - 1, 0, self.shape.size - 1)
        unit = np.interp(ranks, np.arange(self.shape.size), self.shape)
        unit = np.where(asked > 0.5, np.maximum(unit, 0.0), np.where(asked < 0.5, np.minimum(unit, 0.0), 0.0))
        return self.scale[:, None] * unit[None, :]


def _laplace() -> Floats:
    """Return the shape of a Laplace law with mean absolute value 1: what is assumed before errors are known."""
    p = (np.arange(399) + 1) / 400
    shape: Floats = np.where(p < 0.5, np.log(2 * p), -np.log(2 * (1 - p)))
    return shape


def reconcile(partitions: Floats, topic: Floats, middle: int) -> tuple[Floats, Floats]:
    """Make partitions and topic agree.

    The topic's median is the geometric mean of its own forecast and the sum of the partitions' medians, within a
    factor 1.5 of that sum; every partition is scaled by the same factor at a step, so that the medians add up. The
    topic's other quantiles keep their own ratio to its median, and lie between its median and the sum of the
    partitions' quantiles (which would be exact if all partitions erred together).

    Parameters
    ----------
    partitions
        Shape (partitions, steps, levels), rates or counts.
    topic
        Shape (steps, levels): the forecast of the sum itself.
    middle
        Index of level 0.5.

    Returns
    -------
    tuple
        Partitions and topic, reconciled, same shapes.

    Examples
    --------
    >>> p, t = reconcile(np.array([[[1.0, 2.0]], [[3.0, 5.0]]]), np.array([[4.0, 5.0]]), 0)
    >>> t
    array([[4., 5.]])
    """
    summed = partitions.sum(axis=0)
    own, below = topic[:, middle], summed[:, middle]
    both = (own > 0) & (below > 0)
    target = np.where(both, np.sqrt(own * np.where(both, below, 1.0)), below)
    factor = np.where(both, np.clip(target / np.where(both, below, 1.0), 1 / 1.5, 1.5), 1.0)
    partitions = partitions * factor[None, :, None]
    summed = summed * factor[:, None]
    median = summed[:, middle][:, None]
    ratio = np.where(both[:, None], topic / np.where(both, own, 1.0)[:, None], np.nan)
    total = np.where(np.isnan(ratio), summed, median * ratio)
    lower, upper = np.minimum(summed, median), np.maximum(summed, median)
    return partitions, np.clip(total, lower, upper)
