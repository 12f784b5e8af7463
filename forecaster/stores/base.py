"""The port through which series are kept: what a store must do, whatever it is made of.

A store belongs to one cluster. It keeps integer counts per aligned step (`forecaster.timegrid`), partition by
partition; a cell that was never written is *missing*, and zero is a value like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Names one recorded series of a topic: all partitions of one metric.

    Parameters
    ----------
    topic
        Topic name.
    metric
        ``arrivals``, ``end_offset`` or ``records_permille`` (of the topic); ``lag``, ``consumed``, ``committed`` or
        ``latency_ms`` (of a group's partitions); ``capacity_milli`` or ``lead_time_ms`` (of a group as a whole, kept
        as partition 0 of its first topic).
    group
        Group name for metrics that belong to (group, topic), else None.
    step_s
        Step in seconds.
    """

    topic: str
    metric: str
    group: str | None = None
    step_s: int = 60

    def sort_key(self) -> tuple[str, str, str, int]:
        """Return what keys are sorted by; a missing group comes first."""
        return self.topic, self.metric, self.group or "", self.step_s


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Integer values of one series: shape (partitions, steps), partition ``i`` in row ``i``.

    ``values`` is int64 and zero where ``known`` is false.

    Raises
    ------
    ValueError
        If the shapes disagree or a known value is negative: counts and offsets never are, and a step over which an
        offset went backwards is *missing*.

    Examples
    --------
    >>> cells = Cells.missing(first_index=10, partitions=2, steps=3)
    >>> cells.end_index, bool(cells.known.any())
    (13, False)
    """

    first_index: int
    values: NDArray[np.int64]
    known: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape != self.known.shape:
            raise ValueError(f"values {self.values.shape} and known {self.known.shape} must be (partitions, steps)")
        _refuse_negative(self.values, self.known)

    @classmethod
    def missing(cls, first_index: int, partitions: int, steps: int) -> Cells:
        """Return cells of which nothing is known."""
        shape = (partitions, steps)
        return cls(first_index, np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_))

    @property
    def end_index(self) -> int:
        """Number of the first step after the last."""
        return self.first_index + self.steps

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return int(self.values.shape[0])

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    """All series of one topic at one step: written together or not at all.

    ``columns`` maps a key to (values, known), each of shape (partitions,). A cell that is not known says nothing: it
    leaves what an earlier write put there, so that two recorders that each saw a part add up to the whole.

    Raises
    ------
    ValueError
        If a key belongs to another topic or step, shapes disagree, or a known value is negative.
    """

    topic: str
    step_s: int
    index: int
    columns: Mapping[SeriesKey, tuple[NDArray[np.int64], NDArray[np.bool_]]]
    topic_id: str | None = None
    offsets: Mapping[str, str] = field(default_factory=dict)
    """Small strings kept beside the last tick (last offsets, leader epochs), so that a restart carries on; none leaves
    those that are there."""

    def __post_init__(self) -> None:
        for key, (values, known) in self.columns.items():
            if key.topic != self.topic or key.step_s != self.step_s:
                raise ValueError(f"{key} does not belong to a tick of {self.topic} at {self.step_s} s")
            if values.ndim != 1 or values.shape != known.shape:
                raise ValueError(f"{key.metric}: values {values.shape} and known {known.shape} must be (partitions,)")
            _refuse_negative(values, known)


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """What the store knows of a topic."""

    topic: str
    topic_id: str | None
    partitions: int
    step_s: int
    last_index: int | None
    sealed_to_day: int | None
    """Number of the first day (since 1970-01-01) that is not sealed yet; None if nothing was ever written."""
    keys: tuple[SeriesKey, ...] = ()
    offsets: Mapping[str, str] = field(default_factory=dict)
    first_day: int | None = None
    """Number of the oldest day of which steps may still be kept; None if nothing was ever written."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """What a look at the server said; ``warnings`` name a remedy each."""

    kind: str
    server: str
    version: str
    layout: str
    warnings: tuple[str, ...] = ()


class SeriesStore(Protocol):
    """Where series live.

    Every write is idempotent: writing a known cell again replaces it (last wins), so a tick may be replayed; writing
    "not known" leaves the cell as it was.
    All methods raise :class:`forecaster.errors.StoreUnavailable` when nobody answers and
    :class:`forecaster.errors.StoreRefused` when the server says no.
    """

    def append(self, ticks: Sequence[Tick]) -> None:
        """Write one or several ticks; each is atomic.

        Raises
        ------
        SampleRejected
            If a tick lies before the accepted window or more than two steps in the future.
        """
        ...

    def backfill(self, key: SeriesKey, cells: Cells, *, topic_id: str | None = None) -> None:
        """Write months of history at once; idempotent, and never visible half-written within a day.

        Raises
        ------
        SampleRejected
            If a step lies more than two steps in the future.
        """
        ...

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return steps ``[first_index, end_index)`` of every partition; what was never written is not known."""
        ...

    def read_hourly(self, key: SeriesKey, first_hour: int, end_hour: int) -> tuple[Cells, Cells]:
        """Return the hourly (sum, max) roll-ups of sealed days; hours are counted since 1970-01-01T00:00Z.

        A sum is known only where every step of the hour is; the maximum where any is. They outlive the steps.
        """
        ...

    def backfill_hourly(self, key: SeriesKey, sums: Cells, peaks: Cells) -> None:
        """Write hours whose steps are kept no longer (:meth:`read_hourly`); both count hours since 1970. Idempotent."""
        ...

    def topics(self) -> tuple[str, ...]:
        """Return the recorded topics, sorted."""
        ...

    def meta(self, topic: str) -> TopicMeta | None:
        """Return what is known of a topic, or None if it was never recorded."""
        ...

    def seal(self, topic: str, now: datetime) -> int:
        """Pack days that were over at ``now``, and their hours; return how many days were sealed. Safe to repeat."""
        ...

    def prune(self, topic: str, now: datetime) -> int:
        """Drop what is older than the retention; return how many days went.

        Ages are counted from ``now`` or from the topic's last step, whichever is earlier: a topic that nobody
        records any more, or a trace of another year, is not dropped for being old.
        """
        ...

    def forget(self, topic: str) -> None:
        """Drop a topic and everything recorded of it."""
        ...

    def health(self) -> StoreHealth:
        """Look at the server: version, layout in use, memory, and what is wrong with its settings."""
        ...

    def close(self) -> None:
        """Give up connections; the data stay."""
        ...


def _refuse_negative(values: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
    if values.size and values.min() < 0 and bool((values[known] < 0).any()):
        raise ValueError("a known value is negative; mark the step as not known instead")
