"""What every forecasting method is: fitted on histories, asked at an origin, never told the future."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

from forecaster.forecast import ForecastResult
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
