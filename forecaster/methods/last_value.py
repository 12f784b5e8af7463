"""The last known value, and a margin above it: what a reactive scaler does, and the last rung before none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.intervals import HISTORY_MULTIPLE
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.methods.pathwise import checked_levels
from forecaster.series import ArrivalSeries


class LastValue(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Repeat the last known value; levels above the median get a margin that grows towards the certain.

    Parameters
    ----------
    margin
        How much higher the 0.9 level lies than the median, as a share of it. Other levels follow the tail of a
        Laplace law through that point: 0.95 gets 1.43 times the margin, 0.99 2.43 times.

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> h = ArrivalSeries("t", TimeGrid(60), 0, (0,), np.array([[60.0, 120.0]]), np.full((1, 2), True))
    >>> LastValue(0.25).predict(h, 1, (0.5, 0.9)).rates.tolist()
    [[[2.0, 2.5]]]
    """

    name = "last_value"
    rung = Rung.LAST_VALUE

    def __init__(self, margin: float = 0.5):
        self.margin = margin

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Learn nothing."""
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Repeat each partition's last known value; partitions that never had one are left out, with the reason."""
        checked_levels(levels)
        if horizon_steps < 1:
            raise ValueError(f"horizon_steps={horizon_steps} must be at least 1")
        rows = np.flatnonzero(history.known.any(axis=1))
        if rows.size == 0:
            return NoForecast(history.topic, history.end, "no recorded step yet", history.end + history.grid.step)
        backwards = history.known[rows, ::-1]
        last = history.rates()[rows, history.steps - 1 - backwards.argmax(axis=1)]
        asked = np.asarray(levels, dtype=np.float64)
        # below the median the law is mirrored, but a rate is never negative
        reach = np.log(np.where(asked >= 0.5, 2 * (1 - asked), 2 * asked)) / np.log(0.2)
        factors = np.maximum(1.0 + np.where(asked >= 0.5, reach, -reach) * self.margin, 0.0)
        rates = last[:, None] * np.minimum(factors, HISTORY_MULTIPLE)[None, :]
        rates = np.repeat(rates[:, None, :], horizon_steps, axis=1)
        said: tuple[str, ...] = ()
        if rows.size < len(history.partitions):
            said = (f"no forecast for {len(history.partitions) - rows.size} partitions: nothing was ever recorded",)
        return Forecast(
            history.topic,
            history.end,
            history.grid.step,
            tuple(history.partitions[i] for i in rows),
            tuple(float(q) for q in levels),
            rates,
            rates.sum(axis=0),
            self.name,
            self.rung,
            said,
        )
