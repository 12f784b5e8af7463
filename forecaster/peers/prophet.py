"""A peer: Prophet with its seasons of a day and a week on the wall clock, quantiles of its own samples."""

from __future__ import annotations

import logging
from importlib import import_module

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecaster.peers.base import Asked, PeerMethod

Floats = NDArray[np.float64]


class ProphetPeer(PeerMethod):
    """Prophet as it comes.

    Parameters
    ----------
    samples
        Of the future, from which quantiles are read.
    seed
        Of these samples.
    """

    name = "prophet"

    def __init__(self, samples: int = 300, seed: int = 0):
        self.samples = samples
        self.seed = seed

    def _of_row(self, row: Floats, asked: Asked) -> Floats:
        for name in ("prophet", "cmdstanpy"):
            logging.getLogger(name).setLevel(logging.ERROR)
        model = import_module("prophet").Prophet(
            daily_seasonality=True,
            weekly_seasonality=len(row) >= 14 * asked.day,
            yearly_seasonality=False,
            uncertainty_samples=self.samples,
        )
        past = pd.DataFrame({"ds": asked.local_starts(len(row), ahead=False), "y": row})
        model.fit(past.drop_duplicates("ds"), seed=self.seed)
        np.random.seed(self.seed)  # noqa: NPY002 - Prophet draws from numpy's global generator and takes no other
        future = pd.DataFrame({"ds": asked.local_starts(asked.steps, ahead=True)})
        drawn = model.predictive_samples(future)["yhat"]
        return np.stack([np.quantile(drawn, q, axis=1) for q in asked.levels], axis=1)
