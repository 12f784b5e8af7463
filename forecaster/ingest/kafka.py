"""Offsets from a real Kafka cluster, read in bulk: topics, then commits, then log ends, in this order.

Commits are read *before* log ends, so that a commit can never be ahead of the log by the order of reading alone. Only
the topics asked for are described, never the whole cluster. What single partitions or groups do not answer stays
out, with the reason; everything else is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.ingest.kafka_reader import BulkReader, Properties, TopicInfo
from forecaster.topics import GroupId, TopicPartition


class KafkaOffsetSource:
    """The :class:`forecaster.ingest.base.OffsetSource` over a Kafka cluster.

    Parameters
    ----------
    properties
        Client properties; never logged.
    timeout_s
        How long one read may take.
    starts_every_s
        Log starts change slowly and cost a read of their own: they are refreshed this often, and read at once for
        partitions that are new.
    clock
        Now, aware UTC.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        timeout_s: float = 10.0,
        starts_every_s: float = 30.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        reader: BulkReader | None = None,
    ) -> None:
        self._reader = reader or reader_for(properties, timeout_s)
        self._clock, self._starts_every_s = clock, starts_every_s
        self._starts: dict[TopicPartition, int] = {}
        self._starts_at: datetime | None = None
        self._ids: dict[str, str | None] = {}

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Read once (:meth:`OffsetSource.read`)."""
        failures: dict[TopicPartition, str] = {}
        infos: dict[str, TopicInfo] = {}
        for topic, info in self._reader.describe(topics).items():
            if isinstance(info, str):
                failures[TopicPartition(topic, 0)] = info
            else:
                infos[topic] = info
        wanted = [
            TopicPartition(topic, p)
            for topic, info in infos.items()
            for p in info.epochs
            if p not in info.without_leader
        ]
        for topic, info in infos.items():
            failures |= {TopicPartition(topic, p): why for p, why in info.without_leader.items()}
        if not wanted:
            return OffsetReading({}, failures, {topic: len(info.epochs) for topic, info in infos.items()})

        starts = self._log_starts(infos, wanted)
        commits: dict[GroupId, Mapping[TopicPartition, int | None]] = {}
        silent: dict[GroupId, str] = {}
        for group, answer in (self._reader.committed(groups, wanted) if groups else {}).items():
            if isinstance(answer, str):
                silent[group] = answer
            else:
                commits[group] = answer
        before = self._clock()
        ends = self._reader.ends(wanted)
        at = before + (self._clock() - before) / 2
        failures |= ends.failures
        why = "; ".join(f"group {group}: {reason}" for group, reason in silent.items()) or None
        samples = {
            tp: OffsetSample(
                at=at,
                log_start_offset=starts.get(tp),
                log_end_offset=end,
                committed={group: offsets.get(tp) for group, offsets in commits.items()},
                topic_id=infos[tp.topic].topic_id,
                leader_epoch=ends.epochs.get(tp, infos[tp.topic].epochs[tp.partition]),
                why=why,
            )
            for tp, end in ends.offsets.items()
        }
        return OffsetReading(samples, failures, {topic: len(info.epochs) for topic, info in infos.items()})

    def kind_of(self, group: GroupId) -> str | None:
        """Return what kind of group the cluster lists this one as (classic, consumer, share); None if it has none."""
        return self._reader.kinds().get(group)

    def kinds(self) -> Mapping[GroupId, str]:
        """Return the cluster's groups with their kind."""
        return self._reader.kinds()

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return the topics on which a group has committed, sorted; none where nobody says."""
        return self._reader.topics_of(group)

    def close(self) -> None:
        """Give up connections."""
        self._reader.close()

    def _log_starts(
        self, infos: Mapping[str, TopicInfo], wanted: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        now = self._clock()
        renewed = {topic for topic, info in infos.items() if self._ids.get(topic) != info.topic_id}
        stale = self._starts_at is None or (now - self._starts_at).total_seconds() >= self._starts_every_s
        asked = wanted if stale else [tp for tp in wanted if tp.topic in renewed or tp not in self._starts]
        if asked:
            answered = self._reader.starts(asked).offsets
            for tp in asked:  # an old value would be of another log, or too old to be worth anything
                self._starts.pop(tp, None)
            self._starts |= {tp: offset for tp, offset in answered.items() if offset is not None}
        if stale:
            self._starts_at = now
        self._ids |= {topic: info.topic_id for topic, info in infos.items()}
        return self._starts


def reader_for(properties: Properties, timeout_s: float) -> BulkReader:
    """Return the fastest reader that understands all of the properties.

    kafka-python reads thousands of partitions at a fraction of the CPU; librdkafka knows every property. A property
    that the former has no word for (OAuth, Kerberos, a broker's proxy …) selects the latter.
    """
    from forecaster.ingest.kafka_fast import FastReader, translated
    from forecaster.ingest.kafka_full import FullReader

    full = FullReader(properties, timeout_s)
    words = translated(properties)
    return full if words is None else FastReader(words, full, timeout_s)
