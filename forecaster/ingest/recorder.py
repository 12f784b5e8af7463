"""The recorder: looks at offsets, turns them into steps, and writes them; the path that every source takes.

Whatever the source (Kafka, Prometheus, a replayed trace), one call of :meth:`Recorder.tick` is one look. Nothing here
sleeps or owns a thread: whoever schedules the ticks decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from forecaster.errors import SourceError, SourceUnavailable, StoreError
from forecaster.ingest.base import OffsetSource
from forecaster.ingest.bias import BiasWatch, Shares
from forecaster.ingest.checkpoint import dump_counter, load_counter
from forecaster.ingest.delay import OffsetHistory
from forecaster.ingest.looks import looks
from forecaster.ingest.writer import TickWriter, Written
from forecaster.offsets import (
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

Delays = Callable[[Mapping[TopicPartition, int], datetime], Mapping[TopicPartition, int]]
"""Commits that advanced, and when they were read → milliseconds from a record's timestamp to its commit."""
_Sampled = Mapping[tuple[GroupId, TopicPartition], int]
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
    latency_p99_s: Mapping[GroupId, float] = field(default_factory=dict)
    """Over the partitions whose delay is known; its resolution is the time between two ticks."""
    record_shares: Mapping[str, float] = field(default_factory=dict)
    """Topic → records per offset, where it was sampled: rates are too high by what is missing to 1."""

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
    shares: dict[int, int] = field(default_factory=dict)
    """Partition → records per thousand offsets, sampled since the last step was written."""


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
    delays
        Reads records' own timestamps (:meth:`forecaster.ingest.sampler.RecordSampler.delays_ms`); one group a tick,
        in turn. Where it says nothing, latency comes from the history of end offsets.
    shares
        Counts records among offsets (:meth:`forecaster.ingest.sampler.RecordSampler.record_share`); one topic a tick.
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
        delays: Delays | None = None,
        shares: Shares | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._source, self._clock, self._delays = store, source, clock, delays
        self.policy = policy or CountingPolicy.for_step(60)
        self._topics = tuple(topics)
        self.follow(groups)
        self._resets = dict(resets or {})
        self._known: dict[str, _Topic] = {}
        self._writer = TickWriter(store)
        self._turns = 0
        self._bias = None if shares is None else BiasWatch(shares)

    def follow(self, groups: Mapping[GroupId, Sequence[str]]) -> None:
        """Record these groups and no others from the next look on; what is known of topics that stay goes on."""
        found: dict[str, list[GroupId]] = {topic: [] for topic in self._topics}
        for group, its_topics in groups.items():
            for topic in its_topics:
                found.setdefault(topic, []).append(group)
        self._groups_of = found

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are recorded."""
        return tuple(self._groups_of)

    def watch(self, group: GroupId, topics: Sequence[str]) -> None:
        """Record one more group from the next tick on."""
        for topic in topics:
            its = self._groups_of.setdefault(topic, [])
            if group not in its:
                its.append(group)

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
        seen = looks(reading, self.topics)
        sampled = self._sampled(seen, groups)
        self._sample_shares(seen)
        delays: dict[GroupId, list[Ints]] = {}
        for topic, look in seen.items():
            partitions += look.partitions
            ticks += self._facts(topic, look, sampled, delays)
        return TickReport(
            self._clock(),
            partitions,
            len(reading.samples),
            len(ticks),
            self._writer.write(ticks),
            reading.failures,
            latency_p99_s={
                group: float(np.percentile(np.concatenate(found), 99)) / 1000 for group, found in delays.items()
            },
            record_shares={} if self._bias is None else self._bias.shares(),
        )

    def close(self) -> None:
        """Write what waits, and give up the source; the store belongs to whoever made it."""
        self._writer.write([])
        self._source.close()

    def _sampled(self, seen: Mapping[str, TopicLook], groups: Sequence[GroupId]) -> _Sampled:
        """Return delays by record timestamps, for partitions of one group whose commits have advanced."""
        if self._delays is None or not groups:
            return {}
        group = groups[self._turns % len(groups)]
        self._turns += 1
        advanced: dict[TopicPartition, int] = {}
        for topic, look in seen.items():
            known = self._known.get(topic)
            now = look.committed.get(group)
            before = known.before.committed.get(group) if known is not None and known.before is not None else None
            if now is None or before is None or len(now[0]) != len(before[0]):
                continue
            for p in np.flatnonzero(now[1] & before[1] & (now[0] > before[0])).tolist():
                advanced[TopicPartition(topic, p)] = int(now[0][p])
        if not advanced:
            return {}
        try:
            found = self._delays(advanced, self._clock())
        except SourceError:  # offsets still tell the delay
            return {}
        return {(group, tp): delay for tp, delay in found.items()}

    def _sample_shares(self, seen: Mapping[str, TopicLook]) -> None:
        if self._bias is None:
            return
        pairs = {topic: (known.before, look) for topic, look in seen.items() if (known := self._known.get(topic))}
        found = self._bias.look(pairs, self._clock())
        if found is not None and found[1].share is not None:
            tp, share = found[0], found[1].share
            self._known[tp.topic].shares[tp.partition] = round(1000 * share)

    def _facts(self, topic: str, look: TopicLook, sampled: _Sampled, delays: dict[GroupId, list[Ints]]) -> list[Tick]:
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
            if known.shares:
                gauges[SeriesKey(topic, "records_permille", None, self.policy.step_s)] = _sparse(
                    known.shares, look.partitions
                )
                known.shares = {}
        for group in self._groups_of[topic]:
            consumed, its_gauges = self._of_group(topic, group, look, known, sampled)
            delay_ms, delay_known = its_gauges[SeriesKey(topic, "latency_ms", group, self.policy.step_s)]
            if delay_known.any():
                delays.setdefault(group, []).append(delay_ms[delay_known])
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
        self, topic: str, group: GroupId, look: TopicLook, known: _Topic, sampled: _Sampled
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
        for p in range(look.partitions) if sampled else ():
            measured = sampled.get((group, TopicPartition(topic, p)))
            if measured is not None:
                delay_ms[p], delay_known[p] = measured, True
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


def _sparse(cells: Mapping[int, int], partitions: int) -> tuple[Ints, Mask]:
    """Return the values of some partitions as a column."""
    values, known = np.zeros(partitions, dtype=np.int64), np.zeros(partitions, dtype=np.bool_)
    for partition, value in cells.items():
        if partition < partitions:
            values[partition], known[partition] = value, True
    return values, known
