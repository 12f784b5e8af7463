"""From a store and a current artefact to a forecast, down the ladder when it must, saying so.

A :class:`ForecastService` keeps each topic's history (:mod:`forecaster.shelf`) and reads only what is new, so that a
tick costs a short read and one forecast, and so that a store which does not answer for a while leaves a forecast with
its age.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from forecaster.calendar import Calendar
from forecaster.errors import ArtefactRefused, StoreUnavailable
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.ladder import Ladder
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.registry import Artefact, ModelRegistry
from forecaster.series import ArrivalSeries
from forecaster.shelf import Shelf
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.timegrid import TimeGrid
from forecaster.topics import StreamId

HISTORY = timedelta(weeks=8)
"""How far back a forecast looks."""

MAX_CELLS = 48_000_000
"""Partitions x steps looked at per topic (400 MB while it is forecast); a wider one keeps fewer weeks, and says so."""

REREAD = timedelta(hours=2)
"""What is read again at each forecast: ticks that came late replace what was missing."""

RELOAD_EVERY = timedelta(hours=6)
"""How often a whole history is read again, for what was backfilled long after its time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is recorded of a topic.

    Parameters
    ----------
    history
        From its first recorded step on, at most eight weeks.
    note
        What a forecast from it should say: that the store is silent, that only some weeks are looked at.
    """

    history: ArrivalSeries
    note: str | None = None


@dataclass(slots=True)
class _Kept:
    """What is remembered of a topic between forecasts, beside its history on the shelf."""

    grid: TimeGrid
    rows: int
    first: int
    """From which step on it was read."""
    loaded_at: datetime
    read_at: datetime


class ForecastService:
    """Forecasts of recorded topics.

    Parameters
    ----------
    store
        Where arrivals are recorded.
    registry
        Artefacts; None forecasts from the rungs that need none.
    cluster
        Name that artefacts of this store's topics are kept under.
    timezone_of
        Zone whose wall clock a topic's seasons follow.
    calendar_of
        Holidays and events of a topic: those that are over are not taken as a pattern.
    zero_shot
        Gives the shipped model, or the reason why there is none; asked only for topics without a model of their own.
    folder
        Where histories lie between forecasts, in files that end with the process; None keeps them in memory.

    Examples
    --------
    >>> from datetime import UTC
    >>> from forecaster.stores.memory import MemorySeriesStore
    >>> service = ForecastService(MemorySeriesStore())
    >>> service.forecast("orders", datetime(2026, 1, 5, tzinfo=UTC), timedelta(hours=1)).reason
    'orders was never recorded; headway ingest loads a history, headway serve records'
    """

    def __init__(
        self,
        store: SeriesStore,
        registry: ModelRegistry | None = None,
        *,
        cluster: str = "main",
        timezone_of: Callable[[str], str] = lambda _: "UTC",
        calendar_of: Callable[[str], Calendar] = lambda _: Calendar(),
        zero_shot: Callable[[], tuple[Method | None, str | None]] = lambda: (None, "not configured"),
        folder: Path | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._cluster = cluster
        self._timezone_of = timezone_of
        self._calendar_of = calendar_of
        self._zero_shot = zero_shot
        self._kept: dict[str, _Kept] = {}
        self._shelf = Shelf(folder)
        self._models: dict[str, tuple[str, Artefact | ArtefactRefused]] = {}
        self._lock = threading.Lock()

    def forecast(
        self,
        topic: str,
        now: datetime,
        horizon: timedelta,
        levels: Sequence[float] = DEFAULT_LEVELS,
        start: Rung = Rung.OWN_MODEL,
        seen: Seen | None = None,
    ) -> ForecastResult:
        """Forecast a topic from ``now`` on.

        Parameters
        ----------
        topic
            A recorded topic.
        now
            The origin, aware UTC; steps that are not complete at that instant are not looked at.
        horizon
            How far ahead; rounded up to whole steps.
        levels
            Quantile levels, rising within (0, 1).
        start
            Best rung that may answer.
        seen
            What :meth:`look` found at ``now``; None looks.

        Returns
        -------
        Forecast or NoForecast
            With the rung and every reason.

        Raises
        ------
        StoreUnavailable
            If the store does not answer and nothing of the topic is remembered.
        ValueError
            If the horizon is not positive.
        """
        if horizon <= timedelta(0):
            raise ValueError(f"horizon {horizon} must be longer than zero")
        seen = seen or self.look(topic, now)
        if seen is None:
            reason = f"{topic} was never recorded; headway ingest loads a history, headway serve records"
            return NoForecast(topic, now, reason)
        history = self._calendar_of(topic).usual(seen.history)
        notes: tuple[str, ...] = () if seen.note is None else (seen.note,)
        if history is not seen.history:
            notes += ("holidays and events that are over are not taken as a pattern",)
        steps = -(-horizon // history.grid.step)
        result = self._ladder(topic, history, start).predict(history, steps, levels)
        if notes and isinstance(result, Forecast):
            return replace(result, reasons=(*notes, *result.reasons))
        return result

    def history(self, topic: str, now: datetime) -> ArrivalSeries | None:
        """Return what is recorded of a topic up to ``now`` (at most eight weeks), or None if nothing is."""
        seen = self.look(topic, now)
        return None if seen is None else seen.history

    def look(self, topic: str, now: datetime) -> Seen | None:
        """Return what is recorded of a topic up to ``now``, with what is to be said of it, or None if nothing is."""
        with self._lock:
            return self._refreshed(topic, now)

    def calendar(self, topic: str) -> Calendar:
        """Return the holidays and events of a topic."""
        return self._calendar_of(topic)

    def card(self, topic: str) -> Mapping[str, object] | None:
        """Return the card of the artefact that answers for a topic, or None."""
        found = self._artefact(topic)
        return found.card.to_dict() if isinstance(found, Artefact) else None

    def _ladder(self, topic: str, history: ArrivalSeries, start: Rung) -> Ladder:
        found = self._artefact(topic)
        passed_over: dict[Rung, str] = {}
        own = None
        if isinstance(found, ArtefactRefused):
            passed_over[Rung.OWN_MODEL] = str(found)
        elif found is not None and found.card.step_s != history.grid.step_s:
            passed_over[Rung.OWN_MODEL] = (
                f"trained on steps of {found.card.step_s} s, recorded are {history.grid.step_s} s; run headway train"
            )
        elif found is not None:
            own = found.method
        stand_in = None
        if own is None:
            stand_in, why = self._zero_shot()
            if why is not None:
                passed_over[Rung.ZERO_SHOT] = why
        return Ladder(own, stand_in, start=start, passed_over=passed_over)

    def _artefact(self, topic: str) -> Artefact | ArtefactRefused | None:
        """Return the current artefact; opened once per version, so that a promotion or rollback is seen at once."""
        if self._registry is None:
            return None
        stream = StreamId(self._cluster, topic)
        try:
            version = self._registry.current(stream)
            if version is None:
                return None
            known = self._models.get(topic)
            if known is None or known[0] != version:
                try:
                    known = (version, self._registry.load(stream, version))
                except ArtefactRefused as refused:
                    known = (version, refused)
                self._models[topic] = known
            return known[1]
        except ArtefactRefused as refused:
            return refused

    def _refreshed(self, topic: str, now: datetime) -> Seen | None:
        kept = self._kept.get(topic)
        try:
            return self._read(topic, now, kept)
        except StoreUnavailable as exc:
            if kept is None:
                raise
            note = f"the store does not answer ({exc}); what was read at {kept.read_at:%H:%M:%S} UTC is used"
            return Seen(_trimmed(_until(self._shelf.take(topic), kept.grid.index_of(now))), note)

    def _read(self, topic: str, now: datetime, kept: _Kept | None) -> Seen | None:
        meta = self._store.meta(topic)
        if meta is None:
            return None
        grid = TimeGrid(meta.step_s, self._timezone_of(topic))
        key = SeriesKey(topic, "arrivals", step_s=meta.step_s)
        end = grid.index_of(now)
        weeks, note = _window(meta.partitions, grid)
        first = end - int(weeks / grid.step)
        usable = (
            kept is not None
            and kept.grid == grid
            and kept.first <= first
            and timedelta(0) <= now - kept.loaded_at < RELOAD_EVERY
        )
        if kept is not None and usable:
            begun, ended = self._shelf.span(topic)
            start = max(first, min(ended, end) - int(REREAD / grid.step))
            new = _series(topic, grid, self._store.read(key, start, end), meta.partitions)
            with suppress(OSError):  # a file that fails: the store has it all
                if len(new.partitions) == kept.rows:
                    if begun < start:
                        self._shelf.extend(new)
                    else:
                        self._shelf.put(_trimmed(new))
                    history = _trimmed(self._shelf.take(topic, first))
                    self._kept[topic] = _Kept(grid, kept.rows, first, kept.loaded_at, now)
                    return Seen(history, note)
        whole = _trimmed(_series(topic, grid, self._store.read(key, first, end), meta.partitions))
        self._shelf.put(whole)
        self._kept[topic] = _Kept(grid, len(whole.partitions), first, now, now)
        return Seen(whole, note)


def _window(partitions: int, grid: TimeGrid) -> tuple[timedelta, str | None]:
    """Return how much history is kept of a topic that wide, and what to say if it is less than it should be."""
    weeks = MAX_CELLS // (max(partitions, 1) * grid.steps_per_week)
    if weeks >= HISTORY / timedelta(weeks=1):
        return HISTORY, None
    window = max(timedelta(weeks=weeks), timedelta(days=2))
    return window, f"{partitions} partitions at steps of {grid.step_s} s: the last {window.days} days are looked at"


def _series(topic: str, grid: TimeGrid, cells: Cells, partitions: int) -> ArrivalSeries:
    """Return cells as arrivals of all partitions; one that has no cell here is not known here."""
    rows = max(partitions, cells.partitions)
    missing = ((0, rows - cells.partitions), (0, 0))
    counts = np.pad(cells.values.astype(np.float64), missing)
    return ArrivalSeries(topic, grid, cells.first_index, tuple(range(rows)), counts, np.pad(cells.known, missing))


def _trimmed(history: ArrivalSeries) -> ArrivalSeries:
    """Leave out what lies before the first step that anybody recorded; copies nothing."""
    seen = history.known.any(axis=0)
    return history.between(history.first_index + int(seen.argmax()) if seen.any() else 0, history.end_index)


def _until(history: ArrivalSeries, end: int) -> ArrivalSeries:
    """Let a history end at ``end``: what is not there yet is not known."""
    more = end - history.end_index
    if more <= 0:
        return history.between(history.first_index, end)
    pad = ((0, 0), (0, more))
    return replace(history, counts=np.pad(history.counts, pad), known=np.pad(history.known, pad))
