"""The newest weeks as time series, where the server has RedisTimeSeries: open to Grafana and TS.RANGE as they are.

One series a partition and metric. Commands are sent with their options in our own order: the client's ``ts()`` helper
orders some of them so that labels turn to junk, and installs callbacks that change later answers. Every key of a topic
shares its hash tag, and nothing asks across keys (TS.MRANGE and TS.QUERYINDEX see one node of a cluster alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import SampleRejected, StoreRefused, StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.redis_hot import Written
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import Command, RedisLink
from forecaster.stores.redis_meta import CHECK, NOTE, tick_arguments
from forecaster.stores.retention import Retention, refuse_future, refuse_late

# KEYS: meta, then a series each. ARGV: what CHECK and NOTE take, then a value a series. The check comes first: one
# sample of the future would make a series with a retention drop its history. Which sample of a TS.MADD failed cannot be
# told inside a script, where an error within an array spoils the array; so all series are made sure of, and the whole
# tick, whose parts may be written again, is sent once more.
_WRITE = (
    CHECK
    + """
local base = #ARGV - (#KEYS - 1)
local stamp = ARGV[1] .. '000'
for from = 2, #KEYS, 2000 do
  local command = {}
  for i = from, math.min(from + 1999, #KEYS) do
    command[#command + 1] = KEYS[i]
    command[#command + 1] = stamp
    command[#command + 1] = ARGV[base + i - 1]
  end
  local answers = redis.pcall('TS.MADD', unpack(command))
  if answers.err then return {'failed', answers.err} end
  for _, answer in ipairs(answers) do
    if type(answer) == 'table' then return {'failed', answer.err} end
  end
end
"""
    + NOTE
    + """
return {'ok'}
"""
)

_KEYS_AT_ONCE = 50
_SAMPLES_AT_ONCE = 2000


class TimeseriesHot:
    """The :class:`forecaster.stores.redis_hot.HotPart` of RedisTimeSeries."""

    name = "timeseries"

    def __init__(self, link: RedisLink, keys: RedisKeys, retention: Retention) -> None:
        self._link = link
        self._keys = keys
        self._retention = retention

    def write(self, ticks: Sequence[Tick], now_s: float | None) -> list[Written]:
        """Write ticks; each is one script, seen whole or not at all."""
        return [
            self._outcome(tick, answer, now_s)
            for tick, answer in zip(
                ticks, self._link.script(_WRITE, [self._call(tick, now_s) for tick in ticks]), strict=True
            )
        ]

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return what the series have of a range."""
        meta = self._keys.meta(key.topic)
        cells = Cells.missing(
            first_index, int(self._link.call(meta, "HGET", meta, "partitions") or 0), end_index - first_index
        )
        window = (first_index * key.step_s * 1000, (end_index * key.step_s - 1) * 1000)
        for start in range(0, cells.partitions, _KEYS_AT_ONCE):
            names = [self._keys.timeseries(key, p) for p in range(start, min(start + _KEYS_AT_ONCE, cells.partitions))]
            for row, samples in enumerate(self._ranges(names, *window), start):
                self._place(cells, row, samples, key)
        return cells

    def days(self, keys: Sequence[SeriesKey], first_day: int, end_day: int) -> list[list[int]]:
        """Return all days: which of them a series has is seen when it is read."""
        return [list(range(first_day, end_day)) for _ in keys]

    def keys_of(self, key: SeriesKey, day: int) -> list[str]:
        """Return no keys: a series holds many days, and keeps them until its retention ends."""
        return []

    def backfill(self, key: SeriesKey, cells: Cells) -> None:
        """Write history into the series.

        Behind the newest sample a series takes history 16 to 100 times slower than in order, so that such a series is
        made anew beside the old one and put in its place.
        """
        begin = max(cells.end_index - int(self._retention.steps.total_seconds()) // key.step_s, cells.first_index)
        recent = slice(begin - cells.first_index, None)
        stamps = (np.arange(begin, cells.end_index, dtype=np.int64) * key.step_s) * 1000
        for partition in range(cells.partitions):
            known = cells.known[partition, recent]
            if known.any():
                self._put(key, partition, stamps[known], cells.values[partition, recent][known])

    def prune(self, key: SeriesKey, first_day: int, end_day: int) -> set[int]:
        """Drop nothing: series have a retention of their own."""
        return set()

    def _call(self, tick: Tick, now_s: float | None) -> tuple[list[str], list[str | bytes | int | float]]:
        names = [self._keys.meta(tick.topic)]
        values: list[int] = []
        for key, (column, known) in tick.columns.items():
            rows = np.flatnonzero(known)
            names += [self._keys.timeseries(key, partition) for partition in rows.tolist()]
            values += column[rows].tolist()  # numpy's own numbers would be sent as their repr
        return names, [*tick_arguments(self._keys, self._retention, tick, now_s), *values]

    def _outcome(self, tick: Tick, answer: Any, now_s: float | None) -> Written:
        start_s = tick.index * tick.step_s
        try:
            found = self._link.checked(answer)
            if found[0] == b"failed" and (b"not a TSDB key" in found[1] or b"does not exist" in found[1]):
                self._create([(key, int(p)) for key, (_, known) in tick.columns.items() for p in np.flatnonzero(known)])
                (again,) = self._link.script(_WRITE, [self._call(tick, now_s)])
                found = self._link.checked(again)
            match found[0]:
                case b"future":
                    refuse_future(tick.topic, start_s, tick.step_s, float(found[1]))
                case b"late":
                    refuse_late(tick.topic, start_s, int(found[1]), self._retention.late)
                case b"failed":
                    raise StoreRefused(f"{tick.topic}: {bytes(found[1]).decode()}")
        except (SampleRejected, StoreRefused, StoreUnavailable) as error:
            return Written(error)
        return Written()

    def _create(self, series: Sequence[tuple[SeriesKey, int]]) -> None:
        commands = [
            self._creation(self._keys.timeseries(key, p), (*_LABELS, *self._labels(key, p))) for key, p in series
        ]
        for answer in self._link.batch([(str(command[1]), command) for command in commands]):
            if "already exists" not in str(answer):  # another recorder was quicker
                self._link.checked(answer)

    def _creation(self, name: str, more: Sequence[str] = ()) -> Command:
        keep_ms = int(self._retention.steps.total_seconds()) * 1000
        return ("TS.CREATE", name, "RETENTION", keep_ms, "CHUNK_SIZE", 1024, "DUPLICATE_POLICY", "LAST", *more)

    def _labels(self, key: SeriesKey, partition: int) -> list[str]:
        labels = {
            "cluster": self._keys.cluster,
            "topic": key.topic,
            "partition": str(partition),
            "metric": key.metric,
            "step_s": str(key.step_s),
        }
        if key.group is not None:
            labels["group"] = key.group
        return [word for pair in labels.items() for word in pair if pair[1]]

    def _ranges(self, names: Sequence[str], first_ms: int | str, last_ms: int | str) -> list[list[Any]]:
        answers = self._link.batch([(name, ("TS.RANGE", name, first_ms, last_ms)) for name in names])
        return [[] if "does not exist" in str(answer)[:80] else self._link.checked(answer) for answer in answers]

    @staticmethod
    def _place(cells: Cells, row: int, samples: Sequence[Any], key: SeriesKey) -> None:
        if not samples:
            return
        stamps, values = _arrays(samples)
        at = stamps // (key.step_s * 1000) - cells.first_index
        cells.values[row, at] = values
        cells.known[row, at] = True

    def _put(self, key: SeriesKey, partition: int, stamps: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        name = self._keys.timeseries(key, partition)
        (last,) = self._link.batch([(name, ("TS.GET", name))])
        if "does not exist" in str(last)[:80]:
            self._create([(key, partition)])
            last = []
        last = self._link.checked(last)
        if not last or int(last[0]) < stamps[0]:
            self._add(name, stamps, values)
            return
        rules = dict(_pairs(self._link.call(name, "TS.INFO", name))).get("rules", [])  # TS.INFO counts as a change
        self._link.transact([name], lambda: self._replacement(key, partition, stamps, values, rules))

    def _replacement(
        self, key: SeriesKey, partition: int, stamps: NDArray[np.int64], values: NDArray[np.int64], rules: Sequence[Any]
    ) -> list[Command]:
        """Make a series with old and new samples beside the old one; return what puts it in its place."""
        name = self._keys.timeseries(key, partition)
        draft = f"{name}:draft"
        old_stamps, old_values = _arrays(self._ranges([name], "-", "+")[0])
        kept = ~np.isin(old_stamps, stamps)
        all_stamps = np.concatenate([old_stamps[kept], stamps])
        order = np.argsort(all_stamps, kind="stable")
        self._link.call(draft, "UNLINK", draft)
        self._link.call(draft, *self._creation(draft))
        self._add(draft, all_stamps[order], np.concatenate([old_values[kept], values])[order])
        return [
            ("DEL", name),
            ("RENAME", draft, name),
            ("TS.ALTER", name, "LABELS", *self._labels(key, partition)),
            *(("TS.CREATERULE", name, rule[0], "AGGREGATION", rule[2], rule[1], *rule[3:4]) for rule in rules),
        ]

    def _add(self, name: str, stamps: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        pairs = np.stack([stamps, values], axis=1)
        commands: list[tuple[str, Command]] = []
        for start in range(0, len(pairs), _SAMPLES_AT_ONCE):
            words = [
                word
                for stamp, value in pairs[start : start + _SAMPLES_AT_ONCE].tolist()
                for word in (name, stamp, value)
            ]
            commands.append((name, ("TS.MADD", *words)))
        for answer in self._link.batch(commands):
            for one in self._link.checked(answer):
                if isinstance(one, Exception):
                    raise StoreRefused(f"{name}: {one}") from one


_LABELS = ("LABELS",)


def has_timeseries(link: RedisLink) -> bool:
    """Whether the server has RedisTimeSeries and lets us use it; asked with a key that does not exist."""
    name = "hw:probe"
    (answer,) = link.batch([(name, ("TS.GET", name))])
    text = str(answer).lower()
    if "unknown command" in text or "no permissions" in text or "noperm" in text:
        return False
    if isinstance(answer, Exception) and "does not exist" not in text:
        link.checked(answer)
    return True


def _arrays(samples: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    stamps = np.fromiter((s[0] for s in samples), dtype=np.int64, count=len(samples))
    values = np.array([s[1] for s in samples], dtype="S32").astype(np.float64) if samples else np.zeros(0)
    return stamps, np.rint(values).astype(np.int64)


def _pairs(flat: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(str(k, "ascii"), v) for k, v in zip(flat[::2], flat[1::2], strict=True)]
