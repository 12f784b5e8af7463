"""Peers of Nixtla's statsforecast: MSTL, AutoETS, AutoTheta, AutoARIMA, with its own prediction intervals."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forecaster.peers.base import Asked, PeerMethod, central

Floats = NDArray[np.float64]
Model = Literal["mstl", "ets", "theta", "arima"]


class StatsForecastPeer(PeerMethod):
    """One model of statsforecast.

    Parameters
    ----------
    model
        ``mstl`` takes day and week; the others know one season, the day.
    """

    def __init__(self, model: Model = "mstl"):
        self.model = model

    @property
    def name(self) -> str:  # type: ignore[override]
        """``statsforecast_`` and the model's name."""
        return f"statsforecast_{self.model}"

    def _of_row(self, row: Floats, asked: Asked) -> Floats:
        widths = sorted({central(q) for q in asked.levels if q != 0.5})
        said = self._made(asked.seasons(len(row))).forecast(row, asked.steps, level=widths or None)

        def at(level: float) -> Floats:
            key = "mean" if level == 0.5 else f"{'hi' if level > 0.5 else 'lo'}-{_shown(central(level))}"
            return np.asarray(said[key], dtype=np.float64)

        return np.stack([at(q) for q in asked.levels], axis=1)

    def _made(self, seasons: list[int]) -> Any:
        models = import_module("statsforecast.models")
        if self.model == "mstl":
            return models.MSTL(season_length=seasons)
        kind = {"ets": "AutoETS", "theta": "AutoTheta", "arima": "AutoARIMA"}[self.model]
        return getattr(models, kind)(season_length=seasons[0])


def _shown(width: float) -> str:
    """Return a width as statsforecast writes it into its keys: as it was given."""
    return str(width)
