"""The hash of what is known of a topic, changed together with its data.

Fields: ``last`` (start of the newest step, in seconds), ``step``, ``first`` (oldest day), ``open`` (first day that is
not sealed), ``sealing`` (first day that no seal has begun with), ``late`` (counts writes into days before that one),
``partitions``, ``id``, ``offsets`` (JSON), ``blocks`` (counts changes of blocks of rows other than by ticks), and one
``k:…`` a recorded series.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from forecaster.stores.base import Cells, SeriesKey, Tick, TopicMeta
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import RedisLink
from forecaster.stores.retention import FUTURE_STEPS, Retention
from forecaster.timegrid import DAY_S

CHECK = f"""
local meta, start, step = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local now = tonumber(ARGV[4])
if ARGV[4] == '' or start > now + {FUTURE_STEPS} * step then
  if ARGV[11] == '' then now = tonumber(redis.call('TIME')[1]) end
  if start > now + {FUTURE_STEPS} * step then return {{'future', tostring(now)}} end
end
local known = redis.call('HMGET', meta, 'last', 'open', 'partitions', 'first', 'sealing', 'step', 'id', 'blocks')
local last = tonumber(known[1])
if last and start < last - tonumber(ARGV[5]) then return {{'late', known[1]}} end
"""
"""Part of a script: refuses a tick of the future or of long ago. ARGV as :func:`tick_arguments` has it.

The server is asked for its time only where a tick leads an earlier answer of it (the sender's ``since``).
"""

NOTE = """
local day = tonumber(ARGV[3])
local set = {}
local function put(field, value) set[#set + 1] = field; set[#set + 1] = value end
if not last or start >= last then
  if known[1] ~= ARGV[1] then put('last', ARGV[1]) end
  if known[6] ~= ARGV[2] then put('step', ARGV[2]) end
  if ARGV[8] ~= '' and known[7] ~= ARGV[8] then put('id', ARGV[8]) end
  if ARGV[9] ~= '' then put('offsets', ARGV[9]) end
end
if known[5] and day < tonumber(known[5]) then redis.call('HINCRBY', meta, 'late', 1) end
if not known[2] or tonumber(known[2]) > day then put('open', ARGV[3]) end
if not known[4] or tonumber(known[4]) > day then put('first', ARGV[3]) end
if not known[3] or tonumber(known[3]) < tonumber(ARGV[6]) then put('partitions', ARGV[6]) end
for i = 12, 11 + tonumber(ARGV[10]) do
  if redis.call('HEXISTS', meta, ARGV[i]) == 0 then put(ARGV[i], '') end
end
if #set > 0 then redis.call('HSET', meta, unpack(set)) end
"""
"""Part of a script, behind CHECK: notes the tick in the meta hash."""

_NOTE_HISTORY = """
local known = redis.call('HMGET', KEYS[1], 'last', 'first', 'partitions')
local set = {ARGV[6], ''}
local function put(field, value) set[#set + 1] = field; set[#set + 1] = value end
if not known[1] or tonumber(known[1]) < tonumber(ARGV[1]) then put('last', ARGV[1]); put('step', ARGV[2]) end
if not known[2] or tonumber(known[2]) > tonumber(ARGV[3]) then put('first', ARGV[3]) end
if not known[3] or tonumber(known[3]) < tonumber(ARGV[4]) then put('partitions', ARGV[4]) end
if ARGV[5] ~= '' then put('id', ARGV[5]) end
redis.call('HSET', KEYS[1], unpack(set))
"""

_SEALING = """
local begun = tonumber(redis.call('HGET', KEYS[1], 'sealing'))
if redis.call('EXISTS', KEYS[1]) == 1 and (not begun or begun < tonumber(ARGV[1])) then
  redis.call('HSET', KEYS[1], 'sealing', ARGV[1])
end
"""

_SEALED = """
local known = redis.call('HMGET', KEYS[1], 'late', 'open')
if (known[1] or '') ~= ARGV[1] or not known[2] then return 0 end
redis.call('HSET', KEYS[1], 'open', ARGV[2])
return 1
"""


@dataclass(frozen=True, slots=True)
class RedisMeta:
    """What the hash of a topic says.

    Parameters
    ----------
    last_s, first_day, open_day
        Start of the newest step in seconds; oldest day; first day that is not sealed, None if no tick ever came.
    late
        Changes with every write into a day that a seal has begun with.
    """

    topic: str
    last_s: int
    step_s: int
    first_day: int
    open_day: int | None
    late: str
    partitions: int
    topic_id: str | None
    offsets: dict[str, str]
    keys: tuple[SeriesKey, ...]

    def public(self) -> TopicMeta:
        """Return what the port shows of it."""
        return TopicMeta(
            topic=self.topic,
            topic_id=self.topic_id,
            partitions=self.partitions,
            step_s=self.step_s,
            last_index=self.last_s // self.step_s,
            sealed_to_day=self.last_s // DAY_S + 1 if self.open_day is None else self.open_day,
            keys=self.keys,
            offsets=self.offsets,
            first_day=self.first_day,
        )


def read_meta(link: RedisLink, keys: RedisKeys, topic: str) -> RedisMeta | None:
    """Return what is known of a topic, or None."""
    name = keys.meta(topic)
    found = {k.decode(): v.decode() for k, v in link.call(name, "HGETALL", name).items()}
    if "last" not in found:
        return None
    return RedisMeta(
        topic=topic,
        last_s=int(found["last"]),
        step_s=int(found["step"]),
        first_day=int(found["first"]),
        open_day=int(found["open"]) if "open" in found else None,
        late=found.get("late", ""),
        partitions=int(found["partitions"]),
        topic_id=found.get("id"),
        offsets=json.loads(found.get("offsets", "{}")),
        keys=tuple(sorted((keys.series(topic, f) for f in found if f.startswith("k:")), key=SeriesKey.sort_key)),
    )


def tick_arguments(
    keys: RedisKeys,
    retention: Retention,
    tick: Tick,
    now_s: float | None,
    *,
    since_s: float | None = None,
    with_fields: bool = True,
) -> list[str | bytes | int | float]:
    """Return the arguments that CHECK and NOTE take; those of the data follow them.

    ``now_s`` is taken for now, or None asks the server; ``since_s`` is a time that the server's clock has passed.
    ``with_fields`` false leaves out the names of the series, where the meta hash is known to have them.
    """
    fields = [keys.field(key) for key in tick.columns] if with_fields else []
    return [
        tick.index * tick.step_s,
        tick.step_s,
        tick.index * tick.step_s // DAY_S,
        next((at for at in (now_s, since_s) if at is not None), ""),
        int(retention.late.total_seconds()),
        max((len(values) for values, _ in tick.columns.values()), default=0),
        int(retention.steps.total_seconds()) + DAY_S,
        tick.topic_id or "",
        dump_offsets(tick) if tick.offsets else "",
        len(fields),
        "" if now_s is None else "given",
        *fields,
    ]


LOOKED_AT = ("last", "blocks", "sealing", "partitions", "step", "id")
"""Fields that :func:`is_next` is told."""


def is_next(tick: Tick, fields: Sequence[bytes | None], now_s: float) -> bool:
    """Whether CHECK and NOTE would take a tick and put nothing into the meta hash but ``last`` and ``offsets``.

    Parameters
    ----------
    tick
        Newer than everything there, if it is.
    fields
        What :data:`LOOKED_AT` has just said; a topic that only a backfill made has no ``blocks``.
    now_s
        The server's time, or what is taken for it.
    """
    last, blocks, sealing, partitions, step, topic_id = fields
    if last is None or blocks is None or partitions is None:
        return False
    start_s = tick.index * tick.step_s
    return (
        int(last) < start_s <= now_s + FUTURE_STEPS * tick.step_s
        and (sealing is None or start_s // DAY_S >= int(sealing))
        and int(partitions) >= max((len(values) for values, _ in tick.columns.values()), default=0)
        and step == str(tick.step_s).encode()
        and (tick.topic_id is None or topic_id == tick.topic_id.encode())
    )


def dump_offsets(tick: Tick) -> str:
    """Return what is kept beside a tick, as the field ``offsets`` has it."""
    return json.dumps(dict(tick.offsets), separators=(",", ":"))


def note_history(link: RedisLink, keys: RedisKeys, key: SeriesKey, cells: Cells, topic_id: str | None) -> None:
    """Note in the meta hash what a backfill wrote."""
    last_s, first_day = (cells.end_index - 1) * key.step_s, cells.first_index * key.step_s // DAY_S
    arguments = [last_s, key.step_s, first_day, cells.partitions, topic_id or "", keys.field(key)]
    (answer,) = link.script(_NOTE_HISTORY, [([keys.meta(key.topic)], arguments)])
    link.checked(answer)


def note_sealing(link: RedisLink, keys: RedisKeys, topic: str, end_day: int) -> None:
    """Note, before anything is read, that the days before ``end_day`` are about to be sealed."""
    (answer,) = link.script(_SEALING, [([keys.meta(topic)], [end_day])])
    link.checked(answer)


def note_sealed(link: RedisLink, keys: RedisKeys, meta: RedisMeta, end_day: int) -> bool:
    """Note that all days before ``end_day`` are sealed, unless one was written into since ``meta`` was read."""
    (answer,) = link.script(_SEALED, [([keys.meta(meta.topic)], [meta.late, end_day])])
    return bool(link.checked(answer))
