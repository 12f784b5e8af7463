"""What every peer has in common: gaps filled, one fit a row and origin, quantiles checked, failures as reasons."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from forecaster.cleaning import fill_gaps, known_since
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a peer about each row.

    Parameters
    ----------
    steps
        Steps ahead.
    levels
        Quantile levels, rising.
    grid, end_index
        Steps of the history, and the first one to be forecast.
    """

    steps: int
    levels: tuple[float, ...]
    grid: TimeGrid
    end_index: int

    @property
    def day(self) -> int:
        """Steps in a day."""
        return self.grid.steps_per_day

    def seasons(self, length: int) -> list[int]:
        """Return day and week in steps, those of which a row of that length holds two."""
        return [s for s in (self.day, 7 * self.day) if length >= 2 * s]

    def local_starts(self, length: int, ahead: bool) -> NDArray[np.datetime64]:
        """Return wall-clock starts of the last ``length`` steps, or of the asked ones, without a zone."""
        first, count = (self.end_index, self.steps) if ahead else (self.end_index - length, length)
        return self.grid.local_seconds(first, count).astype("datetime64[s]")


class PeerMethod(BaseEstimator):
    """A library's model, fitted anew on each row and on the topic's sum at each origin, as its users would.

    A row must hold two days. Gaps are filled as for our own methods, since none of the peers takes them.
    """

    name = "peer"
    needs = timedelta(days=2)

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Learn nothing: peers are fitted at the origin."""
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast; what the library raises, and what is not a number, is a reason for no forecast."""
        asked = Asked(horizon_steps, tuple(sorted(levels)), history.grid, history.end_index)
        values = fill_gaps(history.with_gaps_as_nan(), asked.day)
        starts = known_since(values)
        enough = [i for i, first in enumerate(starts) if history.steps - first >= 2 * asked.day]
        if not enough:
            have = (history.steps - int(starts.min(initial=history.steps))) * history.grid.step
            why = f"{self.name} needs 2 d of history, there are {have / timedelta(days=1):.2f} d"
            return NoForecast(history.topic, history.end, why, history.end + self.needs - have)
        rows = [values[i, starts[i] :] for i in enough]
        total = values[enough, max(int(starts[i]) for i in enough) :].sum(axis=0)
        every = [*rows, total] if len(rows) > 1 else rows
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = np.stack(self._quantiles(every, asked))
        except Exception as exc:  # a library may raise anything; whatever it is, another method can answer
            why = f"{self.name} failed: {type(exc).__name__}: {str(exc).splitlines()[0] if str(exc) else ''}"
            return NoForecast(history.topic, history.end, why)
        if not np.isfinite(found).all():
            return NoForecast(history.topic, history.end, f"{self.name} answered what is not a number")
        rates = np.maximum.accumulate(np.maximum(found, 0.0), axis=2) / history.grid.step_s
        partitions = tuple(history.partitions[i] for i in enough)
        return Forecast(
            history.topic, history.end, history.grid.step, partitions, asked.levels, rates[: len(rows)], rates[-1],
            self.name, Rung.OWN_MODEL,
        )  # fmt: skip

    def _quantiles(self, rows: Sequence[Floats], asked: Asked) -> list[Floats]:
        """Return the quantiles of each row, shape (steps, levels), records per step."""
        return [self._of_row(row, asked) for row in rows]

    def _of_row(self, row: Floats, asked: Asked) -> Floats:
        raise NotImplementedError


def central(level: float) -> float:
    """Return the percentage of the central interval one of whose ends is a quantile level.

    Examples
    --------
    >>> central(0.95), central(0.05)
    (90.0, 90.0)
    """
    return round(100 * abs(2 * level - 1), 6)
