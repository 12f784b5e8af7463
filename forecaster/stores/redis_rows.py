"""The newest days as packed rows, on core commands alone: any Redis from 6.2 on, Valkey, and their managed kin.

One string holds up to 120 steps of one series of one topic; one tick writes one row of it. A script writes all rows of
a topic's tick and its meta hash at once, refuses ticks of the future and of long ago by the server's own clock, and
refuses to write into a block of another shape, so that two recorders with different ideas of a topic cannot tear it.

The usual tick (newer than all that is there, into blocks that are as we left them) needs less: where a look at the meta
hashes under WATCH says so, all topics are written by plain commands in one transaction, for a third of the server's
time. Whatever is not so plain goes the script's way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forecaster.errors import SampleRejected, StoreError, StoreRefused, StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.joining import join
from forecaster.stores.packing import (
    BlockShape,
    Columns,
    item_bytes_for,
    pack_rows,
    rows_per_block,
    unpack_rows,
)
from forecaster.stores.redis_hot import Written
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import Command, RedisLink
from forecaster.stores.redis_meta import CHECK, LOOKED_AT, NOTE, dump_offsets, is_next, tick_arguments
from forecaster.stores.retention import Retention, refuse_future, refuse_late, steps_per_day

# Several ticks, each with a number of keys and of arguments before it. Its KEYS: meta, then the block of each series.
# Its ARGV: what CHECK and NOTE take; the place of the row among the rows; the rows; the headers of the blocks, or "" if
# the sender is sure of them; "+" a series, or the bytes of an item where its row has gaps; the count of block changes
# that the sender has seen. With the count still right, the blocks are as the sender knows them; else each header is
# looked at. A tick's answer: "ok", the count and a time that has passed, or why nothing was written.
_WRITE = (
    "local function write(KEYS, ARGV)"
    + CHECK
    + """
local blocks = known[8]
if not blocks then  -- never the same again, so that no sender mistakes a topic made anew for the one it knew
  local at = redis.call('TIME')
  blocks = at[1] .. string.format('%06d', at[2])
  redis.call('HSET', meta, 'blocks', blocks)
end
local headers, gaps, shapes = ARGV[#ARGV - 2], ARGV[#ARGV - 1], {}
local base = 12 + tonumber(ARGV[10])
local place = tonumber(ARGV[base])
if ARGV[#ARGV] ~= blocks then
  if headers == '' then return {'look'} end
  for i = 2, #KEYS do
    local shape = redis.call('GETRANGE', KEYS[i], 0, 15)
    if shape ~= '' and shape ~= string.sub(headers, 16 * i - 31, 16 * i - 16) then return {'shape', i - 2, shape} end
    shapes[i] = shape
  end
end
for i = 2, #KEYS do
  local row = ARGV[base + i - 1]
  local at = 16 + place * #row
  if shapes[i] == '' then
    local header = string.sub(headers, 16 * i - 31, 16 * i - 16)
    local rows = string.byte(header, 13) + 256 * string.byte(header, 14)
    redis.call('SETRANGE', KEYS[i], 15 + rows * #row, '\0')
    redis.call('SETRANGE', KEYS[i], 0, header)
    redis.call('EXPIRE', KEYS[i], ARGV[7])
  elseif string.byte(gaps, i - 1) ~= 43 then
    local old = redis.call('GETRANGE', KEYS[i], at, at + #row - 1)
    if old ~= string.rep('\0', #row) then
      local size = tonumber(string.sub(gaps, i - 1, i - 1))
      local gap, cells = string.rep('\0', size), {}
      for p = 1, #row, size do
        local cell = string.sub(row, p, p + size - 1)
        if cell == gap then cell = string.sub(old, p, p + size - 1) end
        cells[#cells + 1] = cell
      end
      row = table.concat(cells)
    end
  end
  redis.call('SETRANGE', KEYS[i], at, row)
end
"""
    + NOTE
    + """
return {'ok', blocks, tostring(now)}
end
local found, key, at = {}, 0, 1
while at < #ARGV do  -- before each tick its number of keys and of arguments
  local keys, arguments = {}, {}
  for i = 1, tonumber(ARGV[at]) do keys[i] = KEYS[key + i] end
  for i = 1, tonumber(ARGV[at + 1]) do arguments[i] = ARGV[at + 1 + i] end
  found[#found + 1] = write(keys, arguments)
  key, at = key + #keys, at + 2 + #arguments
end
return found
"""
)


@dataclass(slots=True)
class _Seen:
    """The block that we last wrote to, and the topic's count of block changes then; no count is "look first"."""

    block: int
    shape: BlockShape
    name: str
    header: bytes
    count: bytes = b""


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tick as bytes: a row a series and the block that it goes into.

    ``gaps`` as the script takes them; ``count`` is the count of block changes that the sender has seen, or b"".
    """

    tick: Tick
    place: int
    blocks: Sequence[_Seen]
    rows: Sequence[bytes]
    gaps: bytes
    count: bytes


_Call = tuple[list[str], list[str | bytes | int | float]]


class RowsHot:
    """The :class:`forecaster.stores.redis_hot.HotPart` of packed rows."""

    name = "rows"

    def __init__(self, link: RedisLink, keys: RedisKeys, retention: Retention) -> None:
        self._link = link
        self._keys = keys
        self._retention = retention
        self._shapes: dict[SeriesKey, tuple[int, BlockShape]] = {}
        self._seen: dict[SeriesKey, _Seen] = {}
        self._since_s: dict[str, float] = {}

    def write(self, ticks: Sequence[Tick], now_s: float | None) -> list[Written]:
        """Write ticks, each at once."""
        done: list[Written | None] = [None] * len(ticks)
        for i in self._written_plainly(ticks, now_s):
            done[i] = _TAKEN
        todo = [i for i, one in enumerate(done) if one is None]
        while todo:
            answers = self._send([self._call(packed, now_s) for packed in self._packed([ticks[i] for i in todo])])
            again: list[int] = []
            torn: set[str] = set()
            for i, answer in zip(todo, answers, strict=True):
                tick = ticks[i]
                if tick.topic in torn:
                    again.append(i)  # in their order: of two ticks of one step the later counts
                    continue
                if isinstance(answer, list) and answer[0] in {b"look", b"shape"}:
                    torn.add(tick.topic)
                    for key in tick.columns:
                        self._seen[key].count = b""
                    try:
                        if answer[0] == b"shape":
                            self._fit(tick, list(tick.columns)[int(answer[1])], bytes(answer[2]))
                        again.append(i)
                    except StoreError as error:
                        done[i] = Written(error)
                    continue
                done[i] = self._outcome(tick, answer)
                if done[i] is _TAKEN:
                    for key in tick.columns:
                        self._seen[key].count = answer[1]
                    self._since_s[tick.topic] = float(answer[2])
            todo = again
        return [one for one in done if one is not None]

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return what the rows have of a range."""
        rows = rows_per_block(steps_per_day(key.step_s))
        blocks = range(first_index // rows, -(-end_index // rows)) if end_index > first_index else range(0)
        parts: list[Cells] = []
        for chunk in range(blocks.start, blocks.stop, _BLOCKS_AT_ONCE):
            some = range(chunk, min(chunk + _BLOCKS_AT_ONCE, blocks.stop))
            names = [self._keys.row(key, n) for n in some]
            for n, block in zip(some, self._link.call(names[0], "MGET", *names), strict=True):
                if block is not None:
                    parts.append(self._unpacked(names[n - chunk], block, n * rows))
        return join(parts, first_index, end_index)

    def days(self, keys: Sequence[SeriesKey], first_day: int, end_day: int) -> list[list[int]]:
        """Return the days of which rows exist."""
        asked = [(i, day) for i in range(len(keys)) for day in range(first_day, end_day)]
        commands = [(names[0], ("EXISTS", *names)) for names in (self.keys_of(keys[i], day) for i, day in asked)]
        found: list[list[int]] = [[] for _ in keys]
        for (i, day), answer in zip(asked, self._link.batch(commands), strict=True):
            if self._link.checked(answer):
                found[i].append(day)
        return found

    def keys_of(self, key: SeriesKey, day: int) -> list[str]:
        """Return the blocks of a day."""
        blocks = steps_per_day(key.step_s) // rows_per_block(steps_per_day(key.step_s))
        return [self._keys.row(key, n) for n in range(day * blocks, (day + 1) * blocks)]

    def backfill(self, key: SeriesKey, cells: Cells) -> None:
        """Nothing: history goes into sealed days, and rows in its way are joined into them."""

    def prune(self, key: SeriesKey, first_day: int, end_day: int) -> set[int]:
        """Drop the blocks of days."""
        days = range(first_day, end_day)
        meta = self._keys.meta(key.topic)
        dropped = [(meta, ("UNLINK", *self.keys_of(key, day))) for day in days]
        answers = self._link.batch([(meta, ("HINCRBY", meta, "blocks", 1)), *dropped])
        return {day for day, answer in zip(days, answers[1:], strict=True) if self._link.checked(answer)}

    def _send(self, calls: Sequence[_Call]) -> list[Any]:
        """Send ticks, several a script where all keys live together; an error of one is not the others'."""
        size = 1 if self._link.is_cluster else _TICKS_AT_ONCE
        found: list[Any] = []
        chunks = [calls[at : at + size] for at in range(0, len(calls), size)]
        joined = [([k for keys, _ in chunk for k in keys], _joined(chunk)) for chunk in chunks]
        for chunk, answer in zip(chunks, self._link.script(_WRITE, joined), strict=True):
            if isinstance(answer, list):
                found += answer
            elif len(chunk) == 1:
                found.append(answer)
            else:
                singly = self._link.script(_WRITE, [(keys, _joined([(keys, more)])) for keys, more in chunk])
                found += [one[0] if isinstance(one, list) else one for one in singly]
        return found

    def _packed(self, ticks: Sequence[Tick]) -> list[_Packed]:
        """Return the bytes of each tick."""
        columns = [column for tick in ticks for column in tick.columns.values()]
        laid = Columns(columns)
        seen: list[_Seen] = []
        for tick in ticks:
            rows = rows_per_block(steps_per_day(tick.step_s))
            for key, (values, _) in tick.columns.items():
                seen.append(self._place(key, tick.index // rows, rows, len(values), laid.item_bytes[len(seen)]))
        stored = laid.encoded([one.shape.item_bytes for one in seen])
        packed: list[_Packed] = []
        at = 0
        for tick in ticks:
            mine = range(at, at + len(tick.columns))
            at = mine.stop
            gaps = b"".join(
                b"+"
                if laid.whole[i] and len(columns[i][0]) == seen[i].shape.width
                else b"%d" % seen[i].shape.item_bytes
                for i in mine
            )
            counts = {seen[i].count for i in mine}
            packed.append(
                _Packed(
                    tick,
                    tick.index % rows_per_block(steps_per_day(tick.step_s)),
                    seen[mine.start : mine.stop],
                    [stored[i].ljust(seen[i].shape.row_bytes, b"\0") for i in mine],
                    gaps,
                    counts.pop() if len(counts) == 1 else b"",
                )
            )
        return packed

    def _call(self, packed: _Packed, now_s: float | None) -> _Call:
        """Return keys and arguments of a tick for the script."""
        tick = packed.tick
        arguments = tick_arguments(
            self._keys,
            self._retention,
            tick,
            now_s,
            since_s=self._since_s.get(tick.topic),
            with_fields=not packed.count,
        )
        names = [self._keys.meta(tick.topic), *(seen.name for seen in packed.blocks)]
        headers = b"" if packed.count else b"".join(seen.header for seen in packed.blocks)
        return names, [*arguments, packed.place, *packed.rows, headers, packed.gaps, packed.count]

    def _written_plainly(self, ticks: Sequence[Tick], now_s: float | None) -> list[int]:
        """Write what is next in its topic by plain commands, in one transaction; returns which ticks those were.

        What the script would look at is looked at under WATCH, so that whoever writes in between makes us look again.
        A step later than the topic's last has an empty row in every block: gaps need no merging.
        """
        if self._link.is_cluster:
            return []
        times = Counter(tick.topic for tick in ticks)
        usual = [i for i, tick in enumerate(ticks) if times[tick.topic] == 1]
        packed = [(i, one) for i, one in zip(usual, self._packed([ticks[i] for i in usual]), strict=True) if one.count]
        if not packed:
            return []
        metas = [self._keys.meta(one.tick.topic) for _, one in packed]
        taken: list[int] = []
        server_s = 0.0

        def build(answers: Sequence[Any]) -> list[Command]:
            nonlocal server_s
            server_s = float(answers[0][0])
            now = server_s if now_s is None else now_s
            commands: list[Command] = []
            for (i, one), meta, fields in zip(packed, metas, answers[1:], strict=True):
                if fields[1] != one.count or not is_next(one.tick, fields, now):
                    continue
                taken.append(i)
                for seen, row in zip(one.blocks, one.rows, strict=True):
                    commands.append(("SETRANGE", seen.name, 16 + one.place * len(row), row))
                offsets = ("offsets", dump_offsets(one.tick)) if one.tick.offsets else ()
                commands.append(("HSET", meta, "last", one.tick.index * one.tick.step_s, *offsets))
            return commands

        if not self._link.guarded(metas, [("TIME",), *(("HMGET", meta, *LOOKED_AT) for meta in metas)], build):
            return []
        for i in taken:
            self._since_s[ticks[i].topic] = server_s
        return taken

    def _place(self, key: SeriesKey, block: int, rows: int, width: int, item_bytes: int) -> _Seen:
        """Return where to write, in the shape of the block as we know it if the row fits into it."""
        seen = self._seen.get(key)
        if seen is not None and seen.block == block and _fits(width, item_bytes, seen.shape):
            return seen
        have = self._shapes.get(key)
        if have is not None and have[0] == block and _fits(width, item_bytes, have[1]):
            shape = have[1]
        else:
            shape = BlockShape(key.step_s, width, rows, 8 if key.metric in _LONG_METRICS else item_bytes)
        seen = self._seen[key] = _Seen(block, shape, self._keys.row(key, block), shape.header())
        return seen

    def _fit(self, tick: Tick, key: SeriesKey, header: bytes) -> None:
        """Learn the shape of an existing block, and rewrite it once where the row is wider or larger."""
        rows = rows_per_block(steps_per_day(tick.step_s))
        block, name = tick.index // rows, self._keys.row(key, tick.index // rows)
        values, known = tick.columns[key]
        needed = BlockShape(tick.step_s, len(values), rows, item_bytes_for(values, known))
        try:
            have = BlockShape.from_header(header)
        except ValueError as exc:
            raise StoreRefused(f"{name}: {exc}; was it written by another program?") from exc
        both = BlockShape(
            have.step_s, max(have.width, needed.width), have.rows, max(have.item_bytes, needed.item_bytes)
        )
        if both != have:
            self._link.transact([name], lambda: self._widened(self._keys.meta(tick.topic), name, both))
        self._shapes[key] = (block, both)
        self._seen[key] = _Seen(block, both, name, both.header())

    def _widened(self, meta: str, name: str, shape: BlockShape) -> list[tuple[str | bytes | int, ...]] | None:
        block = self._link.call(name, "GET", name)
        if block is None:
            return None
        cells = self._unpacked(name, block, 0)
        if cells.partitions > shape.width:
            return None  # somebody else has just made it wider still; the next try learns its shape
        return [("SET", name, pack_rows(cells, shape), "KEEPTTL"), ("HINCRBY", meta, "blocks", 1)]

    def _outcome(self, tick: Tick, answer: object) -> Written:
        try:
            found = self._link.checked(answer)
            if found[0] == b"future":
                refuse_future(tick.topic, tick.index * tick.step_s, tick.step_s, float(found[1]))
            if found[0] == b"late":
                refuse_late(tick.topic, tick.index * tick.step_s, int(found[1]), self._retention.late)
        except (SampleRejected, StoreRefused, StoreUnavailable) as error:
            return Written(error)
        return _TAKEN

    def _unpacked(self, name: str, block: bytes, first_index: int) -> Cells:
        try:
            return unpack_rows(block, first_index)
        except ValueError as exc:
            raise StoreRefused(f"{name}: {exc}; was it written by another program?") from exc


def _joined(calls: Sequence[_Call]) -> list[str | bytes | int | float]:
    return [word for keys, arguments in calls for word in (len(keys), len(arguments), *arguments)]


def _fits(width: int, item_bytes: int, shape: BlockShape) -> bool:
    return width <= shape.width and item_bytes <= shape.item_bytes


_BLOCKS_AT_ONCE = 24
_TICKS_AT_ONCE = 16
_TAKEN = Written()
_LONG_METRICS = frozenset({"end_offset", "committed"})
"""Metrics that outgrow 31 bits sooner or later: better from the start."""
