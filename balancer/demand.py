"""Demand: what must be served at each instant of the horizon, in records/s.

The horizon is cut into cells, fine where a decision is near. A cell's demand is the peak of the forecast within it at
a safety level that falls from ``near_level`` (what must be asked for now) to ``far_level`` (what later ticks can still
correct), raised by the online correction, by the reactive floor, and by the backlog that must be drained.
All functions work on arrays whose last axis is the cells; leading axes are runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Forecast

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

_WIDTHS_S = (300,) * 6 + (600,) * 3 + (1200,) * 6 + (2700,) * 4
"""Half an hour in fives of minutes, another in tens, two hours in twenties, three in three quarters: six hours."""
_NEAR_TAIL_S = 480.0
"""Beyond the lead time the near level holds for so long."""
_FADE_S = 1500.0
"""Then it falls towards the far level: by all but 1/e in so long."""
_CORRECTED_CELLS = 3
"""The cells after the first that take the online correction whole; the reach of a usual lead time."""
_CORRECTION_FADE_CELLS = 6.0
"""Beyond them it falls by all but 1/e in so many cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The horizon's cells.

    Parameters
    ----------
    widths_s
        Length of each cell in seconds.

    Examples
    --------
    >>> Cells().horizon_s / 3600
    6.0
    """

    widths_s: tuple[int, ...] = _WIDTHS_S
    starts_s: Floats = field(init=False)
    hours: Floats = field(init=False)
    """Length of each cell in hours: what one member costs in it."""

    def __post_init__(self) -> None:
        widths = np.array(self.widths_s, dtype=float)
        object.__setattr__(self, "starts_s", np.concatenate([[0.0], np.cumsum(widths)[:-1]]))
        object.__setattr__(self, "hours", widths / 3600)

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.widths_s)

    @property
    def horizon_s(self) -> float:
        """Seconds covered."""
        return float(sum(self.widths_s))

    def within(self, span_s: float) -> int:
        """Return how many cells begin before ``span_s``, at least one."""
        return max(1, int(np.searchsorted(self.starts_s, span_s, side="left")))

    def covered(self, span_s: float) -> Integers:
        """Return, for each cell, the last cell that a request made at its start must still cover."""
        reach = np.searchsorted(self.starts_s, self.starts_s + span_s, side="right") - 1
        return np.maximum(reach, np.arange(self.count)).astype(np.int64)


CELLS = Cells()


def cell_peaks(values: Floats, step_s: float, cells: Cells, offset_s: float = 0.0) -> Floats:
    """Return the peak of a forecast within each cell.

    Parameters
    ----------
    values
        Shape (..., steps, levels).
    step_s
        Length of a forecast step.
    cells
        The horizon.
    offset_s
        Seconds between the forecast's origin and now. Beyond the forecast's end its last step is held.

    Returns
    -------
    ndarray
        Shape (..., cells, levels).
    """
    first, last, is_gapless = _steps_in(cells, values.shape[-2], step_s, offset_s)
    if is_gapless:
        return np.maximum.reduceat(values[..., : int(last[-1]) + 1, :], first, axis=-2)
    return np.stack(
        [values[..., a : max(a, b) + 1, :].max(axis=-2) for a, b in zip(first.tolist(), last.tolist(), strict=True)],
        axis=-2,
    )


@lru_cache(maxsize=64)
def _steps_in(cells: Cells, steps: int, step_s: float, offset_s: float) -> tuple[Integers, Integers, bool]:
    """Return each cell's first and last forecast step, and whether no step lies between or in two of them."""
    first = np.minimum(((cells.starts_s + offset_s) // step_s).astype(np.int64), steps - 1)
    ends = cells.starts_s + np.array(cells.widths_s) + offset_s
    last = np.minimum(np.ceil(ends / step_s - 1e-9).astype(np.int64) - 1, steps - 1)
    return first, last, bool((first[1:] == last[:-1] + 1).all())


def level_path(near: Floats, far: Floats, cells: Cells, lead_s: float) -> Floats:
    """Return the safety level of each cell, shape (..., cells).

    ``near`` holds as far as a request made now reaches (lead time and 8 minutes), then fades to ``far`` over 25 min.
    """
    beyond = np.maximum(cells.starts_s - (lead_s + _NEAR_TAIL_S), 0.0)
    weight = np.exp(-beyond / _FADE_S)
    path: Floats = far[..., None] + (near - far)[..., None] * weight
    return path


def level_weights(path: Floats, levels: tuple[float, ...]) -> Floats:
    """Return the weights that interpolate each cell's level between the forecast's, shape (..., cells, levels)."""
    known = np.array(levels)
    if known.size == 1:
        return np.ones((*path.shape, 1))
    place = np.clip(np.searchsorted(known, path, side="right") - 1, 0, known.size - 2)
    share = np.clip((path - known[place]) / (known[place + 1] - known[place]), 0.0, 1.0)
    weights = np.zeros((*path.shape, known.size))
    np.put_along_axis(weights, place[..., None], (1.0 - share)[..., None], axis=-1)
    np.put_along_axis(weights, place[..., None] + 1, share[..., None], axis=-1)
    return weights


def correction_profile(cells: Cells) -> Floats:
    """Return how much of the online correction each cell takes: all of it near, less and less beyond."""
    index = np.arange(cells.count)
    profile: Floats = np.where(
        index <= _CORRECTED_CELLS, 1.0, np.exp(-(index - _CORRECTED_CELLS) / _CORRECTION_FADE_CELLS)
    )
    return profile


def corrected(log_margin: Floats, step: Floats, level: Floats, observed: Floats, promised: Floats) -> Floats:
    """Return the log margin after comparing what came with what had been promised at ``level``.

    The quantile tracker of adaptive conformal inference (Gibbs and Candès 2021): up by ``step * level`` at a
    surprise, down by ``step * (1 - level)`` otherwise, so that surprises settle at a share of ``1 - level``.
    """
    surprise = observed > promised * np.exp(log_margin)
    moved = log_margin + step * np.where(surprise, level, level - 1.0)
    return np.minimum(np.maximum(moved, -0.3), 2.0)


PROMISE_SLACK_MINUTES = 2
"""Beyond the lead time: a promise is for a minute in which members asked for now surely work."""


def promise_minutes(lead_s: float) -> int:
    """Return how many minutes ahead forecasts are held to their word."""
    return math.ceil(lead_s / 60) + PROMISE_SLACK_MINUTES


@lru_cache(maxsize=64)
def promise_cell(lead_s: float) -> tuple[int, int]:
    """Return :func:`promise_minutes` and the cell that they lie in."""
    minutes = promise_minutes(lead_s)
    return minutes, int(np.searchsorted(CELLS.starts_s, minutes * 60, side="right")) - 1


BUFFER_SHARE = 0.3
"""Share of what the members serve within one SLO that may wait and asks for nobody yet."""

BACKLOG_SHARE = 0.5
"""The same that may wait while somebody leaves."""


def is_backlog(lag: Floats, working_rate: Floats, slo_s: float) -> Booleans:
    """Return whether so many records wait that they are to be worked off before anybody leaves.

    Examples
    --------
    >>> is_backlog(np.array([2900.0, 3100.0]), np.array([100.0, 100.0]), 60.0).tolist()
    [False, True]
    """
    waits: Booleans = lag > BACKLOG_SHARE * slo_s * working_rate
    return waits


DRAIN_S = 180.0
"""A backlog is to be drained within so many seconds of the new members' start."""


def drainable(lag: Floats, rate: Floats, capacity: float, lead_s: float) -> float:
    """Return the records of a backlog that members can drain in time, however many come.

    One partition is worked off by one member, which spends most of itself on what arrives meanwhile: what a hot
    partition piles up is no reason to ask for anybody (:mod:`balancer.bounding` says what helps it).

    Parameters
    ----------
    lag, rate
        Shape (partitions,): records that wait, and records/s that arrive.
    capacity
        Records/s of one member.
    lead_s
        Seconds from request to useful capacity.

    Examples
    --------
    >>> drainable(np.array([90_000.0, 50.0]), np.array([120.0, 20.0]), 100.0, 120.0)
    50.0
    """
    return float(np.minimum(lag, np.maximum(capacity - rate, 0.0) * (lead_s + DRAIN_S)).sum())


def to_drain(
    lag: Floats, rate: Floats, working_rate: Floats, lead_s: float, slo_s: float, drain_s: float = DRAIN_S
) -> Floats:
    """Return the records/s that a backlog adds to demand.

    What the members that work now will have drained by the time new ones help is no reason to ask for new ones, and
    0.3 of what one SLO may hold is no backlog yet. The rest is to be drained within ``drain_s``.

    Examples
    --------
    >>> to_drain(np.array([9000.0]), np.array([100.0]), np.array([100.0]), 120.0, 60.0).tolist()
    [40.0]
    """
    then = np.maximum(lag + (rate - working_rate) * lead_s, 0.0)
    rest: Floats = np.where(lag > 0, np.maximum(then - BUFFER_SHARE * slo_s * working_rate, 0.0) / drain_s, 0.0)
    return rest


def forecast_cells(forecast: Forecast, now: datetime, cells: Cells) -> Floats:
    """Return the topic's total per cell and level, shape (cells, levels), from a forecast made at or before ``now``."""
    offset_s = max(0.0, (now - forecast.origin).total_seconds())
    return cell_peaks(forecast.total, forecast.step.total_seconds(), cells, offset_s)
