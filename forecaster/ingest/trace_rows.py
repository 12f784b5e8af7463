"""Rows of a trace file, read strictly: what can be meant in two ways is refused with its line number."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import InputRefused
from forecaster.stores.entry import MOST_RECORDS
from forecaster.timegrid import DAY_S, TimeGrid

HEADER = ["timestamp", "series", "value"]
_CHANGED_STEP_ROWS = 8
"""So many equal wider intervals in a row are another step, not gaps that happen to be alike."""
_LAST_YEAR = 9000
"""Room for whoever counts steps ahead of a row: dates end with the year 9999."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class TraceRows:
    """What a file holds, row by row: step number, value, line, and position of its series in ``names``.

    A value is NaN where the row says that it is not known.
    """

    names: list[str]
    grid: TimeGrid
    index: NDArray[np.int64]
    values: NDArray[np.float64]
    lines: NDArray[np.int64]
    owners: NDArray[np.int64]

    def span(self) -> tuple[int, int]:
        """Return the first step and how many there are from first to last."""
        first = int(self.index.min())
        return first, int(self.index.max()) - first + 1

    def extent(self) -> str:
        """Say from when (line) to when (line) the rows reach."""
        early, late = int(self.index.argmin()), int(self.index.argmax())
        start, end = (_iso(int(self.index[i]) * self.grid.step_s) for i in (early, late))
        return f"from {start} (line {self.lines[early]}) to {end} (line {self.lines[late]})"


def read_rows(
    place: Path, only: str | None, whole: bool, round_: bool, timezone: str, missing: float | None = None
) -> TraceRows:
    """Read the rows of one file; ``only`` one series, ``whole`` records alone, rounded half up with ``round_``.

    A row whose value is ``missing`` is not known.

    Raises
    ------
    InputRefused
        For everything that :func:`forecaster.ingest.trace.read_trace` refuses.
    """
    owner: dict[str, int] = {}
    last: list[tuple[int, int]] = []  # seconds and line of the latest row of each series
    seconds, values, lines, owners = array("q"), array("d"), array("q"), array("q")
    others: dict[str, None] = {}
    for line, fields in _fields(place):
        if len(fields) != 3:
            raise InputRefused(f"{place}:{line}: {','.join(fields)!r} is not a row of timestamp,series,value")
        stamp, name, text = fields
        if only is not None and name != only:
            others.setdefault(name)
            continue
        at = _seconds(place, line, stamp)
        values.append(_value(place, line, text, whole, missing))
        who = owner.get(name)
        if who is None:
            if not name.strip():
                raise InputRefused(f"{place}:{line}: the series has no name; write one in the second column")
            who = owner[name] = len(owner)
            last.append((at, line))
        else:
            before, before_line = last[who]
            if at == before:
                raise InputRefused(
                    f"{place}:{line}: {stamp} of series {name} was already given in line {before_line}; keep one row"
                )
            if at < before:
                raise InputRefused(
                    f"{place}:{line}: {stamp} of series {name} goes back behind line {before_line} "
                    f"({_iso(before)}); sort by series, then time"
                )
            last[who] = (at, line)
        seconds.append(at)
        lines.append(line)
        owners.append(who)
    if not seconds and others and only is not None:
        near = difflib.get_close_matches(only, others, 3, 0.3) or list(others)[:3]
        raise InputRefused(f"{place}: no series {only!r}; there are {len(others)}, such as {', '.join(near)}")
    if not seconds:
        raise InputRefused(f"{place}: no rows below the header; nothing to read")

    at_s, line_no, who_no = np.array(seconds), np.array(lines), np.array(owners)
    step_s = _step(place, at_s, line_no, who_no)
    try:
        grid = TimeGrid(step_s, timezone)
    except ValueError as exc:
        raise InputRefused(f"{place}: {exc}") from exc
    late = at_s % step_s
    if late.any():
        first = int(np.flatnonzero(late)[0])
        raise InputRefused(
            f"{place}:{lines[first]}: {_iso(seconds[first])} is {late[first]} s past the start of a {step_s} s step "
            f"(steps are counted from midnight UTC); sum the records into aligned steps"
        )
    records = np.array(values)
    if np.isnan(records).all():
        raise InputRefused(f"{place}: every row holds {missing:g}, which --missing says is not known; nothing to read")
    if round_:
        records = np.floor(records + 0.5)
    return TraceRows(list(owner), grid, at_s // step_s, records, line_no, who_no)


def _fields(place: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row below the header; blank lines at the end are no rows."""
    line = 1
    try:
        with place.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with (
            gzip.open(place, "rb") if packed else place.open("rb") as opened,
            io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as text,
        ):
            reader = csv.reader(text, strict=True)
            header = next(reader, None)
            if header is None:
                raise InputRefused(f"{place}: the file is empty; the first line must be {','.join(HEADER)}")
            if header != HEADER:
                raise InputRefused(f"{place}:1: the header is {','.join(header)!r}, not {','.join(HEADER)}")
            blank = 0
            for fields in reader:
                line = reader.line_num
                if not fields:
                    blank = blank or line
                    continue
                if blank:
                    raise InputRefused(f"{place}:{blank}: a blank line between rows; remove it")
                yield line, fields
    except OSError as exc:
        what = exc.strerror or str(exc)
        raise InputRefused(f"{place}: cannot be read ({what}); check the path") from exc
    except (EOFError, zlib.error) as exc:
        raise InputRefused(f"{place}: the gzip file ends or breaks after line {line}; copy it again") from exc
    except UnicodeDecodeError as exc:
        raise InputRefused(f"{place}: not UTF-8 text after line {line}; save it as UTF-8 CSV") from exc
    except csv.Error as exc:
        raise InputRefused(f"{place}:{line + 1}: not CSV ({exc})") from exc


def _seconds(place: Path, line: int, stamp: str) -> int:
    try:
        at = datetime.fromisoformat(stamp.strip())
    except ValueError:
        raise InputRefused(
            f"{place}:{line}: {stamp!r} is no ISO 8601 time; write it like 2026-01-05T09:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise InputRefused(f"{place}:{line}: {stamp} has no zone; write it like {stamp}Z or with an offset")
    since = at - _EPOCH
    if since.days < 0:
        raise InputRefused(f"{place}:{line}: {stamp} lies before 1970; correct the year")
    if at.year > _LAST_YEAR:
        raise InputRefused(f"{place}:{line}: {stamp} lies behind the year {_LAST_YEAR}; correct the year")
    if since.microseconds:
        raise InputRefused(f"{place}:{line}: {stamp} is not a whole second; a step is whole seconds long")
    return since.days * DAY_S + since.seconds


def _value(place: Path, line: int, text: str, whole: bool, missing: float | None) -> float:
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        value = float(text)
    except ValueError:
        raise InputRefused(f"{place}:{line}: {text!r} is no number; leave the row out where nothing is known") from None
    if missing is not None and (value == missing or (math.isnan(value) and math.isnan(missing))):
        return math.nan
    if not math.isfinite(value) or value < 0:
        what = "negative" if value < 0 else "not finite"
        remedy = f"leave the row out where nothing is known, or say --missing={text.strip()}"
        raise InputRefused(f"{place}:{line}: {text} is {what}; {remedy}")
    if value > MOST_RECORDS:
        raise InputRefused(
            f"{place}:{line}: {text} is more than {MOST_RECORDS}, beyond which counting is not exact; check the unit"
        )
    if whole and not value.is_integer():
        raise InputRefused(f"{place}:{line}: {text} is not a whole number of records; --round accepts decimals")
    return value


def _step(place: Path, seconds: NDArray[np.int64], lines: NDArray[np.int64], owners: NDArray[np.int64]) -> int:
    """Infer the one step of all series: the commonest interval, of which every other must be a multiple."""
    order = np.argsort(owners, kind="stable")
    at, line, who = seconds[order], lines[order], owners[order]
    same = np.diff(who) == 0
    gaps, line = np.diff(at)[same], line[1:][same]
    if not gaps.size:
        raise InputRefused(f"{place}: no series has two rows, so there is no step; give at least two rows of a series")
    kinds, how_often = np.unique(gaps, return_counts=True)
    step = int(kinds[how_often.argmax()])
    odd = np.flatnonzero(gaps % step)
    if odd.size:
        raise InputRefused(
            f"{place}:{line[odd[0]]}: {gaps[odd[0]]} s after the row before it, where most rows are {step} s apart; "
            f"a trace has one step"
        )
    wide = np.flatnonzero((gaps[1:] == gaps[:-1]) & (gaps[1:] > step))
    run = np.flatnonzero(
        wide[_CHANGED_STEP_ROWS - 2 :] - wide[: len(wide) - _CHANGED_STEP_ROWS + 2] == _CHANGED_STEP_ROWS - 2
    )
    if run.size:
        begin = wide[run[0]]
        raise InputRefused(
            f"{place}:{line[begin]}: from here on rows are {gaps[begin]} s apart, elsewhere {step} s; a trace has one "
            f"step: sum the finer part, or write the rows between as zeros if nothing arrived in them"
        )
    return step


def _iso(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
