"""Series in Redis: the newest days hot, finished days sealed, hours for over a year."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from forecaster.errors import StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, StoreHealth, Tick, TopicMeta
from forecaster.stores.joining import day_range, days_between, join, write_onto
from forecaster.stores.redis_health import look
from forecaster.stores.redis_hot import HotPart
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import RedisLink, ServerRefused
from forecaster.stores.redis_meta import note_history, note_sealed, note_sealing, read_meta
from forecaster.stores.redis_sealed import SealedDays
from forecaster.stores.retention import SEAL_GRACE_S, Retention, refuse_future, steps_per_day
from forecaster.timegrid import DAY_S

RING_TICKS = 4096
"""Ticks kept while the server refuses or is away; with one tick a topic every 10 s, eleven hours of one topic."""

_PASSING = (StoreUnavailable, ServerRefused)
"""Errors that pass, so that a tick is worth keeping; one that can never be written would be in the way for ever."""


class RedisSeriesStore:
    """The :class:`forecaster.stores.base.SeriesStore` in Redis.

    It is opened by :func:`forecaster.stores.opening.open_store`.

    Parameters
    ----------
    link
        Connection, which the store closes.
    keys
        Key names.
    hot
        How the newest days are kept.
    retention
        What is kept for how long.
    clock
        What is taken for now when ticks of the future are refused; None asks the server, whose clock all writers share.
    """

    def __init__(
        self,
        link: RedisLink,
        keys: RedisKeys,
        hot: HotPart,
        retention: Retention,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._link = link
        self._keys = keys
        self._hot = hot
        self._retention = retention
        self._clock = clock
        self._sealed = SealedDays(link, keys, retention)
        self._listed: set[str] = set()
        self._ring: deque[Tick] = deque(maxlen=RING_TICKS)
        self._lock = threading.RLock()

    @property
    def layout(self) -> str:
        """How the newest days are kept: ``rows`` or ``timeseries``."""
        return self._hot.name

    @property
    def waiting(self) -> int:
        """Ticks that the server has not taken yet; they go before the next ones."""
        return len(self._ring)

    def append(self, ticks: Sequence[Tick]) -> None:
        """Write ticks (:meth:`SeriesStore.append`).

        Ticks that the server cannot take at present (away, full, a replica) are kept, and written before those of the
        next call.
        """
        with self._lock:
            for tick in ticks:
                steps_per_day(tick.step_s)
            todo = [*self._ring, *ticks]
            self._ring.clear()
            try:
                self._list({tick.topic for tick in todo})
                outcomes = self._hot.write(todo, None if self._clock is None else self._clock().timestamp())
            except _PASSING:
                self._ring.extend(todo)
                raise
            errors = [(tick, one.error) for tick, one in zip(todo, outcomes, strict=True) if one.error is not None]
            self._ring.extend(tick for tick, error in errors if isinstance(error, _PASSING))
            if errors:
                raise errors[0][1]

    def backfill(self, key: SeriesKey, cells: Cells, *, topic_id: str | None = None) -> None:
        """Write history day by day (:meth:`SeriesStore.backfill`)."""
        steps_per_day(key.step_s)
        if not cells.steps:
            return
        refuse_future(key.topic, (cells.end_index - 1) * key.step_s, key.step_s, self._now_s(key.topic))
        self._list({key.topic})
        self._hot.backfill(key, cells)
        days = days_between(cells.first_index, cells.end_index, key.step_s)
        meta = read_meta(self._link, self._keys, key.topic)
        open_day = days.stop if meta is None or meta.open_day is None else max(meta.open_day, days.start)
        with_hot = set(self._hot.days([key], open_day, days.stop)[0])
        done: list[Cells] = []
        for day in days:
            whole = self._sealed.seal(
                key,
                day,
                self._hot.keys_of(key, day) if day in with_hot else (),
                partial(self._with_hot, key, day if day in with_hot else None, cells),
            )
            if whole is not None:
                done.append(whole)
            if len(done) == 31:
                self._sealed.roll_up(key, done)
                done.clear()
        self._sealed.roll_up(key, done)
        note_history(self._link, self._keys, key, cells, topic_id)

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return steps of every partition (:meth:`SeriesStore.read`)."""
        steps_per_day(key.step_s)
        steps = max(end_index - first_index, 0)
        meta = read_meta(self._link, self._keys, key.topic)
        if meta is None or key not in meta.keys or not steps:
            return Cells.missing(first_index, 0, steps)
        # Hot before sealed: a day that is sealed in between is then read twice rather than not at all.
        hot: Cells | None = None
        if meta.open_day is not None:
            begin = max(first_index, day_range(meta.open_day, key.step_s)[0])
            if begin < end_index:
                hot = self._hot.read(key, begin, end_index)
        cells = self._sealed.read_onto(Cells.missing(first_index, 0, steps), key)
        if hot is None or not hot.partitions:
            return cells
        if hot.partitions > cells.partitions:
            return join([cells, hot], first_index, end_index)
        write_onto(cells, hot)
        return cells

    def read_hourly(self, key: SeriesKey, first_hour: int, end_hour: int) -> tuple[Cells, Cells]:
        """Return hourly sums and maxima (:meth:`SeriesStore.read_hourly`)."""
        return self._sealed.read_hourly(key, first_hour, end_hour)

    def backfill_hourly(self, key: SeriesKey, sums: Cells, peaks: Cells) -> None:
        """Write hours whose steps are kept no longer (:meth:`SeriesStore.backfill_hourly`)."""
        self._sealed.keep_hours(key, sums, peaks)

    def topics(self) -> tuple[str, ...]:
        """Return the recorded topics, sorted."""
        members = self._link.call(self._keys.index, "SMEMBERS", self._keys.index)
        return tuple(sorted(member.decode() for member in members))

    def meta(self, topic: str) -> TopicMeta | None:
        """Return what is known of a topic, or None."""
        found = read_meta(self._link, self._keys, topic)
        return None if found is None else found.public()

    def seal(self, topic: str, now: datetime) -> int:
        """Pack finished days (:meth:`SeriesStore.seal`)."""
        end = (int(now.timestamp()) - SEAL_GRACE_S) // DAY_S
        note_sealing(self._link, self._keys, topic, end)
        meta = read_meta(self._link, self._keys, topic)
        if meta is None or meta.open_day is None or meta.open_day >= end:
            return 0
        sealed: set[int] = set()
        last_day = meta.last_s // DAY_S
        for key, days in zip(meta.keys, self._hot.days(meta.keys, meta.open_day, min(end, last_day + 1)), strict=True):
            done: list[Cells] = []
            for day in days:
                whole = self._sealed.seal(key, day, self._hot.keys_of(key, day), partial(self._with_hot, key, day))
                if whole is not None:
                    done.append(whole)
                    sealed.add(day)
            self._sealed.roll_up(key, done)
        note_sealed(self._link, self._keys, meta, end)
        return len(sealed)

    def prune(self, topic: str, now: datetime) -> int:
        """Drop days older than the retention (:meth:`SeriesStore.prune`); hours end by themselves."""
        meta = read_meta(self._link, self._keys, topic)
        if meta is None:
            return 0
        before = int(min(now.timestamp(), meta.last_s) - self._retention.steps.total_seconds()) // DAY_S
        if meta.first_day >= before:
            return 0
        gone: set[int] = set()
        for key in meta.keys:
            gone |= self._sealed.drop_days(key, meta.first_day, before)
            gone |= self._hot.prune(key, meta.first_day, before)
        name = self._keys.meta(topic)
        self._link.call(name, "HSET", name, "first", before)
        return len(gone)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        with self._lock:
            self._link.call(self._keys.index, "SREM", self._keys.index, topic)
            self._listed.discard(topic)
            meta = self._keys.meta(topic)
            names = [meta, *self._link.scan(f"hw:*:{self._keys.tag(topic)}:*")]
            for answer in self._link.batch([(name, ("UNLINK", name)) for name in names]):
                self._link.checked(answer)

    def health(self) -> StoreHealth:
        """Look at the server."""
        return look(self._link, self.layout, self.waiting)

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def _list(self, topics: set[str]) -> None:
        new = sorted(topics - self._listed)
        if new:
            self._link.call(self._keys.index, "SADD", self._keys.index, *new)
            self._listed.update(new)

    def _with_hot(self, key: SeriesKey, day: int | None, *more: Cells) -> list[Cells]:
        hot = [] if day is None else [self._hot.read(key, *day_range(day, key.step_s))]
        return [*hot, *more]

    def _now_s(self, topic: str) -> float:
        if self._clock is not None:
            return self._clock().timestamp()
        seconds, micros = self._link.call(self._keys.meta(topic), "TIME")
        return int(seconds) + int(micros) / 1e6
