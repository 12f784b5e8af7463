"""What was expected: forecasts as they were made, so that the page can lay them over what came, and score them by lead.

Every quarter of an hour one forecast of each topic is kept, coarsened to at most 96 steps, for a week: about a megabyte
a topic, in memory and, where there is a folder, on disk.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Forecast
from headway.status.board import Board, Event
from headway.status.logs import logger

EVERY = timedelta(minutes=15)
KEPT = int(timedelta(days=7) / EVERY)
STEPS = 96
LEVELS = (0.1, 0.5, 0.9, 0.95)
"""Those of them that a forecast holds are kept; the others are NaN."""


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """One forecast of a topic's total as it was made.

    Parameters
    ----------
    origin
        Last instant that it saw.
    step_s
        Length of a kept step in seconds.
    total
        Shape (96, levels of :data:`LEVELS`), records/s; NaN beyond the horizon and where a level was not forecast.
    """

    origin: datetime
    step_s: float
    total: NDArray[np.float32]

    @property
    def steps(self) -> int:
        """Steps within the horizon."""
        return int((~np.isnan(self.total[:, 1])).sum())


def coarsened(forecast: Forecast) -> Expectation | None:
    """Return a forecast as it is kept; None if it has no median."""
    if 0.5 not in forecast.levels:
        return None
    per = -(-forecast.steps // STEPS)
    count = forecast.steps // per
    kept = np.full((STEPS, len(LEVELS)), np.nan, dtype=np.float32)
    for column, level in enumerate(LEVELS):
        if level in forecast.levels:
            values = forecast.total[: count * per, forecast.level_index(level)]
            kept[:count, column] = values.reshape(count, per).mean(axis=1)
    return Expectation(forecast.origin, forecast.step.total_seconds() * per, kept)


class Expectations:
    """Keeps forecasts of topics as they were made.

    Parameters
    ----------
    board
        Listened to: every forecast that appears on it.
    folder
        Where they are written down, a file a topic; None keeps them in memory alone.
    """

    def __init__(self, board: Board, folder: Path | None = None) -> None:
        self._board, self._folder = board, folder
        self._kept: dict[str, deque[Expectation]] = {}
        self._lock = threading.Lock()
        board.listen(self._hear)

    def of(self, topic: str) -> list[Expectation]:
        """Return what was kept of a topic, oldest first."""
        with self._lock:
            return list(self._kept_of(topic))

    def note(self, forecast: Forecast) -> None:
        """Keep a forecast, unless one that is hardly older is kept already."""
        with self._lock:
            kept = self._kept_of(forecast.topic)
            if kept and timedelta(0) <= forecast.origin - kept[-1].origin < EVERY:
                return
            made = coarsened(forecast)
            if made is None:
                return
            while kept and kept[-1].origin >= made.origin:  # a replay begins again
                kept.pop()
            kept.append(made)
            try:
                self._write(forecast.topic, kept)
            except OSError as error:  # a memory less after the next restart; whoever made the forecast must go on
                logger("forecasts").warning("not written down", topic=forecast.topic, why=str(error))

    def _hear(self, event: Event) -> None:
        kind, document = event
        view = self._board.get(str(document.get("group"))) if kind in ("forecast", "plan") else None
        if view is None:
            return
        for topic in view.forecasts:
            forecast = view.forecasts.totals(topic)
            if isinstance(forecast, Forecast):
                self.note(forecast)

    def _kept_of(self, topic: str) -> deque[Expectation]:
        kept = self._kept.get(topic)
        if kept is None:
            kept = self._kept[topic] = deque(self._read(topic), maxlen=KEPT)
        return kept

    def _file(self, topic: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{quote(topic, safe='')}.npz"

    def _write(self, topic: str, kept: deque[Expectation]) -> None:
        file = self._file(topic)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name("." + file.name)
        with fresh.open("wb") as out:
            np.savez(
                out,
                origins=np.array([e.origin.timestamp() for e in kept]),
                steps=np.array([e.step_s for e in kept]),
                totals=np.array([e.total for e in kept]),
            )
        fresh.replace(file)

    def _read(self, topic: str) -> list[Expectation]:
        file = self._file(topic)
        if file is None or not file.exists():
            return []
        try:
            with np.load(file, allow_pickle=False) as kept:
                rows = zip(kept["origins"].tolist(), kept["steps"].tolist(), kept["totals"], strict=True)
                return [Expectation(datetime.fromtimestamp(at, UTC), step, total) for at, step, total in rows]
        except (OSError, ValueError, KeyError, EOFError):  # cut short or of another version: it is only a memory
            return []


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Expectations beside what came: one row a kept forecast, one column a step of it.

    Parameters
    ----------
    origins
        Shape (forecasts,), Unix seconds.
    step_s
        Shape (forecasts,).
    expected
        Shape (forecasts, steps, levels), records/s.
    came
        Shape (forecasts, steps), records/s; NaN where it has not come yet or is not known.
    naive
        Name → the same shape: what last value, yesterday and last week would have said.
    """

    origins: NDArray[np.float64]
    step_s: NDArray[np.float64]
    expected: NDArray[np.float64]
    came: NDArray[np.float64]
    naive: dict[str, NDArray[np.float64]]

    @property
    def leads_s(self) -> NDArray[np.float64]:
        """Seconds from each origin to the end of each step, shape (forecasts, steps)."""
        return self.step_s[:, None] * (np.arange(self.expected.shape[1]) + 1)


def paired(kept: list[Expectation], first_index: int, step_s: int, rates: NDArray[np.float64]) -> Pairs:
    """Lay expectations beside recorded rates.

    Parameters
    ----------
    kept
        Of one topic.
    first_index, step_s, rates
        Recorded totals, records/s, NaN where not known.
    """
    known = ~np.isnan(rates)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, rates, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])

    def means(begin_s: NDArray[Any], end_s: NDArray[Any]) -> NDArray[np.float64]:
        a = np.round(begin_s / step_s).astype(np.int64) - first_index
        b = np.maximum(np.round(end_s / step_s).astype(np.int64) - first_index, a + 1)
        inside = (a >= 0) & (b <= rates.size)
        a, b = np.clip(a, 0, rates.size), np.clip(b, 0, rates.size)
        have = counts[b] - counts[a]
        full = inside & (have == b - a) & (have > 0)
        return np.where(full, (sums[b] - sums[a]) / np.maximum(have, 1), np.nan)

    origins = np.array([e.origin.timestamp() for e in kept])
    lengths = np.array([e.step_s for e in kept])
    total = np.array([e.total for e in kept], dtype=np.float64).reshape(len(kept), STEPS, len(LEVELS))
    begins = origins[:, None] + lengths[:, None] * np.arange(STEPS)
    ends = begins + lengths[:, None]
    day = 86_400.0
    last = means(origins - 900, origins)
    return Pairs(
        origins,
        lengths,
        total,
        means(begins, ends),
        {
            "last value": np.broadcast_to(last[:, None], begins.shape),
            "yesterday": means(begins - day, ends - day),
            "last week": means(begins - 7 * day, ends - 7 * day),
        },
    )
