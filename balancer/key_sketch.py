"""Which keys are hot, from bounded samples: heavy hitters with error bounds, bounded memory, and forgetting.

Apache DataSketches' frequent-items sketch (Misra and Gries' algorithm as in Anderson et al., IMC 2017) in two
generations: what is older than two windows is forgotten. Beside it, the load of each slot of the topic, decayed alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from datasketches import frequent_items_error_type, frequent_strings_sketch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key and its share of the topic's records: the estimate, and the bounds within which the truth lies."""

    key: str
    share: float
    low: float
    high: float


class KeySketch:
    """Heavy hitters and slot loads of one topic.

    Parameters
    ----------
    slots
        Number of virtual slots of the topic's table.
    window
        What is older than two of them is forgotten.
    counters
        Base-2 logarithm of the counters a generation: 12 bounds the error of a count by about total / 1,400.

    Examples
    --------
    >>> from datetime import UTC
    >>> sketch, now = KeySketch(4096), datetime(2026, 1, 5, tzinfo=UTC)
    >>> sketch.add(["6b31"] * 90 + ["6b32"] * 10, [1] * 90 + [2] * 10, 100.0, now)
    >>> [(h.key, h.share) for h in sketch.heavy(0.5, now)], float(sketch.slot_shares(now)[1])
    ([('6b31', 0.9)], 0.9)
    """

    def __init__(self, slots: int, window: timedelta = timedelta(minutes=15), counters: int = 12) -> None:
        self._slots, self._window, self._counters = slots, window, counters
        self._fresh, self._old = self._empty(), self._empty()
        self._loads = np.zeros((2, slots))
        self._drawn = [0, 0]
        self._since: datetime | None = None

    def _empty(self) -> frequent_strings_sketch:
        return frequent_strings_sketch(self._counters)

    def add(self, keys: Iterable[str], slots: Iterable[int], records: float, now: datetime) -> None:
        """Take in a sample that stands for ``records`` records.

        Parameters
        ----------
        keys
            Sampled keys, repeated as they were drawn.
        slots
            The slot of each.
        records
            How many records the sample was drawn from.
        now
            Aware; instants must not go backwards by more than a window.
        """
        self._turn(now)
        rows = list(zip(keys, slots, strict=True))
        if not rows or records <= 0:
            return
        self._drawn[0] += len(rows)
        weight = max(1, round(records / len(rows)))
        for key, slot in rows:
            self._fresh.update(key, weight)
            self._loads[0, slot] += weight

    def _turn(self, now: datetime) -> None:
        if self._since is None:
            self._since = now
        passed = (now - self._since) / self._window
        if passed >= 1:
            self._old = self._fresh if passed < 2 else self._empty()
            self._loads[1] = self._loads[0] if passed < 2 else 0.0
            self._fresh, self._since = self._empty(), now
            self._loads[0] = 0.0
            self._drawn = [0, self._drawn[0] if passed < 2 else 0]

    @property
    def samples(self) -> int:
        """Keys that were sampled and are not forgotten."""
        return sum(self._drawn)

    @property
    def total(self) -> float:
        """Records that the sketch stands for."""
        return float(self._fresh.total_weight + self._old.total_weight)

    def heavy(self, share: float, now: datetime, most: int = 100) -> list[HeavyKey]:
        """Return keys whose estimated share is at least ``share``, the heaviest first."""
        self._turn(now)
        total = self.total
        if total <= 0:
            return []
        found: dict[str, list[float]] = {}
        for sketch in (self._fresh, self._old):
            if sketch.is_empty():
                continue
            for key, estimate, low, high in sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES, 0):
                row = found.setdefault(key, [0.0, 0.0, 0.0])
                row[0] += estimate
                row[1] += low
                row[2] += high
        keys = [HeavyKey(k, e / total, lo / total, hi / total) for k, (e, lo, hi) in found.items()]
        return sorted((h for h in keys if h.share >= share), key=lambda h: (-h.share, h.key))[:most]

    def slot_shares(self, now: datetime) -> NDArray[np.float64]:
        """Return each slot's share of the topic's sampled records; zeros before the first sample. Shape (slots,)."""
        self._turn(now)
        loads: NDArray[np.float64] = self._loads.sum(axis=0)
        total = loads.sum()
        return loads / total if total > 0 else loads

    @property
    def size_bytes(self) -> int:
        """Memory of the sketches and the slot loads, as serialised."""
        kept = (s for s in (self._fresh, self._old) if not s.is_empty())
        return sum(len(s.serialize()) for s in kept) + int(self._loads.nbytes)
