"""One gradient-boosting model over all rows, direct, on scale-free seasonal features.

scikit-learn's histogram boosting under absolute loss learns how far the truth lies from the median of the last seven
same-time values, in units of each row. The lead is a feature, so one model draws the whole path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from forecaster.features import column_names, features_at
from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
_CLIP = 8.0
_BLOCK = 64  # rows whose features are held at a time


class Boosting(PathwiseMethod):
    """Global boosting; see the module.

    Parameters
    ----------
    horizon_days
        Leads learned; further leads reuse the last.
    iterations, leaves, rate
        Trees, leaves a tree, learning rate.
    gap
        Positions between training origins, the latest first; None spreads as many origins as ``max_points`` allows
        over the history.
    max_origins
        Training origins at most.
    max_points
        Training points at most; points are thinned at random to stay below.
    column_share
        Share of columns a split may choose from.
    seed
        Of the column choice and of the thinning.
    """

    name = "boosting"
    rung = Rung.OWN_MODEL

    def __init__(
        self,
        horizon_days: float = 1.0,
        iterations: int = 60,
        leaves: int = 31,
        rate: float = 0.13,
        max_origins: int = 400,
        gap: int | None = None,
        max_points: int = 100_000,
        column_share: float = 0.6,
        seed: int = 0,
    ):
        self.horizon_days = horizon_days
        self.iterations = iterations
        self.leaves = leaves
        self.rate = rate
        self.max_origins = max_origins
        self.gap = gap
        self.max_points = max_points
        self.column_share = column_share
        self.seed = seed

    def days_needed(self) -> float:
        """One day: younger lags are missing values."""
        return 1.0

    def fit_panels(self, panels: Sequence[LogPanel]) -> Self:
        """Learn from prepared logs."""
        values, target = [], []
        self.model_: HistGradientBoostingRegressor | None = None
        for panel in panels:
            day = panel.steps_per_day
            horizon = round(self.horizon_days * day)
            length = panel.logs.shape[1]
            gap = self.gap or self._spread_gap(panels, length - horizon - 2 * day, horizon, day)
            origins = [t for t in (length - horizon - g * gap for g in range(self.max_origins)) if t >= 2 * day]
            if not origins:
                continue
            if len(panels) == 1 and panel.logs.shape[0] * len(origins) * horizon > self.max_points:
                x, y = self._thinned(panel, origins, horizon)
            else:
                x, y = _points(panel.logs, day, origins, horizon)
            usable = np.isfinite(y)
            values.append(x[usable])
            target.append(np.clip(y[usable], -_CLIP, _CLIP))
        if not values:
            return self
        x, y = np.concatenate(values), np.concatenate(target)
        if len(x) > self.max_points:
            chosen = np.random.default_rng(self.seed).choice(len(x), self.max_points, replace=False)
            x, y = x[chosen], y[chosen]
        self.columns_ = np.flatnonzero(np.isfinite(x).any(axis=0))  # an all-missing column is refused by scikit-learn
        self.model_ = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=self.iterations,
            max_leaf_nodes=self.leaves,
            learning_rate=self.rate,
            min_samples_leaf=min(100, max(5, len(x) // 100)),
            max_features=self.column_share,
            early_stopping=False,
            random_state=self.seed,
        ).fit(x[:, self.columns_], y)
        return self

    def _thinned(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> tuple[Singles, Floats]:
        """Return as many points as are learned from, chosen before they are made: block by block of rows."""
        rows, each = panel.logs.shape[0], len(origins) * horizon
        chosen = np.random.default_rng(self.seed).choice(rows * each, self.max_points, replace=False)
        order = np.argsort(chosen)
        chosen = chosen[order]
        x, y = np.empty((self.max_points, len(column_names())), np.float32), np.empty(self.max_points)
        for row in range(0, rows, _BLOCK):
            values, target = _points(panel.logs[row : row + _BLOCK], panel.steps_per_day, origins, horizon)
            begin, end = np.searchsorted(chosen, [row * each, row * each + len(target)])
            x[order[begin:end]] = values[chosen[begin:end] - row * each]
            y[order[begin:end]] = target[chosen[begin:end] - row * each]
        return x, y

    def _spread_gap(self, panels: Sequence[LogPanel], room: int, horizon: int, day: int) -> int:
        """Return a gap that uses the whole history, half as many origins again as are needed, every hour of the day."""
        rows = sum(p.logs.shape[0] for p in panels)
        wanted = min(self.max_origins, max(16, 3 * self.max_points // (2 * rows * horizon)))
        gap = max(1, room // wanted)
        while gap > 1 and math.gcd(gap, day) > 1:
            gap -= 1
        return int(gap)

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Draw paths; NaN for rows that have not a day of history."""
        rows = panel.logs.shape[0]
        model: HistGradientBoostingRegressor | None = getattr(self, "model_", None)
        if model is None:
            return np.full((rows, len(origins), horizon), np.nan)
        made = features_at(panel.logs, panel.steps_per_day, origins, range(horizon))
        out = made.logs(model.predict(made.values[:, self.columns_]))
        for k, origin in enumerate(origins):
            if origin < panel.steps_per_day:
                out[:, k] = np.nan
            else:
                out[~np.isfinite(panel.logs[:, origin - panel.steps_per_day]), k] = np.nan
        return out


def _points(logs: Floats, day: int, origins: Sequence[int], horizon: int) -> tuple[Singles, Floats]:
    """Return features, and what the median day is to be corrected by; NaN where the truth is unknown."""
    made = features_at(logs, day, origins, range(horizon))
    at = np.asarray(origins)[:, None] + np.arange(horizon)
    return made.values, (logs[:, at].ravel() - made.offset) / made.unit - made.base
