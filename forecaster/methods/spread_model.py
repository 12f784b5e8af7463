"""How wide a forecast is at each point: a learned upper spread, and the shape of errors around it.

The spread is boosting's 0.9-quantile of the error (truth minus blended path, on the log scale, in the row's units),
learned on held-out days. Errors over spread are pooled into one table, so any level can be asked, levels never cross,
and the table may be renewed with what happened since (split conformal prediction [1]_ with a moving window).

References
----------
.. [1] V. Vovk, A. Gammerman, G. Shafer, "Algorithmic learning in a random world", Springer 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor

from forecaster.features import Features

Floats = NDArray[np.float64]

_FLOOR = 0.02  # of a row's unit: no forecast is surer than that
_MOST_SCORES = 20_000


class SpreadModel(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Learned upper spread; see the module.

    Parameters
    ----------
    iterations, leaves, rate
        Of the boosting.
    max_points
        Training points at most.
    seed
        Of the thinning.
    """

    def __init__(
        self, iterations: int = 60, leaves: int = 15, rate: float = 0.1, max_points: int = 60_000, seed: int = 0
    ):
        self.iterations = iterations
        self.leaves = leaves
        self.rate = rate
        self.max_points = max_points
        self.seed = seed

    def fit(self, features: Sequence[Features], errors: Sequence[Floats]) -> Self:
        """Learn from held-out errors.

        Parameters
        ----------
        features
            Of the held-out points.
        errors
            Log errors of the same points, one array a set of features; NaN where the truth is unknown.
        """
        x = np.concatenate([f.values for f in features])
        y = np.concatenate([e.ravel() / f.unit for f, e in zip(features, errors, strict=True)])
        usable = np.flatnonzero(np.isfinite(y))
        if len(usable) > self.max_points:
            usable = np.random.default_rng(self.seed).choice(usable, self.max_points, replace=False)
        x, y = x[usable], np.clip(y[usable], -8.0, 8.0)
        self.columns_ = np.flatnonzero(np.isfinite(x).any(axis=0))
        self.model_ = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=0.9,
            max_iter=self.iterations,
            max_leaf_nodes=self.leaves,
            learning_rate=self.rate,
            min_samples_leaf=min(100, max(10, len(x) // 50)),
            max_features=0.6,
            early_stopping=False,
            random_state=self.seed,
        ).fit(x[:, self.columns_], y)
        return self

    def spread(self, features: Features) -> Floats:
        """Return the upper spread on the log scale, shape of ``features``; positive."""
        learned = self.model_.predict(features.values[:, self.columns_])
        out: Floats = (np.maximum(learned, _FLOOR) * features.unit).reshape(features.shape)
        return out


def error_table(scores: Floats, seed: int = 0) -> Floats:
    """Return sorted scores (errors over spread) without NaN, thinned to a bounded number."""
    known = scores[np.isfinite(scores)]
    if known.size > _MOST_SCORES:
        known = np.random.default_rng(seed).choice(known, _MOST_SCORES, replace=False)
    return np.sort(known)


def optimism(unseen: Sequence[Floats], learned: Sequence[Floats]) -> float:
    """Return how much larger errors are on points that a model has not learned, at least 1 and at most 3.

    Parameters
    ----------
    unseen, learned
        Errors at the same points, of a model that has not seen them and of one that has.

    Examples
    --------
    >>> optimism([np.array([2.0, -2.0])], [np.array([1.0, -1.0])])
    2.0
    """
    if not unseen:
        return 1.0
    apart = [np.abs(np.concatenate([e.ravel() for e in errors])) for errors in (unseen, learned)]
    known = np.isfinite(apart[0]) & np.isfinite(apart[1])
    if not known.any():
        return 1.0
    high, low = (float(np.quantile(a[known], 0.9)) for a in apart)
    return float(np.clip(high / low, 1.0, 3.0)) if low > 0 else 1.0


def table_offsets(tables: Sequence[tuple[Floats, float]], levels: Sequence[float]) -> Floats:
    """Return the score at each level from several tables with weights; zero at 0.5, rising along the levels.

    Parameters
    ----------
    tables
        (sorted scores, weight of the whole table).
    levels
        Quantile levels.

    Examples
    --------
    >>> table_offsets([(np.linspace(-1, 1, 201), 1.0)], [0.25, 0.5, 0.9]).round(2)
    array([-0.5,  0. ,  0.8])
    """
    scores = np.concatenate([t for t, _ in tables])
    weights = np.concatenate([np.full(t.size, w / max(t.size, 1)) for t, w in tables])
    order = np.argsort(scores)
    scores, weights = scores[order], weights[order]
    ranks = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    asked = np.asarray(levels, dtype=np.float64)
    at = np.interp(asked, ranks, scores)
    bounded = np.where(asked > 0.5, np.maximum(at, 0.0), np.minimum(at, 0.0))
    out: Floats = np.where(asked == 0.5, 0.0, bounded)
    return out
