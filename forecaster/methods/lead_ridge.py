"""Short leads for many origins at once: one ridge regression per lead, for schedules and simulations.

A month of minutely origins takes seconds, because every feature is a difference of cumulative sums and every lead one
matrix product. Works on ``log1p`` of the rate over a tenth of its mean: recent means over 1 to 60 minutes, and the
smoothed values of the same moment yesterday and in the last weeks with the level around them. Quantiles are those of
its own residuals per lead, scaled by how uncertain each hour of the day has been, and each level: a crowd of a hundred
thousand moves by less of itself than a handful does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DAY, WEEK = 1440, 10080
LEADS = (1, 2, 3, 5, 8, 12, 18, 25, 35, 45, 60, 90, 120, 180, 240, 300, 358)
"""Minutes ahead, each standing for the mean of the five minutes around it (three below five)."""

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
STEP_MINUTES = 5
STEPS = 72
"""Of the answer: six hours."""
_SMOOTH = 9
"""Minutes around an instant of an earlier day whose mean is looked at."""
_SPACING = 5
"""Minutes between two origins that are learned from."""
_RIDGE = 1e-4
"""Penalty of a coefficient, for each origin."""
_LONGEST_RECENT = 60
"""Minutes that the longest recent mean looks back."""
_OCTAVES = 24
_OCTAVES_BELOW = 8
"""Residuals have a spread for each size of the rate: octaves of the scale's unit, so many of them below one."""
_BELIEF_ROWS = 100
"""Residuals that an octave must have for its own spread to count as much as that of all."""


@dataclass(slots=True)
class LeadRidge:
    """One ridge per lead; ``fit`` on minutes before an instant, ``quantiles`` at many origins after it.

    Parameters
    ----------
    levels
        Quantile levels.
    weeks
        Longest history that is fitted.

    Examples
    --------
    >>> minute = np.arange(14 * DAY)
    >>> counts = 6000 + 3000 * np.sin(2 * np.pi * minute / DAY)
    >>> model = LeadRidge().fit(counts, 13 * DAY)
    >>> forecast = model.quantiles(counts, np.array([13 * DAY]))
    >>> forecast.shape
    (1, 72, 7)
    >>> median = forecast[0, :, 0] * 60
    >>> truth = counts[13 * DAY :].reshape(-1, 5).mean(axis=1)[:72]
    >>> bool(np.abs(median / truth - 1).max() < 0.02)
    True
    """

    levels: tuple[float, ...] = LEVELS
    weeks: int = 10
    scale_: float = field(init=False, default=1.0)
    lags_: tuple[int, ...] = field(init=False, default=())
    coefficients_: Floats = field(init=False, default_factory=lambda: np.zeros((0, 0)))
    scores_: Floats = field(init=False, default_factory=lambda: np.zeros((0, 0)))
    """Quantiles of scaled residuals, shape (leads, levels)."""
    spread_: Floats = field(init=False, default_factory=lambda: np.zeros((0, 0)))
    """Mean absolute residual per lead and hour of the day, shape (leads, 24)."""
    octave_: Floats = field(init=False, default_factory=lambda: np.zeros((0, 0)))
    """By what factor it is another at each octave of the forecast, shape (leads, octaves)."""

    def fit(self, minutes: Floats, end: int) -> LeadRidge:
        """Learn from ``minutes[:end]`` (records per minute).

        Raises
        ------
        ValueError
            If there is less history than :meth:`least_minutes`.
        """
        if end < self.least_minutes():
            raise ValueError(f"{end} minutes of history, {self.least_minutes()} are needed")
        past = minutes[:end]
        self.scale_ = max(float(past[-self.weeks * WEEK :].mean()), 1e-9) / 10
        reach = [p for p in (DAY, WEEK, 2 * WEEK, 3 * WEEK) if end - p - _LONGEST_RECENT - 10 >= 4 * DAY or p == DAY]
        self.lags_ = tuple(reach)
        first = max(max(self.lags_) + _LONGEST_RECENT + 10, end - self.weeks * WEEK)
        sums = _Sums(past, self.scale_)
        origins = np.arange(first, end - LEADS[-1] - 3, _SPACING)
        base = self._base(sums, origins)
        rows, scores, spread, octaves = [], [], [], []
        hours = np.arange(24)
        for lead in LEADS:
            design = np.concatenate([base, self._moment(sums, origins, lead)], axis=1)
            target = _target(sums, origins, lead)
            penalty = np.eye(design.shape[1]) * (len(origins) * _RIDGE)
            penalty[0, 0] = 0.0
            solved = np.linalg.solve(design.T @ design + penalty, design.T @ target)
            middle = design @ solved
            residual = target - middle
            hour, octave = (origins + lead) // 60 % 24, _octave(middle)
            mean = np.abs(residual).mean()
            near = [np.abs(residual[np.isin(hour, [(h - 1) % 24, h, (h + 1) % 24])]) for h in hours]
            each = np.array([0.5 * (r.mean() if r.size else mean) + 0.5 * mean for r in near])
            scaled = residual / np.maximum(each[hour], 1e-12)
            factor = _by_octave(np.abs(scaled), octave)
            rows.append(solved)
            spread.append(each)
            octaves.append(factor)
            scores.append(np.quantile(scaled / factor[octave], self.levels))
        self.coefficients_, self.spread_, self.octave_ = np.array(rows), np.array(spread), np.array(octaves)
        self.scores_ = np.maximum.accumulate(np.array(scores), axis=1)
        return self

    @staticmethod
    def least_minutes() -> int:
        """Return the least history that can be fitted: four days."""
        return 4 * DAY

    def quantiles(self, minutes: Floats, origins: Integers) -> NDArray[np.float32]:
        """Forecast at many origins; an origin sees the minutes before it alone.

        Parameters
        ----------
        minutes
            Records per minute, from the same first minute as at :meth:`fit`.
        origins
            Indices of the first minute that each forecast may not see.

        Returns
        -------
        ndarray
            Shape (origins, 72, levels), records/s of each five minutes ahead.
        """
        sums = _Sums(minutes, self.scale_)
        base = self._base(sums, origins)
        middle, spread = np.empty((2, len(origins), len(LEADS)))
        for k, lead in enumerate(LEADS):
            moment = self._moment(sums, origins, lead)
            middle[:, k] = (
                base @ self.coefficients_[k, : base.shape[1]] + moment @ self.coefficients_[k, base.shape[1] :]
            )
            spread[:, k] = self.spread_[k, (origins + lead) // 60 % 24] * self.octave_[k, _octave(middle[:, k])]
        at = np.clip(np.arange(STEPS) * STEP_MINUTES + STEP_MINUTES / 2 + 0.5, LEADS[0], LEADS[-1])
        known = np.array(LEADS, dtype=float)
        low = np.clip(np.searchsorted(known, at, side="right") - 1, 0, known.size - 2)
        share = (at - known[low]) / (known[low + 1] - known[low])
        out = np.empty((len(origins), STEPS, len(self.levels)), dtype=np.float32)
        center = middle[:, low] * (1 - share) + middle[:, low + 1] * share
        for j in range(len(self.levels)):
            offset = spread * self.scores_[:, j]
            logs = center + offset[:, low] * (1 - share) + offset[:, low + 1] * share
            out[:, :, j] = np.maximum(np.expm1(np.minimum(logs, 30.0)), 0.0) * (self.scale_ / 60)
        return np.maximum.accumulate(out, axis=2)

    def _base(self, sums: _Sums, origins: Integers) -> Floats:
        """Return the features that do not depend on the lead, a column of ones first."""
        columns = [np.ones(len(origins))]
        columns += [sums.log_mean(origins - n, origins) for n in (1, 2, 5, 15, _LONGEST_RECENT)]
        for lag in self.lags_:
            then = origins - lag
            columns += [sums.log_mean(then - n, then) for n in (15, _LONGEST_RECENT)]
        return np.stack(columns, axis=1)

    def _moment(self, sums: _Sums, origins: Integers, lead: int) -> Floats:
        """Return the smoothed values of the lead's moment a day and some weeks ago."""
        return np.stack([sums.smoothed(origins - lag + lead) for lag in self.lags_], axis=1)


class _Sums:
    """Logs of means over any stretch, by differences of one cumulative sum."""

    def __init__(self, minutes: Floats, scale: float) -> None:
        self._total = np.concatenate([[0.0], np.cumsum(minutes)])
        self._scale = scale

    def log_mean(self, first: Integers, end: Integers) -> Floats:
        """Return log1p of the mean over ``[first, end)``, in the scale's units."""
        lo, hi = np.maximum(first, 0), np.maximum(end, 1)
        mean = (self._total[hi] - self._total[lo]) / np.maximum(hi - lo, 1)
        logs: Floats = np.log1p(np.maximum(mean, 0.0) / self._scale)
        return logs

    def smoothed(self, at: Integers) -> Floats:
        """Return log1p of the mean of the nine minutes around ``at``."""
        half = _SMOOTH // 2
        return self.log_mean(at - half, at + half + 1)


def _target(sums: _Sums, origins: Integers, lead: int) -> Floats:
    half = 1 if lead < 5 else 2
    return sums.log_mean(origins + lead - half if lead > half else origins, origins + lead + half + 1)


def _octave(logs: Floats) -> Integers:
    """Return the octave that each rate lies in, given its log1p in the scale's units."""
    octave: Integers = np.clip(logs / np.log(2) + _OCTAVES_BELOW, 0, _OCTAVES - 1).astype(np.int64)
    return octave


def _by_octave(scaled: Floats, octave: Integers) -> Floats:
    """Return the mean of ``scaled`` around each octave; the fewer there are, the nearer to one."""
    total = np.bincount(octave, scaled, _OCTAVES)
    count = np.bincount(octave, minlength=_OCTAVES).astype(np.float64)
    around = np.ones(3)
    factor: Floats = (np.convolve(total, around, "same") + _BELIEF_ROWS) / (
        np.convolve(count, around, "same") + _BELIEF_ROWS
    )
    return factor
