"""The recorder: looks at offsets, turns them into steps, and writes them; the path that every source takes.

Whatever the source (Kafka, Prometheus, a replayed trace), one call of :meth:`Recorder.tick` is one look. Nothing here
sleeps or owns a thread: whoever schedules the ticks decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from forecaster.errors import SourceUnavailable, StoreError
from forecaster.ingest.base import OffsetReading, OffsetSource
from forecaster.ingest.checkpoint import dump_counter, load_counter
from forecaster.ingest.delay import OffsetHistory
from forecaster.ingest.writer import TickWriter, Written
from forecaster.offsets import (
    NO_EPOCH,
    Counter,
    CountingPolicy,
    Ints,
    Mask,
    Reset,
    StepCounts,
    TopicLook,
    advance,
)
from forecaster.stores.base import SeriesKey, SeriesStore, Tick
from forecaster.topics import GroupId, TopicPartition

_FRESH_FOR = timedelta(minutes=10)
"""An older checkpoint than this says nothing that a first look would not."""


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one tick did; ``failures`` say what was not read, and are never counted as zero."""

    at: datetime
    partitions: int
    answered: int
    steps: int
    written: Written
    failures: Mapping[TopicPartition, str] = field(default_factory=dict)
    why: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was read and written."""
        return self.why is None and not self.failures and self.written.why is None


@dataclass(slots=True)
class _Topic:
    """What the recorder remembers of one topic."""

    arrivals: Counter | None = None
    consumed: dict[GroupId, Counter] = field(default_factory=dict)
    before: TopicLook | None = None
    history: OffsetHistory = field(default_factory=OffsetHistory)


class Recorder:
    """Records topics and groups from one source into one store.

    Parameters
    ----------
    store, source
        Where facts go, and where offsets come from.
    groups
        Group → its topics. Every topic's arrivals are recorded once, each group's lag and consumption beside them.
    policy
        Step, tolerance and gaps.
    topics
        Further topics to be recorded, without a group.
    resets
        What each group's consumers do without a commit; absent is unknown.
    clock
        Now, aware UTC.

    Examples
    --------
    A trace stands in for Kafka; its clock is ours to move.

    >>> from forecaster.ingest.replay import ReplaySource
    >>> from forecaster.series import ArrivalSeries
    >>> from forecaster.stores.memory import MemorySeriesStore
    >>> from forecaster.timegrid import TimeGrid
    >>> trace = ArrivalSeries("orders", TimeGrid(60), 0, (0,), np.array([[60.0, 30.0]]), np.ones((1, 2), dtype=bool))
    >>> now = datetime(1970, 1, 1, tzinfo=UTC)
    >>> store = MemorySeriesStore(clock=lambda: now)
    >>> recorder = Recorder(store, ReplaySource(trace, clock=lambda: now), {}, topics=("orders",), clock=lambda: now)
    >>> for _ in range(3):
    ...     report = recorder.tick()
    ...     now += timedelta(minutes=1)
    >>> store.read(SeriesKey("orders", "arrivals"), 0, 2).values.tolist()
    [[60, 30]]
    """

    def __init__(
        self,
        store: SeriesStore,
        source: OffsetSource,
        groups: Mapping[GroupId, Sequence[str]],
        *,
        policy: CountingPolicy | None = None,
        topics: Sequence[str] = (),
        resets: Mapping[GroupId, Reset] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._source, self._clock = store, source, clock
        self.policy = policy or CountingPolicy.for_step(60)
        self._groups_of: dict[str, list[GroupId]] = {topic: [] for topic in topics}
        for group, its_topics in groups.items():
            for topic in its_topics:
                self._groups_of.setdefault(topic, []).append(group)
        self._resets = dict(resets or {})
        self._known: dict[str, _Topic] = {}
        self._writer = TickWriter(store)
        self._fresh: dict[GroupId, TopicLook] = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are recorded."""
        return tuple(self._groups_of)

    def tick(self) -> TickReport:
        """Take one look, and write the steps that it completed.

        A source or store that does not answer is reported, not raised: what was not read stays missing, what was not
        written waits. :class:`forecaster.errors.SourceRefused` goes through, since only a person can cure it.
        """
        groups = sorted({group for its in self._groups_of.values() for group in its})
        try:
            reading = self._source.read(self.topics, groups)
        except SourceUnavailable as exc:
            return TickReport(self._clock(), 0, 0, 0, self._writer.write([]), why=str(exc))
        ticks: list[Tick] = []
        partitions = 0
        for topic, look in looks(reading, self.topics).items():
            partitions += look.partitions
            ticks += self._facts(topic, look)
        return TickReport(
            self._clock(), partitions, len(reading.samples), len(ticks), self._writer.write(ticks), reading.failures
        )

    def close(self) -> None:
        """Write what waits, and give up the source; the store belongs to whoever made it."""
        self._writer.write([])
        self._source.close()

    def _facts(self, topic: str, look: TopicLook) -> list[Tick]:
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = self._restored(topic)
        same = not (known.arrivals and look.topic_id and known.arrivals.topic_id not in (None, look.topic_id))
        if not same:
            known.before, known.history = None, OffsetHistory()
        counter = known.arrivals
        if counter is not None and same and counter.seen.any() and look.partitions > len(counter.value):
            counter = counter.grown(look.partitions, born_s=float(counter.at_s[counter.seen].max()))
        known.arrivals, steps = advance(
            counter, look.at_s, look.end, look.known, self.policy, epoch=look.epoch, topic_id=look.topic_id
        )
        known.history.add(look)
        columns: dict[int, dict[SeriesKey, tuple[Ints, Mask]]] = {}
        self._add(columns, SeriesKey(topic, "arrivals", None, self.policy.step_s), steps)
        last = max((step.index for step in steps), default=None)
        gauges: dict[SeriesKey, tuple[Ints, Mask]] = {}
        if last is not None:
            gauges[SeriesKey(topic, "end_offset", None, self.policy.step_s)] = (look.end, look.known)
        for group in self._groups_of[topic]:
            consumed, its_gauges = self._of_group(topic, group, look, known)
            self._add(columns, SeriesKey(topic, "consumed", group, self.policy.step_s), consumed)
            if last is not None:
                gauges |= its_gauges
        if last is not None:
            columns.setdefault(last, {}).update({key: cell for key, cell in gauges.items() if cell[1].any()})
        known.before = look
        kept = {"arrivals": dump_counter(known.arrivals)}
        kept |= {f"consumed:{group}": dump_counter(counter) for group, counter in known.consumed.items()}
        return [
            Tick(topic, self.policy.step_s, index, cells, look.topic_id, kept)
            for index, cells in sorted(columns.items())
            if cells
        ]

    def _of_group(
        self, topic: str, group: GroupId, look: TopicLook, known: _Topic
    ) -> tuple[list[StepCounts], dict[SeriesKey, tuple[Ints, Mask]]]:
        zeros = (np.zeros_like(look.end), np.zeros_like(look.known))
        offsets, committed = look.committed.get(group, zeros)
        committed = committed & look.known
        position = np.maximum(offsets, look.start)
        before = known.consumed.get(group)
        cut = None
        if before is not None and len(before.value) == look.partitions:
            cut = look.start > before.value  # retention went past the group: what it skipped was not consumed
        known.consumed[group], steps = advance(
            before, look.at_s, position, committed, self.policy, topic_id=look.topic_id, cut=cut
        )
        lag, lag_known, _ = look.lag(group, self._resets.get(group, Reset.UNKNOWN))
        delay_ms, delay_known = known.history.delay_ms(position, committed, look)
        step = self.policy.step_s
        return steps, {
            SeriesKey(topic, "lag", group, step): (lag, lag_known),
            SeriesKey(topic, "committed", group, step): (np.where(committed, offsets, 0), committed),
            SeriesKey(topic, "latency_ms", group, step): (delay_ms, delay_known),
        }

    @staticmethod
    def _add(
        columns: dict[int, dict[SeriesKey, tuple[Ints, Mask]]], key: SeriesKey, steps: Sequence[StepCounts]
    ) -> None:
        for step in steps:
            if step.known.any():
                columns.setdefault(step.index, {})[key] = (step.values, step.known)

    def _restored(self, topic: str) -> _Topic:
        """Return what an earlier recorder left beside its last tick, so that a restart keeps every step it can."""
        try:
            meta = self._store.meta(topic)
        except StoreError:
            return _Topic()
        if meta is None or meta.step_s != self.policy.step_s:
            return _Topic()
        oldest = (self._clock() - _FRESH_FOR).timestamp()
        found = _Topic()
        for name, text in meta.offsets.items():
            try:
                counter = load_counter(text)
            except ValueError:
                continue
            if not counter.seen.any() or counter.at_s[counter.seen].max() < oldest:
                continue
            if name == "arrivals":
                found.arrivals = counter
            elif name.startswith("consumed:"):
                found.consumed[GroupId(name.removeprefix("consumed:"))] = counter
        return found


def looks(reading: OffsetReading, topics: Sequence[str]) -> dict[str, TopicLook]:
    """Return a reading as one :class:`forecaster.offsets.TopicLook` a topic; topics without any sample are left out."""
    by_topic: dict[str, list[int]] = {}
    for tp in reading.samples:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    out: dict[str, TopicLook] = {}
    for topic in topics:
        answered = by_topic.get(topic)
        if not answered:
            continue
        count = max(reading.partitions.get(topic, 0), max(answered) + 1)
        at_s = np.zeros(count)
        start, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        known = np.zeros(count, dtype=np.bool_)
        epoch = np.full(count, NO_EPOCH, dtype=np.int64)
        committed: dict[str, tuple[Ints, Mask]] = {}
        topic_id: str | None = None
        for p in answered:
            sample = reading.samples[TopicPartition(topic, p)]
            at_s[p] = sample.at.timestamp()
            topic_id = sample.topic_id or topic_id
            if sample.log_end_offset is not None:
                known[p] = True
                end[p] = sample.log_end_offset
                start[p] = sample.log_start_offset or 0
            if sample.leader_epoch is not None:
                epoch[p] = sample.leader_epoch
            for group, offset in sample.committed.items():
                if offset is not None and offset >= 0:
                    column = committed.get(group)
                    if column is None:
                        empty = (np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))
                        column = committed.setdefault(group, empty)
                    column[0][p], column[1][p] = offset, True
        out[topic] = TopicLook(at_s, start, end, known, epoch, topic_id, committed)
    return out
