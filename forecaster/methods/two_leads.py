"""Two products in one: the next hour from the short-lead method, everything further from the day-ahead method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from forecaster.forecast import Forecast, ForecastResult
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.methods.short_lead import REACH_S
from forecaster.series import ArrivalSeries


class TwoLeads(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Join a short-lead and a day-ahead method at one hour.

    Both are coherent (partitions' medians add up to the topic's), and each step comes from one of them, so the joined
    forecast is coherent too. Where the short-lead method cannot answer, the day-ahead method answers alone, and the
    reason is kept.

    Parameters
    ----------
    ahead
        Day-ahead method.
    short
        Short-lead method.
    """

    name = "two_leads"

    def __init__(self, ahead: Method, short: Method):
        self.ahead = ahead
        self.short = short

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Fit both."""
        self.ahead.fit(histories)
        self.short.fit(histories)
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast; the reasons say up to where the short-lead method answered."""
        whole = self.ahead.predict(history, horizon_steps, levels)
        reach = min(horizon_steps, REACH_S // history.grid.step_s)
        if not isinstance(whole, Forecast) or history.grid.step_s >= REACH_S:
            return whole
        near = self.short.predict(history, reach, levels)
        if not isinstance(near, Forecast):
            return replace(whole, reasons=(*whole.reasons, f"day-ahead method alone: {near.reason}"))
        if near.partitions != whole.partitions:
            return replace(whole, reasons=(*whole.reasons, "day-ahead method alone: some partitions were long silent"))
        return replace(
            whole,
            rates=np.concatenate([near.rates, whole.rates[:, reach:]], axis=1),
            total=np.concatenate([near.total, whole.total[reach:]]),
            method=f"{near.method}+{whole.method}" if reach < horizon_steps else near.method,
            reasons=(*near.reasons, *whole.reasons),
        )
