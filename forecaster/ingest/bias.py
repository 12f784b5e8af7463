"""How much more an end offset counts than records: markers of transactions, aborted records, what compaction took.

Rates from offsets are exact for plain topics. For the others the share of offsets that are records is estimated from
small ranges read now and then, and shown beside the rates; it does not change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from forecaster.errors import SourceError
from forecaster.offsets import TopicLook
from forecaster.topics import TopicPartition

SAMPLE_EVERY = timedelta(minutes=10)
"""A topic is sampled this often; one topic a tick at the most."""
OFFSETS_AT_ONCE = 1000
SAMPLES_KEPT = 12


@dataclass(frozen=True, slots=True)
class RecordShare:
    """How many of the offsets of a range were records that a ``read_committed`` consumer gets.

    The rest are markers of transactions, aborted records, and what compaction has removed: an arrival rate from
    offsets is too high by that much.
    """

    records: int
    offsets: int

    @property
    def share(self) -> float | None:
        """Records per offset, 0 … 1; None for an empty range."""
        return self.records / self.offsets if self.offsets else None


Shares = Callable[[TopicPartition, int, int], RecordShare]
"""Partition, first offset, offset after the last → how many of them are records."""


class BiasWatch:
    """Samples one topic at a time, and remembers what was found.

    Parameters
    ----------
    sample
        Counts records (:meth:`forecaster.ingest.sampler.RecordSampler.record_share`).

    Examples
    --------
    A producer that commits after every nine records: each tenth offset is a marker.

    >>> one = np.array([1])
    >>> def look(end):
    ...     return TopicLook(one * 0.0, one * 0, one * end, one > 0, one * -1)
    >>> watch = BiasWatch(lambda tp, first, end: RecordShare((end - first) * 9 // 10, end - first))
    >>> watch.look({"orders": (look(400), look(500))}, datetime(2026, 1, 5))
    (TopicPartition(topic='orders', partition=0), RecordShare(records=360, offsets=400))
    >>> watch.shares()
    {'orders': 0.9}
    """

    def __init__(self, sample: Shares) -> None:
        self._sample = sample
        self._sampled_at: dict[str, datetime] = {}
        self._found: dict[str, deque[RecordShare]] = {}

    def look(
        self, looks: Mapping[str, tuple[TopicLook | None, TopicLook]], now: datetime
    ) -> tuple[TopicPartition, RecordShare] | None:
        """Sample the topic that has waited longest, if one is due and something arrives there.

        Parameters
        ----------
        looks
            Topic → the look before the last, and the last. The range that is read ends where the earlier one saw the
            log's end, so that transactions in it have mostly ended.
        now
            Aware UTC.
        """
        for topic in sorted(self._due(looks, now), key=lambda t: (t in self._sampled_at, self._sampled_at.get(t))):
            before, after = looks[topic]
            chosen = None if before is None else _busiest(before, after)
            if before is None or chosen is None:
                continue
            end = int(before.end[chosen])
            first = max(int(after.start[chosen]), end - OFFSETS_AT_ONCE)
            if first >= end:
                continue
            self._sampled_at[topic] = now
            tp = TopicPartition(topic, chosen)
            try:
                found = self._sample(tp, first, end)
            except SourceError:  # a range that cannot be read now says nothing; the topic has its turn again
                return None
            self._found.setdefault(topic, deque(maxlen=SAMPLES_KEPT)).append(found)
            return tp, found
        return None

    def shares(self) -> dict[str, float]:
        """Return topic → records per offset over the latest samples."""
        sums = {
            topic: (sum(one.records for one in found), sum(one.offsets for one in found))
            for topic, found in self._found.items()
        }
        return {topic: records / offsets for topic, (records, offsets) in sums.items() if offsets}

    def _due(self, topics: Iterable[str], now: datetime) -> list[str]:
        return [t for t in topics if t not in self._sampled_at or now - self._sampled_at[t] >= SAMPLE_EVERY]


def _busiest(before: TopicLook, after: TopicLook) -> int | None:
    """Return the partition to which most was written between two looks at one log; None if nothing was."""
    if before.topic_id != after.topic_id:
        return None
    both = min(before.partitions, after.partitions)
    grown = np.where(before.known[:both] & after.known[:both], after.end[:both] - before.end[:both], 0)
    return int(grown.argmax()) if both and grown.max() > 0 else None
