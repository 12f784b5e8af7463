"""What every forecasting method is: fitted on histories, asked at an origin, never told the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import ForecastResult, Rung
from forecaster.series import ArrivalSeries

DEFAULT_LEVELS = (0.5, 0.9, 0.95, 0.99)
"""Quantile levels that are asked for when nobody says otherwise."""


@runtime_checkable
class Method(Protocol):
    """A forecasting method, with scikit-learn's habits.

    Constructor arguments are plain parameters (``get_params``/``set_params``/``clone`` work through
    ``sklearn.base.BaseEstimator``); everything learned is set by :meth:`fit` and ends in an underscore.
    A method that learns nothing returns itself from ``fit``.
    """

    name: str

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Learn from histories alone; each ends at or before every origin that is asked later."""
        ...

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast ``horizon_steps`` steps from ``history.end``, or say why not."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LogPanel:
    """What a path is computed from: logs on the wall-clock axis at the working step.

    Parameters
    ----------
    logs
        Shape (rows, positions): filled logs (`forecaster.scaling`, `forecaster.cleaning`); NaN before a row's first
        known value and nowhere else.
    steps_per_day
        Positions in a day.
    """

    logs: NDArray[np.float64]
    steps_per_day: int

    @property
    def steps_per_week(self) -> int:
        """Positions in a week."""
        return 7 * self.steps_per_day

    def until(self, end: int) -> LogPanel:
        """Return what was there at an earlier origin."""
        return LogPanel(self.logs[:, :end], self.steps_per_day)


class PathMethod(Protocol):
    """A method that draws one path per row on the log scale; medians, quantiles and totals are made around it."""

    name: str
    rung: Rung

    def days_needed(self) -> float:
        """Return how many days of history a row must have."""
        ...

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> NDArray[np.float64]:
        """Draw the path from each origin.

        Parameters
        ----------
        panel
            Logs; a path from ``origin`` may depend on positions before ``origin`` alone.
        origins
            Positions, at most ``panel.logs.shape[1]``.
        horizon
            Positions to draw.

        Returns
        -------
        NDArray
            Shape (rows, origins, horizon); NaN where the row is too young.
        """
        ...
