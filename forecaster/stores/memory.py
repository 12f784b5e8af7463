"""Series in this process's memory: for notebooks, simulations and tests; gone when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forecaster.stores.base import Cells, SeriesKey, StoreHealth, Tick, TopicMeta
from forecaster.stores.joining import day_range, days_between, join, write_onto
from forecaster.stores.retention import (
    SEAL_GRACE_S,
    Retention,
    refuse_future,
    refuse_late,
    steps_per_day,
)
from forecaster.stores.rollups import HOUR_S, roll_up
from forecaster.timegrid import DAY_S


@dataclass(slots=True)
class _Topic:
    step_s: int
    topic_id: str | None = None
    last_s: int | None = None
    open_day: int | None = None
    partitions: int = 0
    offsets: Mapping[str, str] = field(default_factory=dict)
    days: dict[SeriesKey, dict[int, Cells]] = field(default_factory=dict)
    sums: dict[SeriesKey, dict[int, Cells]] = field(default_factory=dict)
    peaks: dict[SeriesKey, dict[int, Cells]] = field(default_factory=dict)


class MemorySeriesStore:
    """The :class:`forecaster.stores.base.SeriesStore` that needs nothing.

    Parameters
    ----------
    retention
        What is kept for how long.
    clock
        What the store takes for now, aware UTC; decides what is "in the future".

    Examples
    --------
    >>> import numpy as np
    >>> store = MemorySeriesStore()
    >>> key = SeriesKey("orders", "arrivals")
    >>> column = (np.array([5, 0]), np.array([True, False]))
    >>> store.append([Tick("orders", 60, 29_000_000, {key: column})])
    >>> cells = store.read(key, 29_000_000, 29_000_002)
    >>> cells.values.tolist(), cells.known.tolist()
    ([[5, 0], [0, 0]], [[True, False], [False, False]])
    """

    def __init__(
        self,
        retention: Retention | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._retention = retention or Retention()
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.RLock()

    def append(self, ticks: Sequence[Tick]) -> None:
        """Write ticks, in their order; each is atomic (:meth:`SeriesStore.append`)."""
        now_s = self._clock().timestamp()
        with self._lock:
            for tick in ticks:
                start_s = tick.index * tick.step_s
                steps_per_day(tick.step_s)
                refuse_future(tick.topic, start_s, tick.step_s, now_s)
                known_topic = self._topics.get(tick.topic)
                refuse_late(tick.topic, start_s, known_topic.last_s if known_topic else None, self._retention.late)
                topic = self._topics.setdefault(tick.topic, _Topic(tick.step_s))
                for key, (values, known) in tick.columns.items():
                    self._write(topic, key, Cells(tick.index, values[:, None], known[:, None]))
                if topic.last_s is None or start_s >= topic.last_s:
                    topic.offsets = dict(tick.offsets) or topic.offsets
                    topic.topic_id = tick.topic_id or topic.topic_id
                self._advance(topic, tick.step_s, start_s)
                day = start_s // DAY_S
                topic.open_day = day if topic.open_day is None else min(topic.open_day, day)

    def backfill(self, key: SeriesKey, cells: Cells, *, topic_id: str | None = None) -> None:
        """Write history (:meth:`SeriesStore.backfill`)."""
        if not cells.steps:
            return
        last_s = (cells.end_index - 1) * key.step_s
        refuse_future(key.topic, last_s, key.step_s, self._clock().timestamp())
        with self._lock:
            topic = self._topics.setdefault(key.topic, _Topic(key.step_s, topic_id))
            topic.topic_id = topic_id or topic.topic_id
            for day in self._write(topic, key, cells):
                self._roll(topic, key, day)
            self._advance(topic, key.step_s, last_s)

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return steps of every partition (:meth:`SeriesStore.read`)."""
        with self._lock:
            topic = self._topics.get(key.topic)
            days = topic.days.get(key, {}) if topic else {}
            return _gather(days, first_index, end_index, key.step_s)

    def read_hourly(self, key: SeriesKey, first_hour: int, end_hour: int) -> tuple[Cells, Cells]:
        """Return hourly sums and maxima of sealed days (:meth:`SeriesStore.read_hourly`)."""
        with self._lock:
            topic = self._topics.get(key.topic)
            sums = topic.sums.get(key, {}) if topic else {}
            peaks = topic.peaks.get(key, {}) if topic else {}
            return _gather(sums, first_hour, end_hour, HOUR_S), _gather(peaks, first_hour, end_hour, HOUR_S)

    def backfill_hourly(self, key: SeriesKey, sums: Cells, peaks: Cells) -> None:
        """Write hours whose steps are kept no longer (:meth:`SeriesStore.backfill_hourly`)."""
        with self._lock:
            topic = self._topics.setdefault(key.topic, _Topic(key.step_s))
            for kept, cells in ((topic.sums, sums), (topic.peaks, peaks)):
                days = kept.setdefault(key, {})
                for day in days_between(cells.first_index, cells.end_index, HOUR_S):
                    first, end = day_range(day, HOUR_S)
                    days[day] = join([*([days[day]] if day in days else []), join([cells], first, end)], first, end)

    def topics(self) -> tuple[str, ...]:
        """Return the recorded topics, sorted."""
        with self._lock:
            return tuple(sorted(self._topics))

    def meta(self, topic: str) -> TopicMeta | None:
        """Return what is known of a topic, or None."""
        with self._lock:
            have = self._topics.get(topic)
            if have is None:
                return None
            last = have.last_s
            sealed = have.open_day if have.open_day is not None or last is None else last // DAY_S + 1
            return TopicMeta(
                topic=topic,
                topic_id=have.topic_id,
                partitions=have.partitions,
                step_s=have.step_s,
                last_index=None if last is None else last // have.step_s,
                sealed_to_day=sealed,
                keys=tuple(sorted(have.days, key=SeriesKey.sort_key)),
                offsets=have.offsets,
                first_day=min((day for days in have.days.values() for day in days), default=None),
            )

    def seal(self, topic: str, now: datetime) -> int:
        """Roll finished days up (:meth:`SeriesStore.seal`)."""
        with self._lock:
            have = self._topics.get(topic)
            end = (int(now.timestamp()) - SEAL_GRACE_S) // DAY_S
            if have is None or have.open_day is None or have.open_day >= end:
                return 0
            sealed = {day for days in have.days.values() for day in days if have.open_day <= day < end}
            for key, days in have.days.items():
                for day in sealed & days.keys():
                    self._roll(have, key, day)
            have.open_day = end
            return len(sealed)

    def prune(self, topic: str, now: datetime) -> int:
        """Drop days older than the retention (:meth:`SeriesStore.prune`)."""
        with self._lock:
            have = self._topics.get(topic)
            if have is None or have.last_s is None:
                return 0
            anchor = min(now.timestamp(), have.last_s)
            gone: set[int] = set()
            for series, keep in ((have.days, self._retention.steps), (have.sums, self._retention.hourly)):
                before = int(anchor - keep.total_seconds()) // DAY_S
                for days in series.values():
                    old = [day for day in days if day < before]
                    gone.update(old)
                    for day in old:
                        del days[day]
            for days in have.peaks.values():
                for day in [d for d in days if d < int(anchor - self._retention.hourly.total_seconds()) // DAY_S]:
                    del days[day]
            return len(gone)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        with self._lock:
            self._topics.pop(topic, None)

    def health(self) -> StoreHealth:
        """Say that nothing survives this process."""
        return StoreHealth("memory", "this process", "", "memory", ("kept in memory only: nothing survives",))

    def close(self) -> None:
        """Nothing to give up."""

    def _write(self, topic: _Topic, key: SeriesKey, cells: Cells) -> range:
        days = topic.days.setdefault(key, {})
        touched = days_between(cells.first_index, cells.end_index, key.step_s)
        for day in touched:
            first, end = day_range(day, key.step_s)
            have = days.get(day)
            if have is None or have.partitions < cells.partitions:
                wider = Cells.missing(first, cells.partitions, end - first)
                days[day] = have = wider if have is None else join([wider, have], first, end)
            write_onto(have, cells)
        topic.partitions = max(topic.partitions, cells.partitions)
        return touched

    def _roll(self, topic: _Topic, key: SeriesKey, day: int) -> None:
        rolled = roll_up(topic.days[key][day], key.step_s)
        if rolled is not None:
            topic.sums.setdefault(key, {})[day] = rolled.sums
            topic.peaks.setdefault(key, {})[day] = rolled.peaks

    @staticmethod
    def _advance(topic: _Topic, step_s: int, start_s: int) -> None:
        if topic.last_s is None or start_s >= topic.last_s:
            topic.last_s, topic.step_s = start_s, step_s


def _gather(days: Mapping[int, Cells], first: int, end: int, step_s: int) -> Cells:
    """Lay days side by side over ``[first, end)``."""
    return join([days[day] for day in days_between(first, end, step_s) if day in days], first, end)
