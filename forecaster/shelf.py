"""Where histories lie between forecasts: a file a topic, so that memory does not grow with what is recorded.

Eight weeks of 64 partitions at one-minute steps are 5 million cells: 46 MB as :class:`ArrivalSeries`, 21 MB in a file.
The files have no name: they end with the process, whatever ends it, and nobody else can write them.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

_WIDTH = 4
_ROOM = 1.02
"""Columns made for each that is there: a day of eight weeks; then the file is made anew."""


@dataclass(slots=True, weakref_slot=True)
class _Slot:
    """A topic's file: shape (partitions, columns), single precision, NaN where nothing is known."""

    file: int
    """Its descriptor, closed when nobody has the slot."""
    grid: TimeGrid
    partitions: tuple[int, ...]
    columns: int
    first_index: int
    end_index: int

    def write(self, row: int, at: int, cells: NDArray[np.float32]) -> None:
        """Write cells of a row from a column on; raises OSError if the file does not take them."""
        if os.pwrite(self.file, cells.tobytes(), _WIDTH * (row * self.columns + at)) != cells.nbytes:
            raise OSError("a history's file took a part only; the disk is full")

    def read(self, row: int, at: int, count: int) -> NDArray[np.float32]:
        """Return cells of a row; raises OSError if the file does not give them."""
        found = os.pread(self.file, _WIDTH * count, _WIDTH * (row * self.columns + at))
        if len(found) != _WIDTH * count:
            raise OSError(f"a history's file ended after {len(found)} of {_WIDTH * count} bytes")
        return np.frombuffer(found, dtype=np.float32)


class Shelf:
    """Keeps one history a topic.

    Parameters
    ----------
    folder
        Where files may be made; None keeps histories in memory. So does a folder that refuses, for that history.

    Notes
    -----
    Files hold single precision: counts beyond 16.7 million records a step are rounded to seven digits.

    Examples
    --------
    >>> shelf = Shelf()
    >>> shelf.put(ArrivalSeries("orders", TimeGrid(60), 5, (0,), np.array([[7.0]]), np.array([[True]])))
    >>> shelf.extend(ArrivalSeries("orders", TimeGrid(60), 6, (0,), np.array([[8.0]]), np.array([[True]])))
    >>> shelf.take("orders").counts.tolist()
    [[7.0, 8.0]]
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: dict[str, ArrivalSeries | _Slot] = {}

    def span(self, topic: str) -> tuple[int, int]:
        """Return a kept history's first step and the step after its last."""
        kept = self._kept[topic]
        return kept.first_index, kept.end_index

    def put(self, history: ArrivalSeries) -> None:
        """Keep a history in place of the topic's earlier one."""
        self.drop(history.topic)
        self._kept[history.topic] = self._filed(history) or _copied(history)

    def extend(self, later: ArrivalSeries) -> None:
        """Go on from ``later``'s first step with it; it begins within or at the end of what is kept.

        Raises
        ------
        OSError
            If the topic's file fails; then put a whole history.
        """
        kept = self._kept[later.topic]
        if isinstance(kept, ArrivalSeries):
            self._kept[later.topic] = _joined(kept.between(kept.first_index, later.first_index), later)
            return
        at = later.first_index - kept.first_index
        if at + later.steps > kept.columns:
            self.put(_joined(self.take(later.topic).between(kept.first_index, later.first_index), later))
            return
        for row, (counts, known) in enumerate(zip(later.counts, later.known, strict=True)):
            kept.write(row, at, _with_gaps(counts, known))
        kept.end_index = later.end_index

    def take(self, topic: str, first_index: int | None = None) -> ArrivalSeries:
        """Return what is kept of a topic, from a step on; raises OSError if its file fails."""
        kept = self._kept[topic]
        first = kept.first_index if first_index is None else min(max(first_index, kept.first_index), kept.end_index)
        if isinstance(kept, ArrivalSeries):
            return kept.between(first, kept.end_index)
        shape = (len(kept.partitions), kept.end_index - first)
        counts, known = np.empty(shape), np.empty(shape, dtype=np.bool_)
        for row in range(shape[0]):
            cells = kept.read(row, first - kept.first_index, shape[1])
            known[row] = ~np.isnan(cells)
            counts[row] = np.where(known[row], cells, 0)
        return ArrivalSeries(topic, kept.grid, first, kept.partitions, counts, known)

    def drop(self, topic: str) -> None:
        """Forget a topic."""
        self._kept.pop(topic, None)

    def _filed(self, history: ArrivalSeries) -> _Slot | None:
        if self._folder is None or not history.counts.size:
            return None
        columns = int(history.steps * _ROOM) + 64
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as named:
                file = os.dup(named.fileno())
        except OSError:
            return None
        slot = _Slot(file, history.grid, history.partitions, columns, history.first_index, history.end_index)
        weakref.finalize(slot, os.close, file)
        padding = np.full(columns - history.steps, np.nan, dtype=np.float32)
        try:
            for row, (counts, known) in enumerate(zip(history.counts, history.known, strict=True)):
                slot.write(row, 0, np.concatenate([_with_gaps(counts, known), padding]))
        except OSError:
            return None
        return slot


def _with_gaps(counts: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(known, counts, np.nan).astype(np.float32)


def _joined(old: ArrivalSeries, new: ArrivalSeries) -> ArrivalSeries:
    return ArrivalSeries(
        new.topic,
        new.grid,
        old.first_index,
        new.partitions,
        np.concatenate([old.counts, new.counts], axis=1),
        np.concatenate([old.known, new.known], axis=1),
    )


def _copied(history: ArrivalSeries) -> ArrivalSeries:
    """Return the same in memory of its own, so that what it was cut from can go."""
    return ArrivalSeries(
        history.topic,
        history.grid,
        history.first_index,
        history.partitions,
        history.counts.copy(),
        history.known.copy(),
    )
