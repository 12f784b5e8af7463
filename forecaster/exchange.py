"""Recorded series out to a file and in again: Parquet, or CSV for anything that reads text.

One row a known cell: ``timestamp`` (start of the step, ISO 8601 UTC), ``metric``, ``group`` (empty where the metric is
the topic's), ``step_s``, ``partition``, ``value``. A missing row is a missing cell, never zero. Reading is strict, and
a file is read to its end before anything is written, so that a refused file changes nothing.

Hours that are older than the kept steps come last: their metric ends with ``:hourly_sum`` or ``:hourly_max``, their
timestamp is the start of the hour, and ``step_s`` is the length of the steps that they were made from.
"""

from __future__ import annotations

import difflib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import InputRefused
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.stores.entry import MOST_RECORDS, recorded_topic
from forecaster.stores.joining import day_range
from forecaster.stores.retention import FUTURE_STEPS
from forecaster.stores.rollups import HOUR_S
from forecaster.timegrid import DAY_S

COLUMNS = ("timestamp", "metric", "group", "step_s", "partition", "value")
_CHUNK_ROWS = 500_000
_MOST_PARTITIONS = 1_000_000
_SUM, _MAX = ":hourly_sum", ":hourly_max"
_HOURS_BACK = 24 * 500
"""No roll-up is kept for longer."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What went through: rows (known cells), series, and the span as numbers of days since 1970-01-01."""

    rows: int
    series: int
    first_day: int | None
    end_day: int | None


def export_series(store: SeriesStore, topic: str, file: Path) -> Exchanged:
    """Write everything recorded of a topic, step by step, to a ``.parquet``, ``.csv.gz`` or ``.csv`` file.

    The file appears whole or not at all. Hourly roll-ups are in it where their steps are kept no longer; the others are
    made again from the steps by an import.

    Raises
    ------
    InputRefused
        If the topic was never recorded, the file's name has another ending, or the file cannot be written.
    """
    meta = store.meta(topic)
    if meta is None or meta.last_index is None or meta.first_day is None:
        near = difflib.get_close_matches(topic, store.topics(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "headway ingest loads a topic, headway serve records"
        raise InputRefused(f"nothing is recorded of topic {topic!r}; {hint}")
    end_day = meta.last_index * meta.step_s // DAY_S + 1
    rows = 0
    draft = file.with_name(f"{file.name}.part")
    try:
        with _Writer(draft, _format(file)) as writer:
            for key in meta.keys:
                for day in range(meta.first_day, end_day):
                    cells = store.read(key, *day_range(day, key.step_s))
                    rows += writer.write(key, cells)
            for key in meta.keys:
                hour = meta.first_day * 24
                for ending, cells in zip((_SUM, _MAX), store.read_hourly(key, hour - _HOURS_BACK, hour), strict=True):
                    rows += writer.write(key, cells, ending)
        draft.replace(file)
    except OSError as exc:
        raise InputRefused(f"{file}: cannot be written ({exc.strerror or exc}); make room, or write elsewhere") from exc
    finally:
        draft.unlink(missing_ok=True)
    return Exchanged(rows, len(meta.keys), meta.first_day, end_day)


def import_series(store: SeriesStore, topic: str, file: Path, now: datetime | None = None) -> Exchanged:
    """Write a file of :func:`export_series` into the store as the history of a topic. Doing it again changes nothing.

    Parameters
    ----------
    store, topic
        Where it goes, under which name.
    file
        Its name ends in ``.parquet``, ``.csv.gz`` or ``.csv``.
    now
        Rows that begin later are refused before anything is written; without it the store's clock refuses them.

    Raises
    ------
    InputRefused
        If the file cannot be used (the message names file, line or row, and value), or Kafka takes no such name for a
        topic. Nothing has been written then.
    SampleRejected
        If a step lies in the future of the store's clock.
    """
    recorded_topic(topic)
    for _ in _checked(file, now):
        pass
    rows = 0
    keys: set[SeriesKey] = set()
    days: set[int] = set()
    for frame in _checked(file, now):
        rows += len(frame)
        for (metric, group, step_s), part in frame.groupby(["metric", "group", "step_s"], sort=True):
            name, _, hourly = str(metric).partition(":")
            key = SeriesKey(topic, name, str(group) or None, int(str(step_s)))
            if hourly:
                for cells in _cells(part, HOUR_S):
                    none = Cells.missing(cells.first_index, cells.partitions, cells.steps)
                    sums_and_peaks = (cells, none) if f":{hourly}" == _SUM else (none, cells)
                    store.backfill_hourly(key, *sums_and_peaks)
                keys.add(key)
                continue
            for cells in _cells(part, key.step_s):
                store.backfill(key, cells)
                days |= {cells.first_index * key.step_s // DAY_S, (cells.end_index - 1) * key.step_s // DAY_S}
            keys.add(key)
    return Exchanged(rows, len(keys), min(days, default=None), max(days, default=-1) + 1 if days else None)


class _Writer:
    """Writes cells as rows, a day at a time, so that a year fits into little memory."""

    def __init__(self, file: Path, kind: str) -> None:
        self._file, self._kind = file, kind
        self._out: Any = None

    def __enter__(self) -> _Writer:
        if self._kind == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            types = [pa.timestamp("s", "UTC"), pa.string(), pa.string(), pa.int32(), pa.int32(), pa.int64()]
            self._schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
            self._out = pq.ParquetWriter(self._file, self._schema)
        else:
            opener = gzip.open if self._kind == "csv.gz" else open
            self._out = opener(self._file, "wt", encoding="utf-8", newline="")
            self._out.write(",".join(COLUMNS) + "\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    def write(self, key: SeriesKey, cells: Cells, ending: str = "") -> int:
        """Write cells; with an ending they are hours."""
        steps, partitions = np.nonzero(cells.known.T)
        if not len(steps):
            return 0
        stamps = ((cells.first_index + steps) * (HOUR_S if ending else key.step_s)).astype("datetime64[s]")
        frame = pd.DataFrame(
            {
                "timestamp": pd.DatetimeIndex(stamps, tz="UTC"),
                "metric": key.metric + ending,
                "group": key.group or "",
                "step_s": key.step_s,
                "partition": partitions,
                "value": cells.values.T[steps, partitions],
            }
        )
        if self._kind == "parquet":
            import pyarrow as pa

            self._out.write_table(pa.Table.from_pandas(frame, self._schema, preserve_index=False))
        else:
            frame["timestamp"] = np.char.add(np.datetime_as_string(stamps), "Z")
            frame.to_csv(self._out, index=False, header=False, lineterminator="\n")
        return len(frame)


def _checked(file: Path, now: datetime | None) -> Iterator[pd.DataFrame]:
    """Yield the file in chunks of checked rows: ``start`` in seconds instead of the timestamp."""
    if not file.is_file():
        raise InputRefused(f"{file}: no such file")
    kind = _format(file)
    at = 0
    try:
        for frame in _parquet(file) if kind == "parquet" else _csv(file):
            yield _check(file, frame, at, 1 if kind == "parquet" else 2, now)
            at += len(frame)
    except (UnicodeDecodeError, EOFError, OSError, pd.errors.ParserError) as exc:
        raise InputRefused(f"{file}: damaged or cut off near row {at + 1}: {exc}") from exc


def _csv(file: Path) -> Iterator[pd.DataFrame]:
    opener = gzip.open if file.name.endswith(".gz") else open
    with opener(file, "rt", encoding="utf-8", newline="") as text:
        found = text.readline().rstrip("\r\n").split(",")
        if found != list(COLUMNS):
            raise InputRefused(f"{file}:1: the columns are {','.join(found)[:80]!r}, expected {','.join(COLUMNS)}")
        with pd.read_csv(
            text, header=None, names=list(COLUMNS), dtype=str, keep_default_na=False, chunksize=_CHUNK_ROWS
        ) as chunks:
            yield from chunks


def _parquet(file: Path) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as source:
            found = source.schema_arrow.names
            if missing := [c for c in COLUMNS if c not in found]:
                raise InputRefused(f"{file}: column {missing[0]!r} is missing; there are {', '.join(found)}")
            for batch in source.iter_batches(_CHUNK_ROWS, columns=list(COLUMNS)):
                yield batch.to_pandas()
    except pa.ArrowInvalid as exc:
        raise InputRefused(f"{file}: not a Parquet file: {exc}") from exc


def _check(file: Path, frame: pd.DataFrame, offset: int, first_line: int, now: datetime | None) -> pd.DataFrame:
    """Return rows with ``start`` in seconds and whole numbers; refuse the first row that is not right."""
    frame = frame.reset_index(drop=True)

    def refuse_where(wrong: Any, column: str, why: str) -> None:
        rows = np.flatnonzero(np.asarray(wrong, dtype=bool))
        if len(rows):
            value = frame[column].iloc[rows[0]]
            raise InputRefused(f"{file}:{offset + int(rows[0]) + first_line}: {column} {str(value)!r} {why}")

    codes, texts = pd.factorize(frame["timestamp"])
    stamps = pd.to_datetime(pd.Series(texts), format="ISO8601", utc=True, errors="coerce")
    if texts.dtype == object or pd.api.types.is_string_dtype(texts):
        zoned = pd.Series(texts).astype(str).str.contains(r"(?:Z|[+-]\d\d:?\d\d)$", regex=True)
        stamps = stamps.where(zoned)
    bad = stamps.isna().to_numpy()[codes] | (codes < 0)
    refuse_where(bad, "timestamp", "is not ISO 8601 with a zone, such as 2026-01-05T09:00:00Z")
    start_us = stamps.dt.as_unit("us").astype("int64").to_numpy()[codes]
    refuse_where(start_us < 0, "timestamp", "lies before 1970; correct the year")
    out = pd.DataFrame({"metric": frame["metric"].astype(str), "group": frame["group"].fillna("").astype(str)})
    for column, least, most, what in (
        ("step_s", 1, DAY_S, "is not a number of seconds that divides a day"),
        ("partition", 0, _MOST_PARTITIONS, "is not a partition number"),
        ("value", 0, MOST_RECORDS, "is not a whole number of 0 or more, up to 2^53"),
    ):
        numbers = _whole(frame[column])
        refuse_where(numbers.isna() | (numbers < least) | (numbers > most), column, what)
        out[column] = numbers.astype("int64")
    refuse_where(DAY_S % out["step_s"] != 0, "step_s", "is not a number of seconds that divides a day")
    refuse_where(start_us % (out["step_s"].to_numpy() * 1_000_000), "timestamp", "is not the start of a step")
    refuse_where(out["metric"] == "", "metric", "is empty")
    hourly = out["metric"].str.contains(":", regex=False)
    strange = hourly & ~out["metric"].str.fullmatch(rf"[^:]+(?:{_SUM}|{_MAX})")
    refuse_where(strange, "metric", f"is of no kind that is known; hours end with {_SUM} or {_MAX}")
    off_the_hour = hourly & (start_us % (HOUR_S * 1_000_000) != 0)
    refuse_where(off_the_hour, "timestamp", "is not the start of an hour")
    out["start"] = start_us // 1_000_000
    if now is not None:
        late = now.timestamp() + FUTURE_STEPS * out["step_s"]
        refuse_where(out["start"] > late, "timestamp", "is in the future")
    refuse_where(
        out.duplicated(["start", "metric", "group", "step_s", "partition"]), "timestamp", "repeats a row of this series"
    )
    return out


def _whole(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return whole numbers, missing where there is none."""
    if pd.api.types.is_integer_dtype(column):
        return column.astype("Int64")
    text = column.astype(str)
    plain = text.str.fullmatch(r"\d{1,18}")
    return pd.to_numeric(text.where(plain), errors="coerce").astype("Int64")


def _cells(part: pd.DataFrame, step_s: int) -> Iterator[Cells]:
    """Yield the rows of one series as cells, a run of days at a time, so that gaps of years cost nothing."""
    index = part["start"].to_numpy() // step_s
    partition, value = part["partition"].to_numpy(), part["value"].to_numpy()
    days = part["start"].to_numpy() // DAY_S
    present = np.unique(days)
    for run in np.split(present, np.flatnonzero(np.diff(present) > 1) + 1):
        mine = (days >= run[0]) & (days <= run[-1])
        first, end = int(index[mine].min()), int(index[mine].max()) + 1
        cells = Cells.missing(first, int(partition[mine].max()) + 1, end - first)
        cells.values[partition[mine], index[mine] - first] = value[mine]
        cells.known[partition[mine], index[mine] - first] = True
        yield cells


def _format(file: Path) -> str:
    for ending in ("parquet", "csv.gz", "csv"):
        if file.name.lower().endswith(f".{ending}"):
            return ending
    raise InputRefused(f"{file}: the name must end in .parquet, .csv.gz or .csv")
