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
