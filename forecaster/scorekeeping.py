"""Remembers what was forecast, scores it when it has come, and keeps the sums in the store.

Sums are written as recorded series of the topic (milli-records, so that small streams lose nothing to rounding), under
metrics that start with ``forecast_``: they survive restarts, are exported with the rest and can be drawn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from forecaster.drift import ScoreLog
from forecaster.forecast import Forecast
from forecaster.series import ArrivalSeries
from forecaster.stores.base import SeriesKey, SeriesStore, Tick
from forecaster.timegrid import TimeGrid

LEAD = timedelta(minutes=15)
"""The lead that is scored: about what scaling needs. With longer steps, the next step is scored."""

KEPT = timedelta(days=9)
"""How much of the log is read back: a day, and the week that it is compared with."""

WAIT = timedelta(hours=2)
"""How long a forecast waits for a truth that comes late."""

_PENDING = 512  # forecasts that wait for their truth; with the lead of 15 min a minute's step needs 15
_MILLI = 1000.0
_NAIVES = ("yesterday", "last_week", "last_value")


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """One step of a forecast that waits for its truth; rows follow ``partitions``."""

    partitions: tuple[int, ...]
    levels: tuple[float, ...]
    quantiles: NDArray[np.float64]  # (rows, levels), records per step
    origin: int


class Scorekeeper:
    """Scores the forecasts of recorded topics as their truth comes in.

    Parameters
    ----------
    store
        Where sums are kept, beside the arrivals.
    lead
        The lead that is scored, rounded up to whole steps.
    """

    def __init__(self, store: SeriesStore, lead: timedelta = LEAD) -> None:
        self._store = store
        self._lead = lead
        self._pending: dict[str, OrderedDict[int, _Pending]] = {}
        self._lock = threading.Lock()

    def note(self, forecast: Forecast) -> None:
        """Remember a forecast for the step that ends a lead after its origin; the first of a step counts."""
        grid = TimeGrid(int(forecast.step.total_seconds()))
        ahead = max(1, -(-self._lead // forecast.step))
        if ahead > forecast.steps or 0.5 not in forecast.levels:
            return
        origin = grid.index_of(forecast.origin)
        quantiles = forecast.rates[:, ahead - 1] * grid.step_s
        with self._lock:
            waiting = self._pending.setdefault(forecast.topic, OrderedDict())
            waiting.setdefault(origin + ahead - 1, _Pending(forecast.partitions, forecast.levels, quantiles, origin))
            while len(waiting) > _PENDING:
                waiting.popitem(last=False)

    def settle(self, history: ArrivalSeries) -> int:
        """Score every remembered step whose truth is in ``history``; return how many were.

        Raises
        ------
        StoreError
            If the sums cannot be written; they stay remembered.
        """
        seen: NDArray[np.bool_] = np.asarray(history.known.any(axis=0))
        # the newest step is left for later: its tick may still be written to, and belongs to the recorder alone
        newest = history.first_index + int(np.flatnonzero(seen)[-1]) if seen.any() else history.first_index
        given_up = history.end_index - int(WAIT / history.grid.step)
        with self._lock:
            waiting = self._pending.get(history.topic, OrderedDict())
            ripe = [
                (i, p) for i, p in waiting.items() if i < given_up or (i < newest and seen[i - history.first_index])
            ]
        ticks = [t for i, p in ripe if (t := _scored(history, i, p)) is not None]
        if ticks:
            self._store.append(ticks)
        with self._lock:
            for index, _ in ripe:
                waiting.pop(index, None)
        return len(ticks)

    def log(self, topic: str, now: datetime, levels: Sequence[float] = (0.9, 0.95, 0.99)) -> ScoreLog | None:
        """Read the last nine days of a topic's scores; None if the topic is not recorded."""
        meta = self._store.meta(topic)
        if meta is None:
            return None
        grid = TimeGrid(meta.step_s)
        end = grid.index_of(now)
        first = end - int(KEPT / grid.step)

        def read(metric: str, unit: float = _MILLI) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
            cells = self._store.read(SeriesKey(topic, f"forecast_{metric}", step_s=meta.step_s), first, end)
            if cells.partitions == 0:
                return np.zeros(end - first), np.zeros(end - first, dtype=np.bool_)
            return np.where(cells.known[0], cells.values[0], 0) / unit, cells.known[0]

        def sums(metric: str, unit: float = _MILLI) -> NDArray[np.float64]:
            return read(metric, unit)[0]

        naive = {name: read(f"naive_{name}") for name in _NAIVES}

        return ScoreLog(
            grid,
            first,
            sums("points", 1.0),
            sums("actual"),
            sums("over"),
            sums("under"),
            {q: sums(f"missed_{q:g}", 1.0) for q in levels},
            {name: errors for name, (errors, _) in naive.items()},
            {name: there for name, (_, there) in naive.items()},
        )


def _scored(history: ArrivalSeries, index: int, pending: _Pending) -> Tick | None:
    """Return the sums of one step, over the partitions whose truth and naive values are all known."""
    grid, at = history.grid, index - history.first_index
    row_of = {p: i for i, p in enumerate(history.partitions)}
    pairs = [(k, row_of[p]) for k, p in enumerate(pending.partitions) if p in row_of]
    last = pending.origin - 1 - history.first_index
    lags = {"yesterday": at - grid.steps_per_day, "last_week": at - grid.steps_per_week, "last_value": last}
    if at < 0 or at >= history.steps or not pairs:
        return None
    theirs, ours = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    known = history.known[ours, at]
    usable = {name: lag for name, lag in lags.items() if lag >= 0 and bool(history.known[ours, lag].any())}
    for lag in usable.values():
        known &= history.known[ours, lag]
    if not known.any():
        return None
    theirs, ours = theirs[known], ours[known]
    actual = history.counts[ours, at]
    quantiles = pending.quantiles[theirs]
    error = quantiles[:, pending.levels.index(0.5)] - actual
    columns = {
        "points": float(len(actual)) / _MILLI,
        "actual": float(actual.sum()),
        "over": float(np.maximum(error, 0).sum()),
        "under": float(np.maximum(-error, 0).sum()),
    }
    for k, level in enumerate(pending.levels):
        if level > 0.5:
            columns[f"missed_{level:g}"] = float((actual > quantiles[:, k]).sum()) / _MILLI
    for name, lag in usable.items():
        columns[f"naive_{name}"] = float(np.abs(history.counts[ours, lag] - actual).sum())
    yes = np.ones(1, dtype=np.bool_)
    return Tick(
        history.topic,
        grid.step_s,
        index,
        {
            SeriesKey(history.topic, f"forecast_{metric}", step_s=grid.step_s): (
                np.array([round(value * _MILLI)], dtype=np.int64),
                yes,
            )
            for metric, value in columns.items()
        },
    )
