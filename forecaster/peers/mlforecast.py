"""A peer of Nixtla's mlforecast: one LightGBM a level over all rows, on lags, recursively."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.peers.base import Asked, PeerMethod

Floats = NDArray[np.float64]


class LightGbmPeer(PeerMethod):
    """LightGBM with the quantile loss; lags of the last steps, of the last two days and of a week.

    Parameters
    ----------
    trees
        Boosting rounds.
    seed
        Of LightGBM.
    """

    name = "mlforecast_lightgbm"

    def __init__(self, trees: int = 100, seed: int = 0):
        self.trees = trees
        self.seed = seed

    def _quantiles(self, rows: Sequence[Floats], asked: Asked) -> list[Floats]:
        MLForecast = import_module("mlforecast").MLForecast
        Regressor = import_module("lightgbm").LGBMRegressor

        shortest = min(len(row) for row in rows)
        lags = [lag for lag in (1, 2, 3, asked.day, 2 * asked.day, 7 * asked.day) if 2 * lag <= shortest]
        models = {
            f"q{k}": Regressor(
                objective="quantile", alpha=q, n_estimators=self.trees, random_state=self.seed, n_jobs=1, verbosity=-1
            )
            for k, q in enumerate(asked.levels)
        }
        frame = pd.concat(
            [
                pd.DataFrame({"unique_id": i, "ds": np.arange(len(row)) - len(row), "y": row})
                for i, row in enumerate(rows)
            ]
        )
        said = MLForecast(models=models, freq=1, lags=lags, num_threads=1).fit(frame).predict(asked.steps)
        values = said.sort_values(["unique_id", "ds"])[list(models)].to_numpy(dtype=np.float64)
        return list(values.reshape(len(rows), asked.steps, len(asked.levels)))
