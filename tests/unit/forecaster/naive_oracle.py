"""A method small enough to be right by reading: the oracle of backtest, registry, training and serving tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.series import ArrivalSeries


@dataclass
class Yesterday:
    """The oracle method: the same slot a day ago, and twice that for every upper level."""

    name: str = "yesterday"
    need: int = 1
    fitted_to: int | None = None
    factor: float = 1.0

    def fit(self, histories: Sequence[ArrivalSeries]) -> Yesterday:
        self.fitted_to = max(h.end_index for h in histories)
        return self

    def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = (0.5,)) -> ForecastResult:
        day = history.grid.steps_per_day
        if history.steps < self.need * day:
            return NoForecast(history.topic, history.end, f"{history.steps} of {self.need * day} steps")
        last = history.rates()[:, -day:]
        point = np.resize(last, (len(last), horizon_steps)) if len(last) == 1 else np.tile(last, 9)[:, :horizon_steps]
        rates = np.stack([point * self.factor * (2 if q > 0.5 else 1) for q in levels], axis=-1)
        return Forecast(
            history.topic,
            history.end,
            history.grid.step,
            history.partitions,
            tuple(levels),
            rates,
            rates.sum(axis=0),
            self.name,
            Rung.YESTERDAY,
            (f"fitted to {self.fitted_to}",),
        )
