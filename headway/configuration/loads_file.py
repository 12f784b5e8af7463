"""Loads of partitions as a CSV file: ``row,partition,load``, and assignments as ``row,partition,consumer``."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.errors import HeadwayError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class LoadsFile:
    """Loads, one row after the other.

    Parameters
    ----------
    rows
        Names of the rows, in the order of the file.
    partitions
        Names of the partitions; numbers in the order of their size.
    loads
        Shape (rows, partitions), records/s; NaN where the file says nothing.
    """

    rows: tuple[str, ...]
    partitions: tuple[str, ...]
    loads: NDArray[np.float64]


def read_loads(path: Path) -> LoadsFile:
    """Read a loads file; gzip or plain.

    Raises
    ------
    HeadwayError
        With file, line and value, if a column is missing, a load is no finite number or negative, a row names a
        partition twice, a row goes on after another one has begun, or there is nothing.
    """
    import numpy as np

    cells: dict[str, dict[str, float]] = {}
    last = None
    for line, row, partition, text in _lines(path, ("row", "partition", "load")):
        where = f"{path} line {line}"
        if row != last and row in cells:
            raise HeadwayError(f"{where}: row {row} goes on after row {last}; keep the lines of a row together")
        last = row
        try:
            load = float(text)
        except ValueError:
            raise HeadwayError(f"{where}: load {text!r} is not a number") from None
        if not math.isfinite(load) or load < 0:
            raise HeadwayError(f"{where}: load {text} must be finite and not negative")
        if partition in cells.setdefault(row, {}):
            raise HeadwayError(f"{where}: row {row} names partition {partition} twice")
        cells[row][partition] = load
    if not cells:
        raise HeadwayError(f"{path} holds no loads; its lines are row,partition,load")
    partitions = tuple(sorted({p for row in cells.values() for p in row}, key=_by_number))
    index = {p: at for at, p in enumerate(partitions)}
    loads = np.full((len(cells), len(partitions)), np.nan)
    for at, named in enumerate(cells.values()):
        for partition, load in named.items():
            loads[at, index[partition]] = load
    return LoadsFile(tuple(cells), partitions, loads)


def read_owners(path: Path, partitions: Sequence[str]) -> tuple[NDArray[np.intp], list[str]]:
    """Read who owns what: ``partition,consumer`` (a ``row`` column may be there; the last row counts).

    Returns
    -------
    owner
        Shape (partitions,), index into the names; -1 where the file says nothing.
    names
        Consumers, numbers in the order of their size.

    Raises
    ------
    HeadwayError
        With file, line and value, if a column is missing, a name is empty, or a partition is named twice in a row.
    """
    import numpy as np

    found: dict[str, str] = {}
    last: str | None = None
    for line, row, partition, consumer in _lines(path, ("row", "partition", "consumer"), optional=("row",)):
        if row != last:
            found, last = {}, row
        if not consumer:
            raise HeadwayError(f"{path} line {line}: the consumer of partition {partition} has no name")
        if partition in found:
            raise HeadwayError(f"{path} line {line}: partition {partition} is owned by {found[partition]} already")
        found[partition] = consumer
    names = sorted(set(found.values()), key=_by_number)
    index = {name: at for at, name in enumerate(names)}
    return np.array([index.get(found.get(p, ""), -1) for p in partitions], dtype=np.intp), names


def write_assignments(path: Path, file: LoadsFile, owner: NDArray[np.intp], names: Sequence[str]) -> None:
    """Write ``row,partition,consumer``; the file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("row", "partition", "consumer"))
        for row, owners in zip(file.rows, owner.tolist(), strict=True):
            writer.writerows((row, p, names[m]) for p, m in zip(file.partitions, owners, strict=True) if m >= 0)
    part.replace(path)


def consumer_names(known: Sequence[str], count: int) -> list[str]:
    """Name consumers: those that are known, then the lowest free numbers.

    Examples
    --------
    >>> consumer_names(["a", "1"], 4)
    ['a', '1', '0', '2']
    """
    taken, names, number = set(known), list(known), 0
    while len(names) < count:
        if str(number) not in taken:
            names.append(str(number))
        number += 1
    return names


def _lines(
    path: Path, columns: tuple[str, str, str], optional: Iterable[str] = ()
) -> Iterator[tuple[int, str, str, str]]:
    with _open(path) as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if header is None:
            raise HeadwayError(f"{path} is empty; its first line is {','.join(columns)}")
        names = [h.strip() for h in header]
        missing = [c for c in columns if c not in names and c not in optional]
        if missing:
            raise HeadwayError(f"{path} line 1: column {missing[0]} is missing; the header is {','.join(columns)}")
        at = [names.index(c) if c in names else None for c in columns]
        for line, cells in enumerate(reader, start=2):
            if not cells:
                continue
            if len(cells) != len(names):
                raise HeadwayError(f"{path} line {line}: {len(cells)} values under {len(names)} columns")
            first, second, third = ("" if i is None else cells[i].strip() for i in at)
            yield line, first, second, third


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    # The mark with which some spreadsheets begin a file is no part of the first column's name.
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
            yield file
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, csv.Error) as error:
        raise HeadwayError(f"{path} is not a CSV file: {error}") from error


def _by_number(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
