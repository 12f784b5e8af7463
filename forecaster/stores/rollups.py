"""Whole days of steps → hourly sums and maxima."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.stores.base import Cells

HOUR_S = 3600


@dataclass(frozen=True, slots=True, eq=False)
class HourlyRollup:
    """Hours of one series; each of ``sums`` and ``peaks`` has shape (partitions, hours)."""

    sums: Cells
    peaks: Cells


def roll_up(day: Cells, step_s: int) -> HourlyRollup | None:
    """Return the hours of whole days, or None where a step is longer than an hour.

    A sum is known only where every step of the hour is, since part of a sum is a wrong number; a maximum is known
    where any step is.

    Raises
    ------
    ValueError
        If the cells do not begin and end with an hour.

    Examples
    --------
    >>> day = Cells(0, np.full((1, 24), 2), np.arange(24)[None, :] != 5)
    >>> rolled = roll_up(day, 3600)
    >>> int(rolled.sums.values.sum()), int(rolled.sums.known.sum())
    (46, 23)
    """
    if HOUR_S % step_s:
        return None
    steps = HOUR_S // step_s
    if day.first_index % steps or day.steps % steps:
        raise ValueError(f"{day.steps} steps from {day.first_index} on are not whole hours of {step_s} s")
    shape = (day.partitions, day.steps // steps, steps)
    values: NDArray[np.int64] = np.where(day.known, day.values, 0).reshape(shape)
    known = day.known.reshape(shape)
    whole: NDArray[np.bool_] = np.asarray(known.all(axis=2), dtype=np.bool_)
    seen: NDArray[np.bool_] = np.asarray(known.any(axis=2), dtype=np.bool_)
    first = day.first_index // steps
    return HourlyRollup(
        Cells(first, np.where(whole, values.sum(axis=2), 0), whole),
        Cells(first, values.max(axis=2, initial=0), seen),
    )
