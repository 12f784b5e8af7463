"""What must not be learnt: gaps, outages and one-off spikes.

Gaps are filled from the same time of day in the past, never with zero and never from the future.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fill_gaps(values: Floats, steps_per_day: int) -> Floats:
    """Fill each gap from the same slot a week before, else a day before, else the last known value.

    Causal: a filled value depends on earlier ones alone. What lies before a row's first known value stays NaN.

    Parameters
    ----------
    values
        Shape (rows, positions), NaN in the gaps.
    steps_per_day
        Positions in a day.

    Examples
    --------
    >>> fill_gaps(np.array([[np.nan, 1.0, 2.0, np.nan, np.nan, 5.0]]), 2)
    array([[nan,  1.,  2.,  1.,  2.,  5.]])
    """
    if np.isfinite(values).all():
        return values
    out = values.copy()
    day, week = steps_per_day, 7 * steps_per_day
    length = out.shape[1]
    for begin in range(0, length, day):
        end = min(begin + day, length)
        block = out[:, begin:end]
        if np.isfinite(block).all():
            continue
        for lag in (week, day):
            if begin >= lag:
                source = out[:, begin - lag : end - lag]
                np.copyto(block, source, where=np.isnan(block))
        _carry_forward(out, begin, end)
    return out


def _carry_forward(out: Floats, begin: int, end: int) -> None:
    """Repeat the last known value inside a block, starting from the position before it."""
    lo = max(begin - 1, 0)
    block = out[:, lo:end]
    place = np.where(np.isfinite(block), np.arange(block.shape[1])[None], 0)
    np.maximum.accumulate(place, axis=1, out=place)
    out[:, lo:end] = np.take_along_axis(block, place, axis=1)


def known_since(values: Floats) -> NDArray[np.int64]:
    """Return each row's first known position; the length of the axis where nothing is known."""
    known = np.isfinite(values)
    first: NDArray[np.int64] = np.where(known.any(axis=1), known.argmax(axis=1), values.shape[1]).astype(np.int64)
    return first


ONE_OFF_LOG = 1.0
"""Least distance on the log scale (a factor of e) from every comparable time that makes a one-off."""

_ONE_OFF_SCALES = 6.0


def mask_one_offs(logs: Floats, steps_per_day: int) -> Floats:
    """Replace spikes and outages that happened once, so that no season learns or repeats them.

    A value is a one-off if it lies beyond all of the same times a day and a week before and after, by a factor of e
    and by six times the row's usual day-to-day difference. It is replaced by the median of those times. At least
    three of them must be known, one of them afterwards: what has not been followed by a normal day may be a new level
    and stays. What recurs a day or a week later is a season and stays.

    Parameters
    ----------
    logs
        Shape (rows, positions), on the log scale; NaN before a row's first value.
    steps_per_day
        Positions in a day.

    Examples
    --------
    >>> z = np.zeros((1, 21)); z[0, 10] = 5.0
    >>> mask_one_offs(z, 1).max()
    np.float64(0.0)
    >>> z[0, 3] = z[0, 17] = 5.0  # the same weekday, every week
    >>> mask_one_offs(z, 1)[0, 10]
    np.float64(5.0)
    """
    day, week = steps_per_day, 7 * steps_per_day
    length = logs.shape[1]
    if length <= 2 * day:
        return logs
    apart = np.abs(logs[:, day:] - logs[:, :-day])
    finite = np.isfinite(apart)
    usual = np.where(finite, apart, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    limit = np.maximum(ONE_OFF_LOG, _ONE_OFF_SCALES * usual)
    # what is near yesterday or tomorrow is no one-off: the few cells left are compared with all four times
    far = ~(apart <= limit[:, None])
    suspect = np.isfinite(logs)
    suspect[:, day:] &= far
    suspect[:, :-day] &= far
    row, at = np.nonzero(suspect)
    if row.size == 0:
        return logs
    others = np.full((4, row.size), np.nan)
    for k, lag in enumerate((-week, -day, day, week)):
        inside = (at + lag >= 0) & (at + lag < length)
        others[k, inside] = logs[row[inside], at[inside] + lag]
    known = np.isfinite(others)
    value, away = logs[row, at], limit[row]
    above = value > np.where(known, others, -np.inf).max(axis=0) + away
    below = value < np.where(known, others, np.inf).min(axis=0) - away
    odd = (above | below) & (known.sum(axis=0) >= 3) & known[2:].any(axis=0)
    if not odd.any():
        return logs
    out = logs.copy()
    out[row[odd], at[odd]] = np.nanmedian(others[:, odd], axis=0)
    return out
