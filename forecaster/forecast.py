"""What a forecast is: quantiles of the arrival rate of each partition, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forecaster.topics import TopicPartition

if TYPE_CHECKING:
    import pandas as pd


class Rung(StrEnum):
    """Which step of the ladder answered, best first."""

    OWN_MODEL = "own_model"
    ZERO_SHOT = "zero_shot"
    GRID_STATE = "grid_state"
    LAST_WEEK = "last_week"
    YESTERDAY = "yesterday"
    LAST_VALUE = "last_value"
    NONE = "none"


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Quantiles of arrival rates from ``origin`` on.

    Parameters
    ----------
    topic
        Name of the topic; of several joined into one, what they are called together.
    origin
        Last instant that the forecast saw, aware UTC; the first step starts here.
    step
        Length of a step.
    partitions
        Partition numbers, one a row.
    levels
        Quantile levels, rising, within (0, 1).
    rates
        Shape (partitions, steps, levels), records/s, finite, never negative, rising along the levels.
    total
        Shape (steps, levels): quantiles of the topic's sum (not the sum of quantiles).
    method
        Name of the method that answered.
    rung
        Step of the ladder.
    reasons
        What a reader should know: why not a better rung, which levels were corrected, and so on.
    topics
        The topic of each row where several are joined; None: every row is of ``topic``.

    Raises
    ------
    ValueError
        If shapes disagree, levels do not rise, or a rate is negative or not finite.

    Examples
    --------
    >>> from datetime import UTC
    >>> f = Forecast("orders", datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1), (0,), (0.5, 0.9),
    ...              np.array([[[1.0, 2.0]]]), np.array([[1.0, 2.0]]), "seasonal_naive", Rung.YESTERDAY)
    >>> f.at_level(0.9)[0, 0]
    np.float64(2.0)
    """

    topic: str
    origin: datetime
    step: timedelta
    partitions: tuple[int, ...]
    levels: tuple[float, ...]
    rates: NDArray[np.float64]
    total: NDArray[np.float64]
    method: str
    rung: Rung
    reasons: tuple[str, ...] = ()
    topics: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.origin.tzinfo is None:
            raise ValueError("origin must be aware UTC")
        steps = self.rates.shape[1] if self.rates.ndim == 3 else -1
        if self.rates.shape != (len(self.partitions), steps, len(self.levels)):
            raise ValueError(f"rates {self.rates.shape} must be (partitions, steps, levels)")
        if self.total.shape != (steps, len(self.levels)):
            raise ValueError(f"total {self.total.shape} must be (steps, levels) = {(steps, len(self.levels))}")
        if self.topics is not None and len(self.topics) != len(self.partitions):
            raise ValueError("topics must have one entry a partition")
        if list(self.levels) != sorted(set(self.levels)) or not all(0 < q < 1 for q in self.levels):
            raise ValueError(f"levels {self.levels} must rise within (0, 1)")
        for values in (self.rates, self.total):
            flat = values.ravel()
            rises = flat[1:] >= flat[:-1]  # of NaN it is not true
            rises[len(self.levels) - 1 :: len(self.levels)] = True  # from one step's last level to the next's first
            if rises.all() and (lowest := values[..., 0]).size:  # the common case: the ends tell of all
                is_sound = lowest.min() >= 0 and values[..., -1].max() < np.inf
            else:
                is_sound = not values.size or (values.min() >= 0 and values.max() < np.inf)
            if not is_sound:
                raise ValueError("a forecast must be finite and not negative")
            if not rises.all() and (np.diff(values, axis=-1) < -1e-9 * (1 + values[..., 1:])).any():
                raise ValueError("quantiles must not fall along the levels")

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.rates.shape[1])

    @property
    def rows(self) -> tuple[TopicPartition, ...]:
        """Which partition each row of ``rates`` is of."""
        return _rows(self.topic if self.topics is None else self.topics, self.partitions)

    @property
    def horizon(self) -> timedelta:
        """How far ahead the forecast reaches."""
        return self.step * self.steps

    def level_index(self, level: float) -> int:
        """Return the position of a quantile level.

        Raises
        ------
        KeyError
            If the forecast does not hold that level.
        """
        for i, have in enumerate(self.levels):
            if abs(have - level) < 1e-9:
                return i
        raise KeyError(f"no quantile level {level}; there are {', '.join(map(str, self.levels))}")

    def nearest_level(self, level: float) -> int:
        """Return the position of the quantile level that is nearest to ``level``."""
        return _nearest(self.levels, level)

    def peaks(self, index: int, first: int, end: int) -> NDArray[np.float64]:
        """Return each partition's highest rate within steps ``first`` … ``end`` at a level's position."""
        peaks: NDArray[np.float64] = self.rates[:, first:end, index].max(axis=1)
        return peaks

    def at_step(self, step: int, index: int) -> NDArray[np.float64]:
        """Return each partition's rate in one step at a level's position."""
        return self.rates[:, step, index]

    def at_level(self, level: float) -> NDArray[np.float64]:
        """Return records/s at one level, shape (partitions, steps)."""
        return self.rates[:, :, self.level_index(level)]

    def to_frame(self) -> pd.DataFrame:
        """Return a long frame: timestamp, partition, level, rate (records/s)."""
        import pandas as pd

        starts = pd.date_range(self.origin, periods=self.steps, freq=self.step)
        index = pd.MultiIndex.from_product(
            [self.partitions, starts, self.levels], names=["partition", "timestamp", "level"]
        )
        return pd.DataFrame({"rate": self.rates.ravel()}, index=index).reset_index()


@lru_cache(maxsize=64)
def _rows(topics: str | tuple[str, ...], partitions: tuple[int, ...]) -> tuple[TopicPartition, ...]:
    names = [topics] * len(partitions) if isinstance(topics, str) else topics
    return tuple(map(TopicPartition, names, partitions))


@lru_cache(maxsize=64)
def _nearest(levels: tuple[float, ...], level: float) -> int:
    return int(np.argmin(np.abs(np.array(levels) - level)))


@dataclass(frozen=True, slots=True)
class NoForecast:
    """An honest "not yet": the reason, and the instant from which a forecast will be possible."""

    topic: str
    origin: datetime
    reason: str
    possible_from: datetime | None = None


ForecastResult = Forecast | NoForecast
"""What every method and every rung of the ladder answers."""
