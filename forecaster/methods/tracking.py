"""Online correction: thresholds that follow what was missed, replayed from the history at every forecast.

A threshold is a quantile of errors in units of the learned spread. Each time errors become known it moves by the gain
times (share that lay beyond it minus the share that should), so its long-run coverage is right whatever the errors
do: no assumption that tomorrow is like the days the spread was learned on. [1]_ An error is held against the threshold
that stood when its forecast was made, not against the one that has moved since: that is what a forecast said. The
replay reads the history alone, so there is no state to lose, and a restart answers the same.

References
----------
.. [1] A. Angelopoulos, E. Candes, R. Tibshirani, "Conformal PID control for time series prediction", NeurIPS 2023;
   I. Gibbs and E. Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GAIN = 0.06
"""Share of a threshold by which it moves when everything lies beyond it; chosen among 0.02 … 0.15."""

_LEAST = 0.3  # a threshold near zero still moves by the gain times this


def track(
    scores: Floats,
    when: Integers,
    start: Floats,
    levels: Sequence[float],
    gain: float = GAIN,
    asked_at: Integers | None = None,
    weight: Floats | None = None,
    rarity: float = 0.0,
) -> Floats:
    """Replay errors in the order in which they became known.

    Parameters
    ----------
    scores
        Shape (rows, events): errors over spread; NaN where the truth is unknown.
    when
        Shape (events,): number of the stretch of time in which an event's truth became known. Events of one stretch
        move a threshold once, by the mean of their misses.
    start
        Shape (levels,): thresholds before the first event.
    levels
        Quantile levels, rising; the threshold of 0.5 stays 0.
    gain
        See :data:`GAIN`.
    asked_at
        Shape (events,): stretch in which the forecast of an event was made, at most ``when``; None stands for ``when``.
    weight
        Shape (events,): share of the horizon that an event stands for; equal by default.
    rarity
        Power of 0.1 over a level's share of misses by which its gain grows: where a day brings few misses of a level,
        each must tell more.

    Returns
    -------
    Floats
        Shape (rows, levels), rising along the levels; never beyond the largest error seen or the start.

    Examples
    --------
    >>> quiet, wild = np.full((1, 300), 0.1), np.full((1, 300), 2.0)
    >>> track(np.concatenate([quiet, wild]), np.arange(300), np.array([0.0, 1.0]), (0.5, 0.9)).round(1)
    array([[0. , 0.1],
           [0. , 2. ]])
    """
    asked = np.asarray(levels, dtype=np.float64)
    side = np.where(asked < 0.5, -1.0, 1.0)
    beyond = np.minimum(asked, 1.0 - asked)
    gains = gain * (0.1 / beyond) ** rarity
    rows = scores.shape[0]
    size = np.tile(np.maximum(side * start, 0.0), (rows, 1))
    top = size.copy()
    order = np.argsort(when, kind="stable")
    scores = scores[:, order]
    weights = np.isfinite(scores) * (1.0 if weight is None else weight[order])
    stretches, begins = np.unique(when[order], return_index=True)
    stood = np.searchsorted(stretches, (when if asked_at is None else asked_at)[order])
    history = np.empty((len(stretches), rows, len(asked)))
    for k, (begin, end) in enumerate(zip(begins, [*begins[1:], len(order)], strict=True)):
        history[k] = size
        use = weights[:, begin:end]
        total = use.sum(axis=1)
        if not total.any():
            continue
        signed = np.where(use > 0, scores[:, begin:end], 0.0)[:, :, None] * side
        np.maximum(top, signed.max(axis=1), out=top)
        then = history[stood[begin:end]].transpose(1, 0, 2)
        missed = ((signed > then) * use[:, :, None]).sum(axis=1) / np.where(total > 0, total, 1.0)[:, None]
        size += (total > 0)[:, None] * gains * np.maximum(size, _LEAST) * (missed - beyond)
        np.clip(size, 0.0, top, out=size)
    out: Floats = np.maximum.accumulate(np.where(asked == 0.5, 0.0, side * size), axis=1)
    return out
