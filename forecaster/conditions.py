"""How a partition fares under a group: consuming, drained, stalled, stuck …, from the last recorded steps.

A partition that is stuck on one record is no reason for more members, and a group that has stopped is no reason for
fewer: whoever plans must tell them apart.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MARKER_LAG = 1
"""A transaction's end marker takes an offset that nobody consumes: so much lag remains on a drained partition."""


class Condition(StrEnum):
    """What a group does with a partition."""

    UNKNOWN = "unknown"
    """Too little is known of the window."""
    IDLE = "idle"
    """Nothing arrives and nothing is left to be read."""
    DRAINED = "drained"
    """Nothing arrives, and what is left is the constant marker of a transaction."""
    CONSUMING = "consuming"
    """Offsets advance, or the group has caught up while records arrive."""
    STALLED = "stalled"
    """Records wait and nothing advances, on this partition and on no other either: the group does not work."""
    STUCK = "stuck"
    """Records wait and nothing advances here, while the group works elsewhere: a record that cannot be processed."""
    OFFSET_AHEAD = "offset_ahead"
    """The commit lies beyond the log's end: the log was cut or made anew, and the group will read nothing."""


def conditions(
    arrivals: Ints, arrivals_known: Mask, consumed: Ints, consumed_known: Mask, lag: Ints, lag_known: Mask, ahead: Mask
) -> list[Condition]:
    """Return the condition of each partition over a window of steps.

    Parameters
    ----------
    arrivals, consumed, lag
        Records per step, records per step, and records at each step's end; shape (partitions, steps).
    arrivals_known, consumed_known, lag_known
        Which of them are known, same shape.
    ahead
        Shape (partitions,): the commit lies beyond the end.

    Notes
    -----
    A partition is frozen when every known step of the window consumed nothing while records were waiting in all of
    them; it needs at least two steps, so that one slow batch is not called stuck.

    Examples
    --------
    >>> zeros, yes = np.zeros((1, 3), dtype=np.int64), np.ones((1, 3), dtype=bool)
    >>> conditions(zeros, yes, zeros, yes, zeros + 1, yes, np.array([False]))  # a transaction marker
    [<Condition.DRAINED: 'drained'>]
    """
    steps = arrivals.shape[1]
    arrived = (arrivals * arrivals_known).sum(axis=1)
    moved = (consumed * consumed_known).sum(axis=1) > 0
    seen = consumed_known.sum(axis=1)
    waiting = (lag > MARKER_LAG) & lag_known
    frozen = ~moved & (seen >= 2) & (waiting.sum(axis=1) == np.maximum(lag_known.sum(axis=1), 2))
    last_lag_known = lag_known[:, -1] if steps else np.zeros(len(arrivals), dtype=np.bool_)
    last_lag = lag[:, -1] if steps else np.zeros(len(arrivals), dtype=np.int64)
    constant = _flat(lag, lag_known)
    works = bool(moved.any())
    found = []
    for p in range(len(arrivals)):
        if ahead[p]:
            found.append(Condition.OFFSET_AHEAD)
        elif not last_lag_known[p] or not arrivals_known[p].any():
            found.append(Condition.UNKNOWN)
        elif not arrived[p] and last_lag[p] == 0:
            found.append(Condition.IDLE)
        elif not arrived[p] and last_lag[p] <= MARKER_LAG and constant[p] and not moved[p]:
            found.append(Condition.DRAINED)
        elif frozen[p]:
            found.append(Condition.STUCK if works else Condition.STALLED)
        elif moved[p] or last_lag[p] <= MARKER_LAG:
            found.append(Condition.CONSUMING)
        else:
            found.append(Condition.UNKNOWN)
    return found


def _flat(values: Ints, known: Mask) -> Mask:
    """Return which rows have the same value in all of their known cells."""
    top = np.where(known, values, np.iinfo(np.int64).min).max(axis=1, initial=np.iinfo(np.int64).min)
    low = np.where(known, values, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    flat: Mask = top <= low
    return flat
