"""Forecasts of a simulation, computed in batch for many origins before it runs; how is the caller's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from balancer.demand import CELLS, cell_peaks
from forecaster.forecast import Forecast, Rung

_SHARE_MINUTES = 60


class SharedForecast(Forecast):
    """A forecast whose partitions have fixed shares of the topic: what is asked of them is computed then.

    It is a :class:`Forecast` in every respect; a simulation asks for few of its numbers, and makes one a minute.
    """

    __slots__ = ("shares",)
    shares: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        origin: datetime,
        step: timedelta,
        levels: tuple[float, ...],
        total: NDArray[np.float64],
        shares: NDArray[np.float64],
        method: str,
        topic: str = "simulated",
    ) -> SharedForecast:
        """Return a forecast of ``total`` (steps, levels), which :class:`ForecastBatch` has checked already."""
        made = cls.__new__(cls)
        values = (
            topic,
            origin,
            step,
            _numbers(shares.size),
            levels,
            total,
            method,
            Rung.OWN_MODEL,
            (),
            None,
            shares,
        )
        for name, value in zip(_FIELDS, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    def __getattr__(self, name: str) -> NDArray[np.float64]:
        if name != "rates":
            raise AttributeError(name)
        rates: NDArray[np.float64] = self.shares[:, None, None] * self.total
        object.__setattr__(self, name, rates)
        return rates

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.total.shape[0])

    def peaks(self, index: int, first: int, end: int) -> NDArray[np.float64]:
        """Return each partition's highest rate: its share of the topic's."""
        peaks: NDArray[np.float64] = self.shares * self.total[first:end, index].max()
        return peaks

    def at_step(self, step: int, index: int) -> NDArray[np.float64]:
        """Return each partition's rate in one step."""
        rates: NDArray[np.float64] = self.shares * self.total[step, index]
        return rates


_FIELDS = ("topic", "origin", "step", "partitions", "levels", "total", "method", "rung", "reasons", "topics", "shares")


@lru_cache(maxsize=8)
def _numbers(count: int) -> tuple[int, ...]:
    return tuple(range(count))


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

    Raises
    ------
    ValueError
        If a rate is negative or not finite, or falls along the levels.
    """

    first_minute: int
    step_s: int
    levels: tuple[float, ...]
    total: NDArray[np.float32]
    method: str = "lead_ridge"

    def __post_init__(self) -> None:
        """Check all forecasts at once, so that each need not be."""
        if self.total.size and not (self.total.min() >= 0 and self.total.max() < np.inf):  # of NaN neither is true
            raise ValueError("forecasts must be finite and not negative")
        if (self.total[..., 1:] < self.total[..., :-1]).any():
            raise ValueError("quantiles must not fall along the levels")

    def cells(self) -> NDArray[np.float32]:
        """Return the peaks per cell of the planner's horizon, shape (origins, cells, levels)."""
        peaks: NDArray[np.float32] = cell_peaks(self.total, self.step_s, CELLS)  # type: ignore[arg-type, assignment]
        return peaks

    def at(self, minute: int, origin: datetime, shares: NDArray[np.float64], topic: str = "simulated") -> Forecast:
        """Return the forecast made at a minute, shared among a topic's partitions by ``shares`` (partitions,)."""
        total, step = self.total[minute - self.first_minute].astype(np.float64), timedelta(seconds=self.step_s)
        return SharedForecast.of(origin, step, self.levels, total, shares, self.method, topic)


BatchForecaster = Callable[[int, int], ForecastBatch | None]
"""(first minute, end minute) → forecasts at every minute in between, made from what lies before the first minute
(the model) and before each origin (its inputs) alone; None where there is too little history."""


def shares_at(minutes: NDArray[np.float64], minute: int) -> NDArray[np.float64]:
    """Return each partition's share of the last hour's arrivals before ``minute``; even when nothing arrived."""
    recent = minutes[:, max(0, minute - _SHARE_MINUTES) : minute].sum(axis=1)
    total = recent.sum()
    even = np.full(minutes.shape[0], 1 / minutes.shape[0])
    return recent / total if total > 0 else even
