"""Sealed days and hourly roll-ups in Redis: what the forecaster reads months from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime

from forecaster.errors import StoreRefused
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.joining import day_range, days_between, join, write_onto
from forecaster.stores.packing import pack_day, pack_month, unpack_day, unpack_month
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import RedisLink
from forecaster.stores.retention import Retention
from forecaster.stores.rollups import HOUR_S, roll_up
from forecaster.timegrid import DAY_S

_DAYS_AT_ONCE = 4
"""Days fetched in one command: more would keep the server's other clients waiting."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()


class SealedDays:
    """Days and months of one Kafka cluster's series."""

    def __init__(self, link: RedisLink, keys: RedisKeys, retention: Retention) -> None:
        self._link = link
        self._keys = keys
        self._retention = retention

    def read_onto(self, target: Cells, key: SeriesKey) -> Cells:
        """Write what the sealed days know upon ``target``; returns it, or a wider one if a day has more partitions."""
        days = list(days_between(target.first_index, target.end_index, key.step_s))
        for at in range(0, len(days), _DAYS_AT_ONCE):
            some = days[at : at + _DAYS_AT_ONCE]
            names = [self._keys.day(key, day) for day in some]
            for day, name, block in zip(some, names, self._link.call(names[0], "MGET", *names), strict=True):
                if block is None:
                    continue
                part = self._unpacked(name, block, day_range(day, key.step_s)[0])
                if part.partitions > target.partitions:
                    wider = Cells.missing(target.first_index, part.partitions, target.steps)
                    write_onto(wider, target)
                    target = wider
                write_onto(target, part)
        return target

    def seal(
        self, key: SeriesKey, day: int, hot_keys: Sequence[str], over: Callable[[], Sequence[Cells]]
    ) -> Cells | None:
        """Join a day with what ``over`` brings, keep it, and drop ``hot_keys``, all at once.

        Returns
        -------
        Cells or None
            The whole day; None if there is nothing to keep.
        """
        name = self._keys.day(key, day)
        first, end = day_range(day, key.step_s)
        joined: Cells | None = None

        def build() -> list[tuple[str | bytes | int, ...]] | None:
            nonlocal joined
            block = self._link.call(name, "GET", name)
            have = [] if block is None else [self._unpacked(name, block, first)]
            joined = join([*have, *over()], first, end)
            if not joined.known.any():
                joined = None
                return None
            life_s = int(self._retention.steps.total_seconds()) + DAY_S
            commands: list[tuple[str | bytes | int, ...]] = [("SET", name, pack_day(joined, key.step_s), "EX", life_s)]
            if hot_keys:
                commands += [("UNLINK", *hot_keys), ("HINCRBY", self._keys.meta(key.topic), "blocks", 1)]
            return commands

        self._link.transact([name, *hot_keys], build)
        return joined

    def roll_up(self, key: SeriesKey, days: Iterable[Cells]) -> None:
        """Keep the hours of whole days."""
        months: dict[str, list[tuple[Cells, Cells]]] = {}
        for day in days:
            rolled = roll_up(day, key.step_s)
            if rolled is None:
                return
            month = f"{date.fromordinal(_EPOCH_DAY + rolled.sums.first_index * HOUR_S // DAY_S):%Y-%m}"
            months.setdefault(month, []).append((rolled.sums, rolled.peaks))
        for month, hours in months.items():
            self._keep_month(key, month, hours)

    def keep_hours(self, key: SeriesKey, sums: Cells, peaks: Cells) -> None:
        """Keep hours, month by month, beside those that are there."""
        first, end = min(sums.first_index, peaks.first_index), max(sums.end_index, peaks.end_index)
        for month, begin, after in _months(first, end):
            mine = [join([cells], max(begin, first), min(after, end)) for cells in (sums, peaks)]
            if mine[0].known.any() or mine[1].known.any():
                self._keep_month(key, month, [(mine[0], mine[1])])

    def read_hourly(self, key: SeriesKey, first_hour: int, end_hour: int) -> tuple[Cells, Cells]:
        """Return the hourly sums and maxima of ``[first_hour, end_hour)``."""
        sums: list[Cells] = []
        peaks: list[Cells] = []
        for month, first, _ in _months(first_hour, end_hour):
            name = self._keys.month(key, month)
            block = self._link.call(name, "GET", name)
            if block is not None:
                part = self._month(name, block, first)
                sums.append(part[0])
                peaks.append(part[1])
        return join(sums, first_hour, end_hour), join(peaks, first_hour, end_hour)

    def drop_days(self, key: SeriesKey, first_day: int, end_day: int) -> set[int]:
        """Drop days; returns those that were there."""
        days = range(first_day, end_day)
        names = [self._keys.day(key, day) for day in days]
        answers = self._link.batch([(name, ("UNLINK", name)) for name in names])
        return {day for day, answer in zip(days, answers, strict=True) if self._link.checked(answer)}

    def _keep_month(self, key: SeriesKey, month: str, hours: Sequence[tuple[Cells, Cells]]) -> None:
        name = self._keys.month(key, month)
        ((_, first, end),) = _months(hours[0][0].first_index, hours[0][0].first_index + 1)

        def build() -> list[tuple[str | bytes | int, ...]]:
            block = self._link.call(name, "GET", name)
            have = [] if block is None else [self._month(name, block, first)]
            sums = join([part[0] for part in (*have, *hours)], first, end)
            peaks = join([part[1] for part in (*have, *hours)], first, end)
            return [("SET", name, pack_month(sums, peaks), "EX", int(self._retention.hourly.total_seconds()) + DAY_S)]

        self._link.transact([name], build)

    def _unpacked(self, name: str, block: bytes, first_index: int) -> Cells:
        try:
            return unpack_day(block, first_index)
        except ValueError as exc:
            raise StoreRefused(f"{name}: {exc}; delete the key, or bring it back by headway import") from exc

    def _month(self, name: str, block: bytes, first_hour: int) -> tuple[Cells, Cells]:
        try:
            return unpack_month(block, first_hour)
        except ValueError as exc:
            raise StoreRefused(f"{name}: {exc}; delete the key, it is made again when the month is sealed") from exc


def _months(first_hour: int, end_hour: int) -> list[tuple[str, int, int]]:
    """Return the months that hours fall into: name, first hour, first hour after.

    Examples
    --------
    >>> _months(743, 745)
    [('1970-01', 0, 744), ('1970-02', 744, 1416)]
    """
    found: list[tuple[str, int, int]] = []
    hour = first_hour
    while hour < end_hour:
        start = datetime.fromtimestamp(hour * HOUR_S, UTC).replace(day=1, hour=0)
        after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        found.append((f"{start:%Y-%m}", int(start.timestamp()) // HOUR_S, int(after.timestamp()) // HOUR_S))
        hour = found[-1][2]
    return found
