"""How good a forecast was: additive tallies over origins, and the figures that they give.

A :class:`Tally` holds sums, never forecasts, so that a backtest over many origins needs the memory of one, and tallies
of different workers are added. :meth:`Tally.scores` turns sums into figures:

==================  ==================================================================================================
``mase``            mean absolute error ÷ mean absolute day-seasonal difference of the history up to each origin
                    (Hyndman and Koehler, 2006, doi:10.1016/j.ijforecast.2006.03.001)
``wape``            sum of absolute errors ÷ sum of actuals, a fraction
``smape``           mean of 200 |e| / (|y| + |f|), percent as in the M4 competition; 0 where both are zero
``pinball``         mean quantile loss in records/s (Koenker and Bassett, 1978, doi:10.2307/1913643)
``scaled_pinball``  the same in units of the MASE scale, so that it may be averaged over series of different size
``coverage``        share of actuals at or below the quantile, a fraction
==================  ==================================================================================================

Figures of several series are means over the series that have one. A figure that does not exist (nothing known in the
test, a history without a day of differences, a constant one) is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 32  # rows whose running sums are held at a time


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of one series, or their means over several.

    Parameters
    ----------
    mase, wape, smape
        Of the median forecast; None where undefined.
    pinball, scaled_pinball, coverage
        By quantile level.
    points
        Number of known actuals that were forecast.
    """

    mase: float | None
    wape: float | None
    smape: float | None
    pinball: dict[float, float | None]
    scaled_pinball: dict[float, float | None]
    coverage: dict[float, float | None]
    points: int


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Sums over (origin, step) points, one row a group (a series, a lead, an hour of the week…).

    Parameters
    ----------
    levels
        Quantile levels of the last axis of the quantile sums; 0.5 is among them.
    points, actual, error, smape
        Shape (groups,): count, Σ|y|, Σ|e|, Σ 200|e|/(|y|+|f|).
    scaled_points, scaled_error
        Shape (groups,): the same for points whose series has a scale.
    pinball, scaled_pinball, covered
        Shape (groups, levels).
    """

    levels: tuple[float, ...]
    points: Floats
    actual: Floats
    error: Floats
    smape: Floats
    scaled_points: Floats
    scaled_error: Floats
    pinball: Floats
    scaled_pinball: Floats
    covered: Floats

    def __add__(self, other: Tally) -> Tally:
        if self.levels != other.levels or self.points.shape != other.points.shape:
            raise ValueError("tallies of different groups or levels cannot be added")
        return Tally(self.levels, *(a + b for a, b in zip(self._sums(), other._sums(), strict=True)))

    def _sums(self) -> tuple[Floats, ...]:
        return (
            self.points,
            self.actual,
            self.error,
            self.smape,
            self.scaled_points,
            self.scaled_error,
            self.pinball,
            self.scaled_pinball,
            self.covered,
        )

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.points)

    def scores(self) -> tuple[Scores, ...]:
        """Return the figures of each group."""
        return tuple(self._scores_of(i) for i in range(self.groups))

    def _scores_of(self, i: int) -> Scores:
        def by_level(sums: Floats, count: float) -> dict[float, float | None]:
            return {q: _ratio(float(v), count) for q, v in zip(self.levels, sums[i], strict=True)}

        n, scaled = float(self.points[i]), float(self.scaled_points[i])
        return Scores(
            mase=_ratio(float(self.scaled_error[i]), scaled),
            wape=_ratio(float(self.error[i]), float(self.actual[i])),
            smape=_ratio(float(self.smape[i]), n),
            pinball=by_level(self.pinball, n),
            scaled_pinball=by_level(self.scaled_pinball, scaled),
            coverage=by_level(self.covered, n),
            points=int(n),
        )

    def regrouped(self, group_of: Sequence[int] | NDArray[np.int64], groups: int) -> Tally:
        """Add groups together: row ``i`` goes to row ``group_of[i]`` of the result."""
        index = np.asarray(group_of, dtype=np.int64)

        def gather(sums: Floats) -> Floats:
            out = np.zeros((groups, *sums.shape[1:]))
            np.add.at(out, index, sums)
            return out

        return Tally(self.levels, *(gather(s) for s in self._sums()))


def tally(actual: Floats, known: NDArray[np.bool_], quantiles: Floats, levels: Sequence[float], scale: Floats) -> Tally:
    """Tally one forecast, a group a (row, step) in row-major order; :meth:`Tally.regrouped` adds them together.

    Parameters
    ----------
    actual, known
        Shape (rows, steps): records/s, and which of them are known.
    quantiles
        Shape (rows, steps, levels): the forecast, records/s.
    levels
        Quantile levels; 0.5 must be among them, it is the point forecast.
    scale
        Shape (rows,): MASE scale of each row in records/s; NaN where it has none.

    Examples
    --------
    >>> t = tally(np.array([[2.0, 4.0]]), np.array([[True, True]]), np.array([[[1.0], [4.0]]]), (0.5,), np.array([1.0]))
    >>> one = t.regrouped([0, 0], 1).scores()[0]
    >>> one.mase, round(one.wape, 4), one.coverage[0.5]
    (0.5, 0.1667, 0.5)
    """
    levels = tuple(levels)
    if 0.5 not in levels:
        raise ValueError(f"levels {levels} must hold 0.5: the median is the point forecast")
    use = known.astype(np.float64)
    y = np.where(known, actual, 0.0)
    point = quantiles[..., levels.index(0.5)]
    error = np.abs(y - point) * use
    size = np.abs(y) + np.abs(point)
    smape = np.where(size > 0, 200.0 * error / np.where(size > 0, size, 1.0), 0.0)
    scaled = use * (np.isfinite(scale) & (scale > 0))[:, None]
    per_scale = scaled / np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)[:, None]
    loss = pinball_loss(y[..., None], quantiles, np.asarray(levels)) * use[..., None]
    covered = (y[..., None] <= quantiles) * use[..., None]
    q = len(levels)
    return Tally(
        levels,
        use.ravel(),
        np.abs(y).ravel(),
        error.ravel(),
        smape.ravel(),
        scaled.ravel(),
        (error * per_scale).ravel(),
        loss.reshape(-1, q),
        (loss * per_scale[..., None]).reshape(-1, q),
        covered.reshape(-1, q),
    )


def pinball_loss(actual: Floats, quantile: Floats, level: Floats) -> Floats:
    """Return the quantile loss, element by element (arguments broadcast).

    Examples
    --------
    >>> pinball_loss(np.array([10.0, 10.0]), np.array([8.0, 12.0]), np.array(0.9)).round(2).tolist()
    [1.8, 0.2]
    """
    miss = actual - quantile
    return np.asarray(np.maximum(level * miss, (level - 1.0) * miss), dtype=np.float64)


def seasonal_scales(counts: Floats, known: NDArray[np.bool_], season: int, ends: Sequence[int]) -> Floats:
    """Return mean absolute seasonal differences of the history before each end: the scale of MASE.

    Parameters
    ----------
    counts, known
        Shape (rows, steps).
    season
        Season length in steps; a day for every figure of this package.
    ends
        Numbers of steps of history, one an origin.

    Returns
    -------
    Shape (rows, origins), in the unit of ``counts``; NaN where no two known steps lie a season apart.

    Examples
    --------
    >>> y = np.array([[1.0, 2.0, 3.0, 6.0]])
    >>> seasonal_scales(y, np.full(y.shape, True), 2, [2, 3, 4]).tolist()
    [[nan, 2.0, 3.0]]
    """
    blocks = [
        _scales_of(counts[a : a + _BLOCK], known[a : a + _BLOCK], season, ends) for a in range(0, len(counts), _BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.empty((0, len(ends)))


def _scales_of(counts: Floats, known: NDArray[np.bool_], season: int, ends: Sequence[int]) -> Floats:
    rows, steps = counts.shape
    both = known[:, season:] & known[:, :-season] if steps > season else np.zeros((rows, 0), dtype=np.bool_)
    apart = np.where(both, np.abs(counts[:, season:] - counts[:, :-season]), 0.0) if steps > season else both * 1.0
    sums = np.concatenate([np.zeros((rows, 1)), np.cumsum(apart, axis=1)], axis=1)
    sizes = np.concatenate([np.zeros((rows, 1)), np.cumsum(both, axis=1)], axis=1)
    at = np.clip(np.asarray(ends, dtype=np.int64) - season, 0, sums.shape[1] - 1)
    return np.where(sizes[:, at] > 0, sums[:, at] / np.maximum(sizes[:, at], 1.0), np.nan)


def mean_scores(scores: Iterable[Scores]) -> Scores:
    """Return means over series, each figure over the series that have it.

    Raises
    ------
    ValueError
        If there are no scores, or their levels differ.
    """
    many = list(scores)
    if not many:
        raise ValueError("no scores to average")
    levels = list(many[0].pinball)
    if any(list(s.pinball) != levels for s in many):
        raise ValueError("scores of different levels cannot be averaged")
    return Scores(
        mase=_mean(s.mase for s in many),
        wape=_mean(s.wape for s in many),
        smape=_mean(s.smape for s in many),
        pinball={q: _mean(s.pinball[q] for s in many) for q in levels},
        scaled_pinball={q: _mean(s.scaled_pinball[q] for s in many) for q in levels},
        coverage={q: _mean(s.coverage[q] for s in many) for q in levels},
        points=sum(s.points for s in many),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    have = [v for v in values if v is not None]
    return sum(have) / len(have) if have else None


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 0 else None
