"""Features for the next hour: what was seen in the last minutes, and what the same minutes did yesterday and last week.

Everything is a difference of logs against the mean of the last few steps, so a model learns changes and not sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forecaster.features import Features, known_mean

Floats = NDArray[np.float64]

LAGS = 8
SPANS_S = (300, 900, 1800, 3600, 7200, 21_600)
"""Seconds over which recent means are taken."""


def lead_features(logs: Floats, steps_per_day: int, origins: Sequence[int], leads: Sequence[int]) -> Features:
    """Compute features of (row, origin, lead) points.

    Parameters
    ----------
    logs
        Shape (rows, positions) at the step of the history; NaN before a row's first value.
    steps_per_day
        Positions in a day.
    origins
        Positions; a point uses positions before its origin alone.
    leads
        Steps after the origin, 0 is the first.

    Returns
    -------
    Features
        ``base`` is 0, ``offset`` the recent mean and ``unit`` 1, so a correction is the change of the log.
    """
    day, week = steps_per_day, 7 * steps_per_day
    step_s = 86_400 // day
    rows = logs.shape[0]
    lead = np.asarray(leads, dtype=np.int64)
    origin = np.asarray(origins, dtype=np.int64)
    reach = week + day
    since = max(0, int(origin.min()) - reach)  # nothing older is looked at, and nothing after the last origin
    pad = reach - (int(origin.min()) - since)
    x = np.concatenate([np.full((rows, pad), np.nan), logs[:, since : int(origin.max())]], axis=1)
    t = origin - since + pad
    known = np.isfinite(x)
    gapless = bool(known.all())
    sums = _running(x if gapless else np.where(known, x, 0.0))
    counts = None if gapless else _running(known)

    def mean(begin: NDArray[np.int64], end: NDArray[np.int64]) -> Floats:
        total = sums[:, end] - sums[:, begin]
        if counts is None:
            return np.where(end > begin, total / np.maximum(end - begin, 1), np.nan)
        have = counts[:, end] - counts[:, begin]
        return np.where(have > 0, total / np.maximum(have, 1), np.nan)

    near = max(1, 300 // step_s)
    offset = mean(t - near, t)
    spans = [max(1, s // step_s) for s in SPANS_S]
    at = t[:, None] + lead
    wide = max(1, 900 // step_s)  # seasons are read off means around the target: single steps are noise

    def season(lag: int) -> tuple[Floats, Floats]:
        """Mean around the target and around now, a season before."""
        target = mean(np.maximum(at - lag - wide, 0), np.minimum(at - lag + wide + 1, t[:, None]))
        return target, mean(t - lag - near, t - lag)

    by_day, by_week = season(day), season(week)
    changes = [season(day * k) for k in range(1, 8)]
    usual_change = known_mean(np.stack([target - now[:, :, None] for target, now in changes]), axis=0)
    usual_level = known_mean(np.stack([target for target, _ in changes]), axis=0)
    per_lead = [
        by_day[0] - offset[:, :, None],
        by_week[0] - offset[:, :, None],
        by_day[0] - by_day[1][:, :, None],
        by_week[0] - by_week[1][:, :, None],
        usual_change,
        usual_level - offset[:, :, None],
    ]
    hour, half_day = max(2, 3600 // step_s), max(2, 43_200 // step_s)
    begin = max(int(t.min()) - half_day - 1, 0)
    rough = np.abs(np.diff(x[:, begin:], axis=1))
    rough_sums = _running(rough if gapless else np.where(np.isfinite(rough), rough, 0.0))
    to = t - 1 - begin
    per_origin = [
        *(x[:, t - 1 - k] - offset for k in range(min(LAGS, max(2, 3600 // step_s)))),
        *(mean(t - s, t) - offset for s in spans if s > near),
        mean(t - hour, t) - mean(t - 2 * hour, t - hour),
        mean(t - day, t) - offset,
        offset,
        (rough_sums[:, to] - rough_sums[:, to - hour]) / hour,
        (rough_sums[:, to] - rough_sums[:, to - half_day]) / half_day,
    ]
    shape = (rows, len(t), len(lead))
    out = np.empty((*shape, len(per_lead) + len(per_origin) + 1), np.float32)
    c = 0
    for values in per_lead:
        out[..., c] = values
        c += 1
    for values in per_origin:
        out[..., c] = values[:, :, None]
        c += 1
    out[..., c] = (lead + 1) * step_s / 3600
    points = rows * len(t) * len(lead)
    flat = np.broadcast_to(offset[:, :, None], shape).ravel()
    return Features(out.reshape(points, -1), np.zeros(points), flat, np.ones(points), shape)


def _running(values: NDArray[np.generic]) -> Floats:
    """Return cumulative sums with a leading zero."""
    out = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=out[:, 1:])
    return out
