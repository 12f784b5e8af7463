"""A peer of statsmodels: STL by day, and ARIMA on what is left, with its prediction intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from forecaster.peers.base import Asked, PeerMethod

Floats = NDArray[np.float64]


class StlArima(PeerMethod):
    """``STLForecast`` with ``ARIMA(1, 0, 1)`` around a level.

    Parameters
    ----------
    order
        Of the ARIMA model.
    """

    name = "statsmodels_stl"

    def __init__(self, order: tuple[int, int, int] = (1, 0, 1)):
        self.order = order

    def _of_row(self, row: Floats, asked: Asked) -> Floats:
        from statsmodels.tsa.arima.model import ARIMA
        from statsmodels.tsa.forecasting.stl import STLForecast

        if np.ptp(row) == 0:  # nothing to decompose
            return np.full((asked.steps, len(asked.levels)), row[-1])
        fitted = STLForecast(row, ARIMA, model_kwargs={"order": self.order, "trend": "c"}, period=asked.day).fit()
        said = fitted.get_prediction(len(row), len(row) + asked.steps - 1)
        mean, error = np.asarray(said.predicted_mean), np.sqrt(np.asarray(said.var_pred_mean))
        return np.stack([mean + norm.ppf(q) * error for q in asked.levels], axis=1)
