"""Double-seasonal exponential smoothing for all rows at once, over a small fixed grid of parameters.

State of a row: level, one value per slot of the day, one per slot of the week, and the last error, which fades by an
AR(1) factor. [1]_ For each row the best three of 54 fixed parameter sets are averaged, by their mean absolute
multi-step error at the last six origins; nothing is optimised, so the cost is one pass over time.

References
----------
.. [1] J. W. Taylor, "Short-term electricity demand forecasting using double seasonal exponential smoothing",
   Journal of the Operational Research Society 54 (2003), 799-805.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forecaster.cleaning import known_since
from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

PARAMETER_SETS = np.array(
    [
        (level, day, week, fade)
        for level in (0.02, 0.1, 0.3)
        for day in (0.05, 0.2, 0.4)
        for week in (0.1, 0.3)
        for fade in (0.0, 0.5, 0.9)
    ],
    dtype=np.float32,
)
"""Shape (54, 4): smoothing of level, day and week, and the fading of the last error."""

BEST = 3
_ORIGINS = 6
_CHUNK = 256  # rows a pass: the working set stays in the cache


class Grid(PathwiseMethod):
    """Double-seasonal smoothing on logs; see the module."""

    name = "grid"
    rung = Rung.GRID_STATE

    def days_needed(self) -> float:
        """Two days: the first starts the season, the second corrects it."""
        return 2.0

    def fit_panels(self, panels: Sequence[LogPanel]) -> Self:
        """Keep the sixth of the parameter sets that is chosen most, where there are enough rows to tell."""
        self.sets_ = PARAMETER_SETS
        chosen = np.zeros(len(PARAMETER_SETS), dtype=np.int64)
        for panel in panels:
            logs = panel.logs[: 2 * _CHUNK]
            for a in range(0, logs.shape[0], _CHUNK):
                day = panel.steps_per_day
                best = smooth(logs[a : a + _CHUNK], day, [logs.shape[1]], day).best
                chosen += np.bincount(best.ravel(), minlength=len(PARAMETER_SETS))
        if chosen.sum() >= BEST * _CHUNK:
            self.sets_ = PARAMETER_SETS[np.sort(np.argsort(-chosen, kind="stable")[: len(PARAMETER_SETS) // 6])]
        return self

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Average the paths of the best parameter sets."""
        sets: Singles = getattr(self, "sets_", PARAMETER_SETS)
        chunk = _CHUNK if len(sets) == len(PARAMETER_SETS) else 2 * _CHUNK
        parts = [
            smooth(panel.logs[a : a + chunk], panel.steps_per_day, origins, horizon, sets).paths
            for a in range(0, panel.logs.shape[0], chunk)
        ]
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Smoothed:
    """What a pass over time leaves.

    Parameters
    ----------
    paths
        Shape (rows, origins, horizon): mean of the best sets.
    best
        Shape (rows, 3): the best parameter sets of each row.
    level, day, week, error
        State after the last position, of the best sets: shapes (rows, 3), (rows, 3, day), (rows, 3, week), (rows, 3).
        Slots are counted from the first position of the panel.
    """

    paths: Floats
    best: NDArray[np.int64]
    level: Singles
    day: Singles
    week: Singles
    error: Singles


def smooth(
    logs: Floats, steps_per_day: int, origins: Sequence[int], horizon: int, sets: Singles = PARAMETER_SETS
) -> Smoothed:
    """Run all parameter sets over time and keep the best three of each row.

    Parameters
    ----------
    logs
        Shape (rows, positions); NaN before a row's first value.
    steps_per_day
        Positions in a day.
    origins
        Positions at which paths are wanted.
    horizon
        Positions a path has.
    sets
        Shape (sets, 4).
    """
    day, week = steps_per_day, 7 * steps_per_day
    rows, length = logs.shape
    x = np.where(np.isfinite(logs), logs, 0.0).astype(np.float32)
    first = known_since(logs)
    begin = int(first.min()) if rows else 0
    alpha, delta, omega, phi = (sets[None, :, i].copy() for i in range(4))
    state = _start(x, first, day, week, sets.shape[0])
    weekly = (length - first >= 2 * week).astype(np.float32)[:, None]
    judged = _judged_origins(length, horizon, day)
    wanted = sorted({*judged, *(int(t) for t in origins)})
    kept: dict[int, Singles] = {}
    steps_fade = phi[0][None, :] ** np.arange(1, horizon + 1, dtype=np.float32)[:, None]
    level, by_day, by_week, last = state
    omega_rows = omega * weekly
    unborn = bool((first > begin).any())
    for t in range(begin, length + 1):
        if t in wanted:
            slots = np.arange(t, t + horizon)
            path = by_day[slots % day] + by_week[slots % week]
            path += level
            path += steps_fade[:, None, :] * last
            kept[t] = path
        if t == length:
            break
        d, w = by_day[t % day], by_week[t % week]
        raw = x[:, t][:, None] - level
        raw -= d
        raw -= w
        error = raw - phi * last
        if unborn:
            alive = (t >= first).astype(np.float32)[:, None]
            raw *= alive
            error *= alive
        level += alpha * error
        d += delta * error
        w += omega_rows * error
        last = raw
    best = _best(kept, judged, x, first, horizon, day)
    picked = best[:, None, :]
    out = np.full((rows, len(origins), horizon), np.nan)
    enough = 2 * day
    for k, origin in enumerate(origins):
        if int(origin) not in kept:
            continue
        mean = np.take_along_axis(kept[int(origin)].transpose(1, 0, 2), picked, axis=2).mean(axis=2)
        out[:, k] = np.where((origin - first >= enough)[:, None], mean, np.nan)
    take = np.take_along_axis
    return Smoothed(
        out,
        best,
        take(level, best, axis=1),
        take(by_day.transpose(1, 2, 0), best[:, :, None], axis=1),
        take(by_week.transpose(1, 2, 0), best[:, :, None], axis=1),
        take(last, best, axis=1),
    )


def _start(
    x: Singles, first: NDArray[np.int64], day: int, week: int, sets: int
) -> tuple[Singles, Singles, Singles, Singles]:
    """Start level and seasons from the first two weeks (or half) of each row; rows of one age share the work."""
    rows, length = x.shape
    level = np.zeros((rows, sets), np.float32)
    by_day = np.zeros((day, rows, sets), np.float32)
    by_week = np.zeros((week, rows, sets), np.float32)
    for birth in np.unique(first):
        chosen = np.flatnonzero(first == birth)
        have = length - int(birth)
        if have <= 0:
            continue
        use = 2 * week if have >= 2 * week else min(have, max(2 * day, have // 2))
        part = x[chosen, birth : birth + use]
        mean = part.mean(axis=1)
        level[chosen] = mean[:, None]
        slots = np.arange(birth, birth + use)
        rest = part - mean[:, None]
        day_mean = _slot_means(rest, slots % day, day)
        by_day[:, chosen, :] = day_mean.T[:, :, None]
        if have >= 2 * week:
            week_mean = _slot_means(rest - day_mean[:, slots % day], slots % week, week)
            by_week[:, chosen, :] = week_mean.T[:, :, None]
    return level, by_day, by_week, np.zeros((rows, sets), np.float32)


def _slot_means(values: Singles, slots: NDArray[np.int64], count: int) -> Singles:
    """Return the mean of each slot, zero where a slot was never seen; shape (rows, count)."""
    sums = np.zeros((count, values.shape[0]), np.float32)
    np.add.at(sums, slots, values.T)
    seen = np.bincount(slots, minlength=count).astype(np.float32)
    out: Singles = (sums / np.maximum(seen, np.float32(1))[:, None]).T.astype(np.float32)
    return out


def _judged_origins(length: int, horizon: int, day: int) -> list[int]:
    gap = max(1, day // 2)
    return [t for t in (length - horizon - k * gap for k in range(_ORIGINS)) if t >= 1]


def _best(
    kept: dict[int, Singles], judged: Sequence[int], x: Singles, first: NDArray[np.int64], horizon: int, day: int
) -> NDArray[np.int64]:
    """Rank the sets of each row by mean absolute error over the judged origins that the row is old enough for."""
    rows = x.shape[0]
    some = next(iter(kept.values()))
    total = np.zeros((rows, some.shape[2]), np.float32)
    for t in judged:
        if t not in kept:
            continue
        error = np.abs(kept[t] - x[:, t : t + horizon].T[:, :, None]).mean(axis=0)
        total += np.where((t - first > 2 * day)[:, None], error, 0.0)
    return np.argsort(total, axis=1, kind="stable")[:, :BEST]
