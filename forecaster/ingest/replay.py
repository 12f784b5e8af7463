"""Traces as sources: loaded at once as history, or replayed by the clock as if they were a topic's offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from forecaster.errors import InputRefused, SourceRefused
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.series import ArrivalSeries
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.stores.entry import recorded_topic
from forecaster.topics import GroupId, TopicPartition


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a backfill wrote: cells with a value, steps and partitions spanned, cells missing, cells not taken."""

    rows: int
    steps: int
    partitions: int
    gaps: int
    rejected: int


def load(store: SeriesStore, series: ArrivalSeries, topic: str | None = None, now: datetime | None = None) -> Loaded:
    """Write a whole trace into the store as the history of a topic. Doing it again changes nothing.

    Parameters
    ----------
    store
        Where it goes.
    series
        Whole counts.
    topic
        Name of the topic; the trace's own by default.
    now
        Steps that begin after this instant are not history: they are left out and counted as rejected.

    Raises
    ------
    InputRefused
        If counts are not whole, the topic is recorded with another step, or its name is none that Kafka takes.
    """
    name = recorded_topic(series.topic if topic is None else topic)
    _whole(series)
    meta = store.meta(name)
    if meta is not None and meta.step_s != series.grid.step_s:
        raise InputRefused(
            f"{name} is recorded in steps of {meta.step_s} s, this trace has {series.grid.step_s} s; "
            f"take another topic name"
        )
    past = series if now is None else series.until(now)
    rejected = int(series.known[:, past.steps :].sum())
    rows = max(past.partitions, default=-1) + 1
    counts = np.zeros((rows, past.steps), dtype=np.int64)
    known = np.zeros((rows, past.steps), dtype=np.bool_)
    at = list(past.partitions)
    counts[at], known[at] = past.counts.astype(np.int64), past.known
    key = SeriesKey(name, "arrivals", None, past.grid.step_s)
    if past.steps:
        store.backfill(key, Cells(past.first_index, counts, known))
    return Loaded(int(known.sum()), past.steps, len(past.partitions), int((~past.known).sum()), rejected)


class ReplaySource:
    """A trace read by the clock: log end offsets that grow as the trace says.

    Records of a step are spread evenly over it. A gap in the trace is a new leader epoch, so that no step across it
    can be counted, and partitions do not answer while it lasts.

    Parameters
    ----------
    series
        Whole counts; its partitions are the topic's.
    clock
        Now, aware UTC: what moves the replay.
    committed
        What each group has committed by now, for simulated members: group → (partition → offset).
    """

    def __init__(
        self,
        series: ArrivalSeries,
        *,
        topic: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        committed: Callable[[], Mapping[GroupId, Mapping[int, int]]] | None = None,
    ) -> None:
        _whole(series)
        self.topic = topic or series.topic
        self._series, self._clock, self._committed = series, clock, committed
        width = series.steps + 1
        self._ends = np.zeros((len(series.partitions), width), dtype=np.int64)
        np.cumsum(series.counts.astype(np.int64), axis=1, out=self._ends[:, 1:])
        self._gaps = np.zeros((len(series.partitions), width), dtype=np.int64)
        np.cumsum(~series.known, axis=1, out=self._gaps[:, 1:])

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Return the offsets at the clock's now; before and after the trace nobody answers."""
        unknown = [t for t in topics if t != self.topic]
        if unknown:
            raise SourceRefused(f"the replay has the topic {self.topic}, not {', '.join(unknown)}")
        committed = self._committed() if self._committed else {}  # before the end offsets, as from a real cluster
        now, series = self._clock(), self._series
        elapsed = (now - series.start) / series.grid.step
        step, share = int(np.floor(elapsed)), elapsed - np.floor(elapsed)
        inside = 0 <= elapsed <= series.steps
        samples: dict[TopicPartition, OffsetSample] = {}
        failures: dict[TopicPartition, str] = {}
        for row, partition in enumerate(series.partitions):
            tp = TopicPartition(self.topic, partition)
            if not inside:
                failures[tp] = f"the trace reaches from {series.start.isoformat()} to {series.end.isoformat()}"
                continue
            if share and not series.known[row, step]:
                failures[tp] = "the trace has a gap here"
                continue
            end = int(self._ends[row, step])
            if share:
                end += int((int(self._ends[row, step + 1]) - end) * share)
            samples[tp] = OffsetSample(
                at=now,
                log_start_offset=0,
                log_end_offset=end,
                committed={g: committed[g].get(partition) for g in groups if g in committed},
                leader_epoch=int(self._gaps[row, step]),
            )
        return OffsetReading(samples, failures, {self.topic: max(series.partitions) + 1})

    def close(self) -> None:
        """Nothing is held."""


def _whole(series: ArrivalSeries) -> None:
    odd = np.argwhere(series.counts != np.floor(series.counts))
    if odd.size:
        row, step = odd[0]
        raise InputRefused(
            f"{series.topic}: {series.counts[row, step]} at "
            f"{series.grid.start_of(series.first_index + int(step)).isoformat()} is not a whole number of records; "
            f"--round accepts decimals"
        )
