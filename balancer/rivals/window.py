"""The highest wish within a window: how autoscalers keep from flapping downwards."""

from __future__ import annotations

import numpy as np

from balancer.simulator.batch import SLOT_S, Floats, Integers


class HighestWithin:
    """Highest of the wishes of the last ``window_s`` seconds, per run; wishes come every ``every_s`` seconds.

    A block maximum per distinct window keeps this at constant cost per wish.
    """

    def __init__(self, window_s: Floats, every_s: float = SLOT_S) -> None:
        lengths = np.maximum(1, np.round(np.asarray(window_s) / every_s)).astype(np.int64)
        distinct = np.unique(lengths)
        of_all = distinct.size == 1  # a slice is quicker than an index of everything
        self._groups = [(int(n), slice(None) if of_all else np.flatnonzero(lengths == n)) for n in distinct]
        sizes = [int((lengths == n).sum()) for n in distinct]
        self._rings = [np.zeros((n, size), dtype=np.int64) for n, size in zip(distinct, sizes, strict=True)]
        # suffix maxima of the block before, running maximum of the block that is being written (van Herk)
        self._suffix = [np.zeros((n + 1, size), dtype=np.int64) for n, size in zip(distinct, sizes, strict=True)]
        self._running = [np.zeros(size, dtype=np.int64) for size in sizes]
        self._count = 0

    def add(self, wished: Integers, requested: Integers | None = None) -> Integers:
        """Note the wishes and return the highest within each window, this one included.

        Where ``requested`` is given, what is requested at the first wish counts as one: an autoscaler that begins to
        look at a group records its size first, and does not drop it for want of earlier wishes.
        """
        if requested is not None and self._count == 0:
            wished = np.maximum(wished, requested)
        highest = np.empty_like(wished)
        for (n, runs), ring, suffix, k in zip(
            self._groups, self._rings, self._suffix, range(len(self._groups)), strict=True
        ):
            place = self._count % n
            mine = wished[runs]
            if place == 0 and self._count:
                suffix[:n] = np.maximum.accumulate(ring[::-1], axis=0)[::-1]
            self._running[k] = mine.copy() if place == 0 else np.maximum(self._running[k], mine)
            ring[place] = mine
            # of the block before, wishes from place + 1 on still lie within the window
            highest[runs] = np.maximum(self._running[k], suffix[place + 1])
        self._count += 1
        return highest
