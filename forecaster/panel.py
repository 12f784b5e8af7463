"""A history laid on the wall clock, and coarsened to the step on which day-ahead methods work.

Every seasonal lag of every method is a plain offset on this axis: one day back is the same time on the wall clock
yesterday, across clock changes and in half-hour zones alike. The hour that a spring change leaves out is a gap; the
hour that an autumn change repeats is the mean of both passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.series import ArrivalSeries
from forecaster.timegrid import DAY_S, TimeGrid

Floats = NDArray[np.float64]

WORKING_STEP_S = 3600
"""Day-ahead methods work on hours: finer steps add noise and cost, and their shape is put back by the profile."""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Counts of several rows on one wall-clock axis that ends at the origin.

    Parameters
    ----------
    values
        Shape (rows, positions), records per step; NaN in the gaps.
    steps_per_day
        Positions in a day.
    ahead
        Shape (horizon steps,): how many positions after the end each asked step lies. Rises by one a step, but for a
        clock change within the horizon.
    """

    values: Floats
    steps_per_day: int
    ahead: NDArray[np.int64]

    @property
    def positions(self) -> int:
        """Length of the axis."""
        return int(self.values.shape[1])

    @property
    def horizon(self) -> int:
        """Positions that must be forecast so that every asked step is covered."""
        return int(self.ahead.max()) + 1 if self.ahead.size else 0


def panel_of(history: ArrivalSeries, horizon_steps: int) -> Panel:
    """Lay a history on its wall clock.

    Parameters
    ----------
    history
        What was seen up to the origin.
    horizon_steps
        Steps asked from the origin on.

    Returns
    -------
    Panel
        On a clock change the axis may end up to an hour early, so that the first asked step is never behind it.

    Examples
    --------
    >>> counts = np.arange(48.0)[None]
    >>> h = ArrivalSeries("t", TimeGrid(3600, "Europe/Berlin"), 493_920, (0,), counts, np.ones((1, 48), bool))
    >>> panel_of(h, 24).ahead[:4].tolist()
    [0, 1, 2, 3]
    """
    positions = wall_positions(history.grid, history.first_index, history.steps + horizon_steps)
    past, future = positions[: history.steps], positions[history.steps :]
    day = history.grid.steps_per_day
    if past.size == 0:
        first = int(future[0]) if future.size else 0
        return Panel(np.empty((len(history.partitions), 0)), day, future - first)
    first, end = int(past[0]), int(past[-1]) + 1
    if future.size:
        end = min(end, int(future.min()))
    values = history.counts if history.known.all() else history.with_gaps_as_nan()
    if end - first != history.steps or not np.array_equal(past, np.arange(first, first + history.steps)):
        values = _scatter(values, past - first, end - first)
    return Panel(values, day, future - end)


def wall_positions(grid: TimeGrid, first: int, count: int) -> NDArray[np.int64]:
    """Return each step's number on the wall clock of the grid's zone."""
    positions: NDArray[np.int64] = grid.local_seconds(first, count) // grid.step_s
    return positions


def _scatter(values: Floats, places: NDArray[np.int64], length: int) -> Floats:
    """Put columns at their places: the mean where two share one, NaN where none lands."""
    out = np.full((values.shape[0], length), np.nan)
    inside = places < length
    kept, first_of = np.unique(places[inside], return_index=True)
    columns = values[:, inside]
    out[:, kept] = columns[:, first_of]
    again = np.setdiff1d(np.arange(columns.shape[1]), first_of)
    for column in again:  # at most an hour of steps a year
        place = places[inside][column]
        pair = np.stack([out[:, place], columns[:, column]])
        known = np.isfinite(pair).sum(axis=0)
        out[:, place] = np.where(known > 0, np.nansum(pair, axis=0) / np.maximum(known, 1), np.nan)
    return out


def working_factor(steps_per_day: int, working_step_s: int = WORKING_STEP_S) -> int:
    """Return how many steps make one working step: the least divisor of a day that reaches ``working_step_s``.

    Examples
    --------
    >>> working_factor(288), working_factor(24), working_factor(32)
    (12, 1, 2)
    """
    step_s = DAY_S // steps_per_day
    factor = 1
    while step_s * factor < working_step_s or steps_per_day % factor:
        factor += 1
        if factor >= steps_per_day:
            return steps_per_day
    return factor


def coarsen(values: Floats, factor: int) -> Floats:
    """Average blocks of ``factor`` positions counted back from the end; a block less than half known is a gap.

    Parameters
    ----------
    values
        Shape (rows, positions), NaN in the gaps.
    factor
        Positions a block; what does not fill a first block is left out.

    Examples
    --------
    >>> coarsen(np.array([[9.0, 1.0, 3.0, np.nan, 5.0, np.nan, np.nan]]), 2)
    array([[ 2.,  5., nan]])
    """
    if factor == 1:
        return values
    rows, length = values.shape
    blocks = values[:, length % factor :].reshape(rows, -1, factor)
    means: Floats = blocks @ np.full(factor, 1.0 / factor)  # faster than a mean over a short axis
    if np.isfinite(means).all():
        return means
    known = np.isfinite(blocks)
    count = known.sum(axis=2)
    sums = np.where(known, blocks, 0.0).sum(axis=2)
    return np.where(2 * count >= factor, sums / np.maximum(count, 1), np.nan)
