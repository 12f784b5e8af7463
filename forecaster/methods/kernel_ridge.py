"""Kernel ridge regression with random Fourier features on the last one or two weeks, all leads at once.

A window of logs is normalised by its own last week; random cosines of its weighted lags approximate a Gaussian
kernel [1]_, the lags themselves are kept beside them, and one linear solve gives every lead. One pass of re-weighting
by the inverse absolute residual turns least squares toward least absolute error.

References
----------
.. [1] A. Rahimi and B. Recht, "Random features for large-scale kernel machines", NIPS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_factor, cho_solve

from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

_CLIP = 5.0
_FEWEST_WINDOWS = 200
_ENOUGH_WINDOWS = 12_000
_MOST_WINDOWS = 25_000
_BLOCK = 4_096  # windows whose weighted features are held at a time


class KernelRidge(PathwiseMethod):
    """Random-feature kernel ridge; see the module.

    Parameters
    ----------
    horizon_days
        How far ahead the leads reach; further leads are left to other methods.
    window_days
        Days of lags; one week where no history reaches a week beyond that.
    features
        Random cosines.
    width
        Width of the kernel, in units of the median distance between windows.
    penalty
        Ridge penalty per thousand windows.
    stride
        Positions between training origins where there are many rows; fewer rows are cut more densely.
    max_windows
        Training windows a row, the latest first, where there are many rows.
    seed
        Of the random features.
    """

    name = "kernel_ridge"
    rung = Rung.OWN_MODEL

    def __init__(
        self,
        horizon_days: float = 1.0,
        window_days: int = 14,
        features: int = 1000,
        width: float = 0.5,
        penalty: float = 1.0,
        stride: int = 6,
        max_windows: int = 60,
        seed: int = 0,
    ):
        self.horizon_days = horizon_days
        self.window_days = window_days
        self.features = features
        self.width = width
        self.penalty = penalty
        self.stride = stride
        self.max_windows = max_windows
        self.seed = seed

    def days_needed(self) -> float:
        """One week, the shortest window."""
        return 7.0

    def fit_panels(self, panels: Sequence[LogPanel]) -> Self:
        """Learn from prepared logs; all must have the same steps in a day."""
        day = panels[0].steps_per_day
        self.steps_per_day_ = day
        horizon = round(self.horizon_days * day)
        longest = max(p.logs.shape[1] for p in panels)
        self.length_ = day * (self.window_days if longest >= (self.window_days + 7) * day + horizon else 7)
        dense = max(1, _ENOUGH_WINDOWS // (self.max_windows * sum(p.logs.shape[0] for p in panels)))
        stride = max(1, self.stride // dense)
        while stride > 1 and math.gcd(stride, day) > 1 and dense > 1:
            stride -= 1
        most = self.max_windows * dense
        cuts = [_Windows.of(p.logs, self.length_, horizon, stride, most) for p in panels]
        count = sum(len(c.row) for c in cuts)
        kept = np.arange(count)
        if count > _MOST_WINDOWS:
            kept = np.sort(np.random.default_rng(self.seed).choice(count, _MOST_WINDOWS, replace=False))
        bounds = np.cumsum([0, *(len(c.row) for c in cuts)])
        parts = [
            c.cut(kept[(kept >= begin) & (kept < end)] - begin)
            for c, (begin, end) in zip(cuts, pairwise(bounds), strict=True)
        ]
        inputs, targets = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        self.weights_: Singles | None = None
        if len(inputs) < _FEWEST_WINDOWS:
            return self
        mean, unit = self._norm(inputs)
        x = np.clip((inputs - mean) / unit, -_CLIP, _CLIP).astype(np.float32)
        y = np.clip((targets - mean) / unit, -_CLIP, _CLIP).astype(np.float32)
        random = np.random.default_rng(self.seed)
        emphasis = _emphasis(x.shape[1], day)
        pair = random.integers(0, len(x), (2, min(500, len(x))))
        distance = float(np.median(np.linalg.norm((x[pair[0]] - x[pair[1]]) * emphasis, axis=1))) or 1.0
        draw = random.normal(size=(x.shape[1], self.features))
        self.directions_ = (draw * emphasis[:, None] / (distance * self.width)).astype(np.float32)
        self.phases_ = random.uniform(0, 2 * np.pi, self.features).astype(np.float32)
        self.weights_ = _robust_ridge(self._expand(x), y, self.penalty)
        return self

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Draw paths; NaN beyond the trained leads and where a window is not full."""
        rows = panel.logs.shape[0]
        out = np.full((rows, len(origins), horizon), np.nan)
        weights: Singles | None = getattr(self, "weights_", None)
        if weights is None or panel.steps_per_day != self.steps_per_day_:
            return out
        length = self.length_
        for k, origin in enumerate(origins):
            if origin < length:
                continue
            window = panel.logs[:, origin - length : origin]
            full = np.isfinite(window).all(axis=1)
            if not full.any():
                continue
            mean, unit = self._norm(window[full])
            x = np.clip((window[full] - mean) / unit, -_CLIP, _CLIP).astype(np.float32)
            drawn = self._expand(x) @ weights * unit + mean
            reach = min(horizon, drawn.shape[1])
            out[full, k, :reach] = drawn[:, :reach]
        return out

    def _norm(self, window: Floats) -> tuple[Floats, Floats]:
        last = window[:, -7 * self.steps_per_day_ :]
        mean = last.mean(axis=1, keepdims=True)
        return mean, np.abs(last - mean).mean(axis=1, keepdims=True) + 1e-3

    def _expand(self, x: Singles) -> Singles:
        cosines = x @ self.directions_
        cosines += self.phases_
        np.cos(cosines, out=cosines)
        cosines *= np.float32(10.0 * np.sqrt(2.0 / self.features))
        return np.concatenate([cosines, x, np.ones((len(x), 1), np.float32)], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """Windows without a gap, the latest first; cut when asked, for they overlap and would fill the memory."""

    views: Floats
    row: NDArray[np.int64]
    place: NDArray[np.int64]
    length: int

    @classmethod
    def of(cls, logs: Floats, length: int, horizon: int, stride: int, most: int) -> _Windows:
        total = length + horizon
        if logs.shape[1] < total:
            none = np.zeros(0, dtype=np.int64)
            return cls(np.empty((0, 0, total)), none, none, length)
        views = np.lib.stride_tricks.sliding_window_view(logs, total, axis=1)[:, ::-1][:, ::stride][:, :most]
        known = np.cumsum(np.isfinite(logs), axis=1)
        whole = known[:, total - 1 :] - np.concatenate([np.zeros((len(logs), 1)), known[:, :-total]], axis=1) == total
        row, place = np.nonzero(whole[:, ::-1][:, ::stride][:, :most])
        return cls(views, row, place, length)

    def cut(self, which: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return inputs and targets of some of them."""
        flat = self.views[self.row[which], self.place[which]]
        return flat[:, : self.length], flat[:, self.length :]


def _emphasis(length: int, day: int) -> Floats:
    """Weigh lags in the kernel's distance: the last hours, the last two days and the same days a week ago."""
    weight = np.full(length, 0.4)
    weight[-7 * day : -5 * day] = 0.9
    weight[-2 * day :] = 1.0
    weight[-day // 4 :] = 2.0
    return weight


def _robust_ridge(x: Singles, y: Singles, penalty: float, passes: int = 2) -> Singles:
    """Solve ridge regression, then again with weights of one over the absolute residual."""
    diagonal = np.full(x.shape[1], penalty * len(x) / 1000.0)
    diagonal[-1] = 1e-6
    weight = np.ones(len(x), np.float32)
    for remaining in reversed(range(passes)):
        gram = np.zeros((x.shape[1], x.shape[1]))
        right = np.zeros((x.shape[1], y.shape[1]))
        for a in range(0, len(x), _BLOCK):
            root = np.sqrt(weight[a : a + _BLOCK])[:, None]
            scaled = x[a : a + _BLOCK] * root
            gram += blas.ssyrk(1.0, scaled.T, lower=1)
            right += scaled.T @ (y[a : a + _BLOCK] * root)
        gram[np.diag_indices_from(gram)] += diagonal
        solved = cho_solve(cho_factor(gram, lower=True, overwrite_a=True, check_finite=False), right)
        solution: Singles = solved.astype(np.float32)
        if remaining:
            residual = np.abs(y - x @ solution).mean(axis=1)
            weight = 1.0 / np.maximum(residual, max(float(np.quantile(residual, 0.2)), 1e-6))
            weight = (weight / weight.mean()).astype(np.float32)
    return solution
