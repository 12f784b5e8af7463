"""Scale-free seasonal features at any origin, without leakage.

Every value is in units of the row itself: minus the mean of the last day, over the mean absolute deviation of the
last week. So one model learns from rows of any size, and may be asked about rows it has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

DAY_LAGS, WEEK_LAGS, DAY_MEANS = 7, 3, 6


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Features of (row, origin, lead) points, in that order, flattened.

    Parameters
    ----------
    values
        Shape (points, columns), float32; NaN where the row is too young for a column.
    base
        Shape (points,): what the model corrects, the median of the last seven same-time-of-day values, in units.
    offset, unit
        Shape (points,): a log is ``offset + unit * value``.
    shape
        (rows, origins, leads).
    """

    values: Singles
    base: Floats
    offset: Floats
    unit: Floats
    shape: tuple[int, int, int]

    def logs(self, correction: Floats) -> Floats:
        """Return logs, shape (rows, origins, leads), from a model's corrections in units."""
        out: Floats = (self.offset + self.unit * (self.base + correction)).reshape(self.shape)
        return out


def column_names() -> tuple[str, ...]:
    """Return what the columns are called.

    Examples
    --------
    >>> len(column_names()) == len(set(column_names()))
    True
    """
    return (
        *(f"same_time_{j + 1}_days_ago" for j in range(DAY_LAGS)),
        *(f"same_time_{j + 1}_weeks_ago" for j in range(WEEK_LAGS)),
        "median_of_days",
        "mean_of_days",
        "mean_of_weeks",
        "around_yesterday",
        "around_last_week",
        "last_value",
        "mean_last_eighth_day",
        "mean_last_quarter_day",
        *(f"mean_of_day_{j + 1}_ago" for j in range(1, DAY_MEANS + 1)),
        "mean_last_week",
        "mean_week_before",
        "against_yesterday",
        "against_last_week",
        "day_difference",
        "week_difference",
        "step_difference",
        "relative_unit",
        "is_a_week_old",
        "lead_days",
    )


def features_at(logs: Floats, steps_per_day: int, origins: Sequence[int], leads: Sequence[int]) -> Features:
    """Compute features.

    Parameters
    ----------
    logs
        Shape (rows, positions), NaN before a row's first value alone.
    steps_per_day
        Positions in a day.
    origins
        Positions; a point uses positions before its origin alone.
    leads
        Steps after the origin, 0 is the first.

    Returns
    -------
    Features
        See there.
    """
    day, week = steps_per_day, 7 * steps_per_day
    rows = logs.shape[0]
    lead = np.asarray(leads, dtype=np.int64)
    origin = np.asarray(origins, dtype=np.int64)
    reach = (WEEK_LAGS + 1) * week + (int(lead.max()) // week + 1) * week
    since = max(0, int(origin.min()) - reach)  # nothing older is looked at, and nothing after the last origin
    pad = reach - (int(origin.min()) - since)
    seen = logs[:, since : int(origin.max())]
    x = np.concatenate([np.full((rows, pad), np.nan, np.float32), seen.astype(np.float32)], axis=1)
    t = origin - since + pad
    known = np.isfinite(x)
    sums = np.zeros((rows, x.shape[1] + 1))
    np.cumsum(np.where(known, x, 0.0), axis=1, out=sums[:, 1:])
    counts = np.zeros((rows, x.shape[1] + 1))
    np.cumsum(known, axis=1, out=counts[:, 1:])

    def mean(begin: NDArray[np.int64], end: NDArray[np.int64]) -> Floats:
        """Mean over [begin, end); NaN unless all of it is known."""
        size = end - begin
        total, have = sums[:, end] - sums[:, begin], counts[:, end] - counts[:, begin]
        return np.where(have >= size, total / size, np.nan)

    def loose_mean(begin: NDArray[np.int64], end: NDArray[np.int64]) -> Floats:
        """Mean over what is known of [begin, end)."""
        total, have = sums[:, end] - sums[:, begin], counts[:, end] - counts[:, begin]
        return np.where(have > 0, total / np.maximum(have, 1), np.nan)

    week_mean = loose_mean(t - week, t)
    offset = loose_mean(t - day, t)
    last_week = x[:, t[:, None] + np.arange(-week, 0)]  # (rows, origins, week)
    unit = known_mean(np.abs(last_week - week_mean[:, :, None])) + 1e-3 * np.abs(week_mean) + 1e-9

    at = t[:, None] + lead[None, :]
    days, weeks = lead // day + 1, lead // week + 1
    by_day = [x[:, at - day * (days + j)] for j in range(DAY_LAGS)]
    by_week = [x[:, at - week * (weeks + j)] for j in range(WEEK_LAGS)]
    stacked = np.stack(by_day)
    median, mean_days, mean_weeks = _known_median(stacked), known_mean(stacked, 0), known_mean(np.stack(by_week), 0)
    radius = max(1, day // 24)

    def around(place: NDArray[np.int64]) -> Floats:
        end = np.minimum(place + radius + 1, t[:, None])
        return mean(place - radius, end)

    per_lead: list[NDArray[np.floating]] = [
        *by_day,
        *by_week,
        median,
        mean_days,
        mean_weeks,
        around(at - day * days),
        around(at - week * weeks),
    ]
    eighth, quarter = max(1, day // 8), max(1, day // 4)
    recent = mean(t - eighth, t)
    before_day = x[:, t[:, None] + np.arange(-week - day, -day)]
    before_week = x[:, t[:, None] + np.arange(-2 * week, -week)]
    centred: list[Floats] = [
        x[:, t - 1].astype(np.float64),
        recent,
        mean(t - quarter, t),
        *(mean(t - day * (j + 1), t - day * j) for j in range(1, DAY_MEANS + 1)),
        mean(t - week, t),
        mean(t - 2 * week, t - week),
    ]
    in_units = [
        (recent - mean(t - day - eighth, t - day)) / unit,
        (recent - mean(t - week - eighth, t - week)) / unit,
        known_mean(np.abs(last_week - before_day)) / unit,
        known_mean(np.abs(last_week - before_week)) / unit,
        known_mean(np.abs(np.diff(last_week, axis=2))) / unit,
        unit / (np.abs(week_mean) + 1e-9),
        (counts[:, t] >= week).astype(np.float64),
    ]
    shape = (rows, len(t), len(lead))
    columns = len(per_lead) + len(centred) + len(in_units) + 1
    out = np.empty((*shape, columns), np.float32)
    for c, values in enumerate(per_lead):
        out[..., c] = (values - offset[:, :, None]) / unit[:, :, None]
    c = len(per_lead)
    for values in centred:
        out[..., c] = ((values - offset) / unit)[:, :, None]
        c += 1
    for values in in_units:
        out[..., c] = values[:, :, None]
        c += 1
    out[..., c] = lead / day
    base = np.where(np.isfinite(median), (median - offset[:, :, None]) / unit[:, :, None], 0.0)
    return Features(
        out.reshape(-1, columns),
        base.ravel(),
        np.broadcast_to(offset[:, :, None], shape).ravel(),
        np.broadcast_to(unit[:, :, None], shape).ravel(),
        shape,
    )


def known_mean(values: NDArray[np.floating], axis: int = -1) -> Floats:
    """Return the mean of what is known along an axis; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis, dtype=np.float64)
    out: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out


def _known_median(stacked: NDArray[np.floating]) -> Floats:
    """Median over the first axis of what is known; NaN where nothing is."""
    ordered = np.sort(stacked, axis=0)  # NaN last
    count = np.isfinite(stacked).sum(axis=0)
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, len(stacked) - 1)
    middle = np.take_along_axis(ordered, low[None], 0)[0] + np.take_along_axis(ordered, high[None], 0)[0]
    out: Floats = np.where(count > 0, 0.5 * middle, np.nan).astype(np.float64)
    return out
