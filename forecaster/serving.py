"""From a store and a current artefact to a forecast, down the ladder when it must, saying so.

A :class:`ForecastService` keeps each topic's history in memory and reads only what is new, so that a tick costs a
short read and one forecast, and so that a store which does not answer for a while leaves a forecast with its age.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from forecaster.calendar import Calendar
from forecaster.errors import ArtefactRefused, StoreUnavailable
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.ladder import Ladder
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.registry import Artefact, ModelRegistry
from forecaster.series import ArrivalSeries
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.timegrid import TimeGrid
from forecaster.topics import StreamId

HISTORY = timedelta(weeks=8)
"""How far back a forecast looks."""

MAX_CELLS = 48_000_000
"""Partitions x steps kept per topic (400 MB); a wider topic keeps fewer weeks, and its forecasts say so."""

REREAD = timedelta(hours=2)
"""What is read again at each forecast: ticks that came late replace what was missing."""

RELOAD_EVERY = timedelta(hours=6)
"""How often a whole history is read again, for what was backfilled long after its time."""


@dataclass(slots=True)
class _Kept:
    """What is remembered of a topic between forecasts, from its first recorded step on: empty steps cost memory too."""

    history: ArrivalSeries
    first: int
    """From which step on it was read."""
    loaded_at: datetime
    read_at: datetime
    note: str | None = None


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
    ) -> None:
        self._store = store
        self._registry = registry
        self._cluster = cluster
        self._timezone_of = timezone_of
        self._calendar_of = calendar_of
        self._zero_shot = zero_shot
        self._kept: dict[str, _Kept] = {}
        self._models: dict[str, tuple[str, Artefact | ArtefactRefused]] = {}
        self._lock = threading.Lock()

    def forecast(
        self,
        topic: str,
        now: datetime,
        horizon: timedelta,
        levels: Sequence[float] = DEFAULT_LEVELS,
        start: Rung = Rung.OWN_MODEL,
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
        with self._lock:
            kept = self._refreshed(topic, now)
        if kept is None:
            reason = f"{topic} was never recorded; headway ingest loads a history, headway serve records"
            return NoForecast(topic, now, reason)
        seen = _trimmed(kept.history)
        history = self._calendar_of(topic).usual(seen)
        notes: tuple[str, ...] = () if kept.note is None else (kept.note,)
        if history is not seen:
            notes += ("holidays and events that are over are not taken as a pattern",)
        steps = -(-horizon // history.grid.step)
        result = self._ladder(topic, history, start).predict(history, steps, levels)
        if notes and isinstance(result, Forecast):
            return replace(result, reasons=(*notes, *result.reasons))
        return result

    def history(self, topic: str, now: datetime) -> ArrivalSeries | None:
        """Return what is recorded of a topic up to ``now`` (at most eight weeks), or None if nothing is."""
        with self._lock:
            kept = self._refreshed(topic, now)
        return None if kept is None else _trimmed(kept.history)

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

    def _refreshed(self, topic: str, now: datetime) -> _Kept | None:
        kept = self._kept.get(topic)
        try:
            fresh = self._read(topic, now, kept)
        except StoreUnavailable as exc:
            if kept is None:
                raise
            grid = kept.history.grid
            note = f"the store does not answer ({exc}); what was read at {kept.read_at:%H:%M:%S} UTC is used"
            return replace(kept, history=_until(kept.history, grid.index_of(now)), note=note)
        if fresh is not None:
            self._kept[topic] = fresh
        return fresh

    def _read(self, topic: str, now: datetime, kept: _Kept | None) -> _Kept | None:
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
            and kept.history.grid == grid
            and kept.first <= first
            and timedelta(0) <= now - kept.loaded_at < RELOAD_EVERY
        )
        if kept is not None and usable:
            old = kept.history.between(max(first, kept.history.first_index), kept.history.end_index)
            start = max(first, min(old.end_index, end) - int(REREAD / grid.step))
            new = _series(topic, grid, self._store.read(key, start, end), meta.partitions)
            if len(new.partitions) == len(old.partitions):
                whole = new if old.first_index >= start else _joined(old.between(old.first_index, start), new)
                return _Kept(whole, first, kept.loaded_at, now, note)
        whole = _series(topic, grid, self._store.read(key, first, end), meta.partitions)
        return _Kept(_copied(_trimmed(whole)), first, now, now, note)


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


def _joined(old: ArrivalSeries, new: ArrivalSeries) -> ArrivalSeries:
    return replace(
        new,
        first_index=old.first_index,
        counts=np.concatenate([old.counts, new.counts], axis=1),
        known=np.concatenate([old.known, new.known], axis=1),
    )


def _trimmed(history: ArrivalSeries) -> ArrivalSeries:
    """Leave out what lies before the first step that anybody recorded; copies nothing."""
    seen = history.known.any(axis=0)
    return history.between(history.first_index + int(seen.argmax()) if seen.any() else 0, history.end_index)


def _copied(history: ArrivalSeries) -> ArrivalSeries:
    """Return the same in memory of its own, so that what it was cut from can go."""
    return replace(history, counts=history.counts.copy(), known=history.known.copy())


def _until(history: ArrivalSeries, end: int) -> ArrivalSeries:
    """Let a history end at ``end``: what is not there yet is not known."""
    more = end - history.end_index
    if more <= 0:
        return history.between(history.first_index, end)
    pad = ((0, 0), (0, more))
    return replace(history, counts=np.pad(history.counts, pad), known=np.pad(history.known, pad))
