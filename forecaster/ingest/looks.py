"""Readings as arrays: one look a topic out of single samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecaster.ingest.base import OffsetReading
from forecaster.offsets import NO_EPOCH, Ints, Mask, TopicLook
from forecaster.topics import TopicPartition


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
