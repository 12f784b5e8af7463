"""The scale on which every method works: logs of counts in units of each row's own mean.

``z = log1p(10 * y / mean)``. On arrival rates the log is the largest single gain for every method, quantiles carry
over (the map is monotone), and the factor 10 keeps small counts off the steep part of the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TOP = 60.0  # exp(60) is far above any count: a guard against overflow, not a bound on forecasts


@dataclass(frozen=True, slots=True, eq=False)
class LogScale:
    """A log scale per row.

    Parameters
    ----------
    unit
        Shape (rows,): records per step that count as one before the log; a tenth of the row's mean.

    Examples
    --------
    >>> scale = LogScale.of(np.array([[0.0, 10.0, 20.0]]))
    >>> scale.unit
    array([1.])
    >>> scale.inverse(scale.forward(np.array([[7.0]])))
    array([[7.]])
    """

    unit: Floats

    @classmethod
    def of(cls, values: Floats) -> LogScale:
        """Measure the unit of each row over its known values; a row without any positive value has unit 1.

        Parameters
        ----------
        values
            Shape (rows, positions), records per step, NaN in the gaps.
        """
        known = np.isfinite(values)
        total = np.where(known, values, 0.0).sum(axis=1)
        mean = total / np.maximum(known.sum(axis=1), 1)
        return cls(np.where(mean > 0, np.maximum(mean, 1e-12) / 10.0, 1.0))

    def forward(self, values: Floats) -> Floats:
        """Return logs; rows come first, any further axes follow."""
        out: Floats = np.log1p(values / self._broadcast(values))
        return out

    def inverse(self, logs: Floats) -> Floats:
        """Return records per step, never negative."""
        out: Floats = np.expm1(np.clip(logs, 0.0, _TOP)) * self._broadcast(logs)
        return out

    def _broadcast(self, array: Floats) -> Floats:
        return self.unit.reshape((-1,) + (1,) * (array.ndim - 1))
