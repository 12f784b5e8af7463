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

from forecaster.features import features_at
from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]
_CLIP = 8.0


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
            for chosen, some in self._blocks(panel.logs.shape[0], origins, horizon):
                logs = panel.logs[chosen]
                made = features_at(logs, day, some, range(horizon))
                at = np.asarray(some)[:, None] + np.arange(horizon)
                y = (logs[:, at].ravel() - made.offset) / made.unit - made.base
                usable = np.isfinite(y)
                values.append(made.values[usable])
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

    def _blocks(self, rows: int, origins: Sequence[int], horizon: int) -> list[tuple[NDArray[np.int64], Sequence[int]]]:
        """Return (rows, origins) whose features are computed; where thinning would drop most, other rows an origin."""
        each = -(-5 * self.max_points // (4 * len(origins) * horizon))
        if rows < 2 * each:
            return [(np.arange(rows), origins)]
        random = np.random.default_rng(self.seed)
        return [(np.sort(random.choice(rows, each, replace=False)), [origin]) for origin in origins]

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
