"""The newest days as packed rows, on core commands alone: any Redis from 6.2 on, Valkey, and their managed kin.

One string holds up to 120 steps of one series of one topic; one tick writes one row of it. A script writes all rows of
a topic's tick and its meta hash at once, refuses ticks of the future and of long ago by the server's own clock, and
refuses to write into a block of another shape, so that two recorders with different ideas of a topic cannot tear it.
"""

from __future__ import annotations

from collections.abc import Sequence

from forecaster.errors import SampleRejected, StoreRefused, StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.joining import join
from forecaster.stores.packing import (
    HEADER_BYTES,
    BlockShape,
    encode,
    item_bytes_for,
    pack_rows,
    rows_per_block,
    unpack_rows,
)
from forecaster.stores.redis_hot import Written
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import RedisLink
from forecaster.stores.redis_meta import CHECK, NOTE, tick_arguments
from forecaster.stores.retention import Retention, refuse_future, refuse_late, steps_per_day

# KEYS: meta, then the block of each series. ARGV: what CHECK and NOTE take, then four a series: header, length of the
# whole block, place of the row, the row ("+" before a row without gaps). Answers OK, or why nothing was written.
_WRITE = (
    CHECK
    + """
local base = #ARGV - 4 * (#KEYS - 1)
local shapes = {}
for i = 2, #KEYS do
  local at = base + 4 * (i - 2)
  local shape = redis.call('GETRANGE', KEYS[i], 0, 15)
  if shape ~= '' and shape ~= ARGV[at + 1] then return {'shape', i - 2, shape} end
  shapes[i] = shape
end
for i = 2, #KEYS do
  local at = base + 4 * (i - 2)
  local place, row = tonumber(ARGV[at + 3]), string.sub(ARGV[at + 4], 2)
  if shapes[i] == '' then
    redis.call('SETRANGE', KEYS[i], tonumber(ARGV[at + 2]) - 1, '\\0')
    redis.call('SETRANGE', KEYS[i], 0, ARGV[at + 1])
    redis.call('EXPIRE', KEYS[i], ARGV[7])
  elseif string.sub(ARGV[at + 4], 1, 1) ~= '+' then
    local old = redis.call('GETRANGE', KEYS[i], place, place + #row - 1)
    local none = string.rep('\\0', #row)
    if old ~= none then
      local size = string.byte(ARGV[at + 1], 4)
      local gap, cells = string.rep('\\0', size), {}
      for p = 1, #row, size do
        local cell = string.sub(row, p, p + size - 1)
        if cell == gap then cell = string.sub(old, p, p + size - 1) end
        cells[#cells + 1] = cell
      end
      row = table.concat(cells)
    end
  end
  redis.call('SETRANGE', KEYS[i], place, row)
end
"""
    + NOTE
    + """
return {'ok'}
"""
)


class RowsHot:
    """The :class:`forecaster.stores.redis_hot.HotPart` of packed rows."""

    name = "rows"

    def __init__(self, link: RedisLink, keys: RedisKeys, retention: Retention) -> None:
        self._link = link
        self._keys = keys
        self._retention = retention
        self._shapes: dict[SeriesKey, tuple[int, BlockShape]] = {}

    def write(self, ticks: Sequence[Tick], now_s: float | None) -> list[Written]:
        """Write ticks, each at once."""
        done: list[Written | None] = [None] * len(ticks)
        todo = list(range(len(ticks)))
        while todo:
            answers = self._link.script(_WRITE, [self._call(ticks[i], now_s) for i in todo])
            again: list[int] = []
            torn: set[str] = set()
            for i, answer in zip(todo, answers, strict=True):
                tick = ticks[i]
                if tick.topic in torn:
                    again.append(i)  # in their order: of two ticks of one step the later counts
                    continue
                if isinstance(answer, list) and answer[0] == b"shape":
                    torn.add(tick.topic)
                    again.append(i)
                    self._fit(tick, list(tick.columns)[int(answer[1])], bytes(answer[2]))
                    continue
                done[i] = self._outcome(tick, answer)
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
        dropped = [(names[0], ("UNLINK", *names)) for names in (self.keys_of(key, day) for day in days)]
        answers = self._link.batch(dropped)
        return {day for day, answer in zip(days, answers, strict=True) if self._link.checked(answer)}

    def _call(self, tick: Tick, now_s: float | None) -> tuple[list[str], list[str | bytes | int | float]]:
        rows = rows_per_block(steps_per_day(tick.step_s))
        block, row = divmod(tick.index, rows)
        names = [self._keys.meta(tick.topic)]
        arguments = tick_arguments(self._keys, self._retention, tick, now_s)
        for key, (values, known) in tick.columns.items():
            shape = self._shape(key, block, BlockShape(tick.step_s, len(values), rows, item_bytes_for(values, known)))
            raw = encode(values, known, shape.item_bytes).tobytes()
            whole = known.all() and len(values) == shape.width
            names.append(self._keys.row(key, block))
            arguments += [
                shape.header(),
                shape.total_bytes,
                HEADER_BYTES + row * shape.row_bytes,
                (b"+" if whole else b"-") + raw.ljust(shape.row_bytes, b"\0"),
            ]
        return names, arguments

    def _shape(self, key: SeriesKey, block: int, needed: BlockShape) -> BlockShape:
        """Return the shape to write with: that of the block as we know it, where the row fits into it."""
        if key.metric in _LONG_METRICS:
            needed = BlockShape(needed.step_s, needed.width, needed.rows, 8)
        have = self._shapes.get(key)
        if have is not None and have[0] == block and _fits(needed, have[1]):
            return have[1]
        return needed

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
            self._link.transact([name], lambda: self._widened(name, both))
        self._shapes[key] = (block, both)

    def _widened(self, name: str, shape: BlockShape) -> list[tuple[str | bytes, ...]] | None:
        block = self._link.call(name, "GET", name)
        if block is None:
            return None
        cells = self._unpacked(name, block, 0)
        if cells.partitions > shape.width:
            return None  # somebody else has just made it wider still; the next try learns its shape
        return [("SET", name, pack_rows(cells, shape), "KEEPTTL")]

    def _outcome(self, tick: Tick, answer: object) -> Written:
        try:
            found = self._link.checked(answer)
            if found[0] == b"future":
                refuse_future(tick.topic, tick.index * tick.step_s, tick.step_s, float(found[1]))
            if found[0] == b"late":
                refuse_late(tick.topic, tick.index * tick.step_s, int(found[1]), self._retention.late)
        except (SampleRejected, StoreRefused, StoreUnavailable) as error:
            return Written(error)
        return Written()

    def _unpacked(self, name: str, block: bytes, first_index: int) -> Cells:
        try:
            return unpack_rows(block, first_index)
        except ValueError as exc:
            raise StoreRefused(f"{name}: {exc}; was it written by another program?") from exc


def _fits(needed: BlockShape, have: BlockShape) -> bool:
    return needed.width <= have.width and needed.item_bytes <= have.item_bytes


_BLOCKS_AT_ONCE = 24
_LONG_METRICS = frozenset({"end_offset", "committed"})
"""Metrics that outgrow 31 bits sooner or later: better from the start."""
