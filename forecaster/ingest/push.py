"""Arrivals that somebody sends us: rows of (start, partition, count), checked as a whole and then written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from forecaster.errors import InputRefused
from forecaster.stores.base import Cells, SeriesKey, SeriesStore, Tick
from forecaster.stores.entry import MOST_RECORDS, recorded_topic
from forecaster.timegrid import TimeGrid

MAX_PARTITION = 100_000
"""No topic has a partition of this number; a typing mistake must not make an array of that size."""
_TICKS_AT_ONCE = 128
"""More steps than this in one push are history: written as one backfill."""
MAX_CELLS = 50_000_000
"""Partitions × steps from the oldest row on; two rows of different centuries must not make an array of that size."""


@dataclass(frozen=True, slots=True)
class PushedRow:
    """``count`` records arrived in ``partition`` in the step that begins at ``start``."""

    start: datetime
    partition: int
    count: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push wrote; once it is returned, it is in the store."""

    rows: int
    steps: int
    partitions: int


def push(
    store: SeriesStore, topic: str, step_s: int, rows: Sequence[PushedRow], now: datetime, late: timedelta | None = None
) -> Pushed:
    """Write pushed arrivals: all of them, or none if one cannot be meant. Sending a push again changes nothing.

    Parameters
    ----------
    store
        Where they go.
    topic
        Name of the topic, made by its first push.
    step_s
        Length of a step in seconds; the same as before for a topic that is there.
    rows
        In any order. What is not mentioned stays as it was.
    now
        Aware UTC; a step must have begun.
    late
        Rows older than the topic's newest step by more than this are history (a backfill); 6 h by default.

    Raises
    ------
    InputRefused
        If a row cannot be meant (the message names its position and value), or Kafka takes no such name for a topic.
    StoreError
        If the store did not take it; nothing is remembered here, so that no row is acknowledged without being kept.
    """
    try:
        grid = TimeGrid(step_s)
    except ValueError as exc:
        raise InputRefused(f"{topic}: {exc}") from exc
    recorded_topic(topic)
    if not rows:
        raise InputRefused(f"{topic}: rows is empty; send at least one")
    meta = store.meta(topic)
    if meta is not None and meta.step_s != step_s:
        raise InputRefused(f"{topic} is recorded in steps of {meta.step_s} s, not {step_s} s")
    cells = _checked(topic, grid, rows, now)

    count = max(p for _, p in cells) + 1
    if meta is not None:
        count = max(count, meta.partitions)
    key = SeriesKey(topic, "arrivals", None, step_s)
    indices = sorted({index for index, _ in cells})
    newest = max(indices[-1], meta.last_index if meta and meta.last_index is not None else indices[-1])
    oldest_tick = newest - int((late or timedelta(hours=6)) / grid.step)
    recent = [i for i in indices if i >= oldest_tick][-_TICKS_AT_ONCE:]
    history = indices[: len(indices) - len(recent)]
    spanned = count * max(history[-1] - history[0] + 1 if history else 0, len(recent))
    if spanned > MAX_CELLS:
        raise InputRefused(f"{topic}: rows span {spanned} cells of {count} partitions; send fewer steps at a time")
    if history:
        first = history[0]
        old = Cells(
            first,
            np.zeros((count, history[-1] - first + 1), dtype=np.int64),
            np.zeros((count, history[-1] - first + 1), dtype=np.bool_),
        )
        for (index, partition), value in cells.items():
            if index <= history[-1]:
                old.values[partition, index - first] = value
                old.known[partition, index - first] = True
        store.backfill(key, old)
    ticks = []
    for index in recent:
        values, known = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
        for partition in range(count):
            if (index, partition) in cells:
                values[partition], known[partition] = cells[index, partition], True
        kept = {} if meta is None else meta.offsets
        ticks.append(Tick(topic, step_s, index, {key: (values, known)}, meta.topic_id if meta else None, kept))
    store.append(ticks)
    return Pushed(len(cells), len(indices), len({p for _, p in cells}))


def _checked(topic: str, grid: TimeGrid, rows: Sequence[PushedRow], now: datetime) -> dict[tuple[int, int], int]:
    cells: dict[tuple[int, int], int] = {}
    for i, row in enumerate(rows):
        place = f"{topic}: rows[{i}]"
        if row.start.tzinfo is None:
            raise InputRefused(
                f"{place}: start {row.start.isoformat()} has no zone; write it like 2026-01-05T09:00:00Z"
            )
        index = grid.index_of(row.start)
        start = row.start.astimezone(UTC)
        if grid.start_of(index) != start:
            raise InputRefused(
                f"{place}: start {start.isoformat()} is not the start of a {grid.step_s} s step; "
                f"the nearest is {grid.start_of(index).isoformat()}"
            )
        if index < 0:
            raise InputRefused(f"{place}: start {start.isoformat()} lies before 1970, where no record of Kafka is from")
        if start > now:
            raise InputRefused(f"{place}: start {start.isoformat()} is in the future (now {now.isoformat()})")
        if not 0 <= row.partition < MAX_PARTITION:
            raise InputRefused(f"{place}: partition {row.partition} is not within 0 … {MAX_PARTITION - 1}")
        if row.count < 0:
            raise InputRefused(f"{place}: count {row.count} is negative; leave out what is not known")
        if row.count > MOST_RECORDS:
            raise InputRefused(f"{place}: count {row.count} is more than {MOST_RECORDS}; check the unit")
        if (index, row.partition) in cells:
            raise InputRefused(f"{place}: {start.isoformat()} of partition {row.partition} is given twice")
        cells[index, row.partition] = row.count
    return cells
