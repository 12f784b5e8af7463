"""Recorded arrivals of whole topics, kept in memory step by step: what sparklines and headline figures are read from.

A topic of a thousand partitions is read from the store once; after that only its new steps are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from forecaster.stores.base import SeriesKey, SeriesStore

DAY = timedelta(days=1)
FORTNIGHT = timedelta(days=15)
"""A week of forecasts, and the week before them that naive methods repeat."""
READ_CELLS = 2_000_000
"""So many cells are read at a time."""
REREAD = 3
"""The newest steps are read again each time: a tick may still be written to."""


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Arrivals of a topic, all partitions together.

    Parameters
    ----------
    first_index, step_s
        Number of the first step since 1970, and its length in seconds.
    rates
        Shape (steps,), records/s; NaN where any partition is not known.
    """

    first_index: int
    step_s: int
    rates: NDArray[np.float64]

    def means(self, bin_s: int, count: int) -> tuple[int, NDArray[np.float64]]:
        """Return the last ``count`` means over bins of ``bin_s`` seconds, and when the first begins (Unix seconds).

        Examples
        --------
        >>> Totals(0, 60, np.arange(4.0)).means(120, 2)
        (0, array([0.5, 2.5]))
        """
        per = max(bin_s // self.step_s, 1)
        end = (self.first_index + self.rates.size) // per
        first = end - count
        padded = np.full(count * per, np.nan)
        offset = self.first_index - first * per
        mine = self.rates[max(-offset, 0) : end * per - self.first_index]
        start = max(offset, 0)
        padded[start : start + mine.size] = mine
        known = ~np.isnan(padded.reshape(count, per))
        sums = np.where(known, padded.reshape(count, per), 0.0).sum(axis=1)
        counts = known.sum(axis=1)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return first * per * self.step_s, means


def joined(each: Sequence[Totals | None]) -> Totals | None:
    """Return the sum over a group's topics: known where all of them are, None where one was never recorded.

    Examples
    --------
    >>> joined([Totals(0, 60, np.array([1.0, np.nan])), Totals(0, 60, np.array([2.0, 3.0]))]).rates.tolist()
    [3.0, nan]
    >>> joined([Totals(0, 60, np.array([1.0])), None]) is None
    True
    """
    found = [totals for totals in each if totals is not None]
    if not found or len(found) < len(each):
        return None
    first = found[0]
    if any(
        (t.first_index, t.step_s, t.rates.size) != (first.first_index, first.step_s, first.rates.size) for t in found
    ):
        return None
    return (
        first if len(found) == 1 else Totals(first.first_index, first.step_s, np.sum([t.rates for t in found], axis=0))
    )


class TotalsCache:
    """Keeps the latest totals of each topic.

    Parameters
    ----------
    store
        Where arrivals are recorded.
    span
        How far back totals are kept.
    """

    def __init__(self, store: SeriesStore, span: timedelta = DAY) -> None:
        self._store, self._span = store, span
        self._kept: dict[str, Totals] = {}
        self._lock = threading.Lock()

    def of(self, topic: str, now: datetime) -> Totals | None:
        """Return the span before ``now``; None if nothing is recorded of the topic.

        Raises
        ------
        StoreError
            If the store does not answer.
        """
        with self._lock:
            kept = self._kept.get(topic)
            if kept is not None and kept.first_index + kept.rates.size == int(now.timestamp()) // kept.step_s:
                return kept
            meta = self._store.meta(topic)
            if meta is None:
                return None
            step_s = meta.step_s
            end = int(now.timestamp()) // step_s
            first = end - int(self._span.total_seconds()) // step_s
            rates = np.full(end - first, np.nan)
            begin = first
            if kept is not None and kept.step_s == step_s and first <= kept.first_index + kept.rates.size <= end:
                old = kept.rates[max(first - kept.first_index, 0) :]
                begin = max(kept.first_index + kept.rates.size - REREAD, first)
                rates[max(kept.first_index - first, 0) :][: old.size] = old
            each = max(READ_CELLS // max(meta.partitions, 1), 1)
            for part in range(begin, end, each):
                until = min(part + each, end)
                cells = self._store.read(SeriesKey(topic, "arrivals", step_s=step_s), part, until)
                if cells.partitions:
                    sums, known = cells.values.sum(axis=0) / step_s, cells.known.all(axis=0)
                    rates[part - first : until - first] = np.where(known, sums, np.nan)
            self._kept[topic] = Totals(first, step_s, rates)
            return self._kept[topic]
