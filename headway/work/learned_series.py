"""What a group's members sustain and how long they take to come, as series beside the other records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import numpy as np

from forecaster.errors import StoreError
from forecaster.stores.base import SeriesKey, SeriesStore, Tick
from forecaster.topics import GroupId

CAPACITY, LEAD_TIME = "capacity_milli", "lead_time_ms"


class LearnedSeries:
    """Writes capacity and lead time once a step, as the planner takes them: learned, or as the settings say.

    A group's values are kept as partition 0 of its first topic, at the newest step that is recorded there.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from forecaster.stores.memory import MemorySeriesStore
    >>> store = MemorySeriesStore()
    >>> one = (np.array([7]), np.array([True]))
    >>> store.append([Tick("orders", 60, 29_000_000, {SeriesKey("orders", "arrivals"): one})])
    >>> LearnedSeries(store, GroupId("billing"), ["orders"]).note(12.5, timedelta(seconds=45))
    >>> store.read(SeriesKey("orders", "capacity_milli", "billing"), 29_000_000, 29_000_001).values.tolist()
    [[12500]]
    """

    def __init__(self, store: SeriesStore, group: GroupId, topics: Sequence[str]) -> None:
        self._store, self._group, self._topic = store, group, next(iter(topics), None)
        self._noted: int | None = None

    def note(self, capacity_per_s: float | None, lead_time: timedelta | None) -> None:
        """Write what is known now, unless the newest step has it; a store that is away is passed over."""
        if self._topic is None or (capacity_per_s is None and lead_time is None):
            return
        with suppress(StoreError):  # the values are kept with the plans; the series has a gap
            meta = self._store.meta(self._topic)
            if meta is None or meta.last_index is None or meta.last_index == self._noted:
                return
            values = {
                CAPACITY: None if capacity_per_s is None else round(1000 * capacity_per_s),
                LEAD_TIME: None if lead_time is None else round(lead_time / timedelta(milliseconds=1)),
            }
            columns = {
                SeriesKey(self._topic, name, self._group, meta.step_s): (np.array([value]), np.array([True]))
                for name, value in values.items()
                if value is not None
            }
            self._store.append([Tick(self._topic, meta.step_s, meta.last_index, columns)])
            self._noted = meta.last_index
