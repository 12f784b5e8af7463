"""Forecasts of a simulation, computed in batch for many origins before it runs; how is the caller's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.demand import CELLS, cell_peaks
from forecaster.forecast import Forecast, Rung

_SHARE_MINUTES = 60


@dataclass(frozen=True, slots=True, eq=False)
class ForecastBatch:
    """Forecasts at minutely origins.

    Parameters
    ----------
    first_minute
        Index of the first origin in the trace's minutes; the others follow minute by minute.
    step_s
        Length of a forecast step.
    levels
        Quantile levels, rising.
    total
        Shape (origins, steps, levels), records/s of the topic.
    method
        Name of the method.
    """

    first_minute: int
    step_s: int
    levels: tuple[float, ...]
    total: NDArray[np.float32]
    method: str = "lead_ridge"

    def cells(self) -> NDArray[np.float32]:
        """Return the peaks per cell of the planner's horizon, shape (origins, cells, levels)."""
        peaks: NDArray[np.float32] = cell_peaks(self.total, self.step_s, CELLS)  # type: ignore[arg-type, assignment]
        return peaks

    def at(self, minute: int, origin: datetime, shares: NDArray[np.float64]) -> Forecast:
        """Return the forecast made at a minute, shared among partitions by ``shares`` (partitions,)."""
        total = self.total[minute - self.first_minute].astype(np.float64)
        rates = shares[:, None, None] * total
        return Forecast(
            "simulated",
            origin,
            timedelta(seconds=self.step_s),
            tuple(range(shares.size)),
            self.levels,
            rates,
            total,
            self.method,
            Rung.OWN_MODEL,
        )


BatchForecaster = Callable[[int, int], ForecastBatch | None]
"""(first minute, end minute) → forecasts at every minute in between, made from what lies before the first minute
(the model) and before each origin (its inputs) alone; None where there is too little history."""


def shares_at(minutes: NDArray[np.float64], minute: int) -> NDArray[np.float64]:
    """Return each partition's share of the last hour's arrivals before ``minute``; even when nothing arrived."""
    recent = minutes[:, max(0, minute - _SHARE_MINUTES) : minute].sum(axis=1)
    total = recent.sum()
    even = np.full(minutes.shape[0], 1 / minutes.shape[0])
    return recent / total if total > 0 else even
