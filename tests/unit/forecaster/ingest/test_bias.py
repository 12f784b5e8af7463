"""How many offsets are records: sampled one topic at a time, and never in the way of the rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from forecaster.errors import SourceUnavailable
from forecaster.ingest.bias import OFFSETS_AT_ONCE, SAMPLE_EVERY, BiasWatch, RecordShare
from forecaster.offsets import TopicLook
from forecaster.topics import TopicPartition

T0 = datetime(2026, 1, 5, tzinfo=UTC)


def look(*ends: int, start: int = 0, topic_id: str = "id") -> TopicLook:
    end = np.array(ends, dtype=np.int64)
    return TopicLook(end * 0.0, end * 0 + start, end, end >= 0, end * 0 - 1, topic_id)


class Sampler:
    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, int, int]] = []
        self.away = False

    def __call__(self, tp: TopicPartition, first: int, end: int) -> RecordShare:
        self.asked.append((tp, first, end))
        if self.away:
            raise SourceUnavailable("no answer")
        return RecordShare((end - first) // 2, end - first)


def test_the_busiest_partition_is_read_up_to_where_the_look_before_saw_its_end() -> None:
    sampler = Sampler()
    watch = BiasWatch(sampler)
    watch.look({"orders": (look(5000, 10), look(5010, 60, start=8))}, T0)
    assert sampler.asked == [(TopicPartition("orders", 1), 8, 10)]
    BiasWatch(sampler).look({"orders": (look(5000), look(6000))}, T0)
    assert sampler.asked[-1] == (TopicPartition("orders", 0), 5000 - OFFSETS_AT_ONCE, 5000)


def test_one_topic_a_look_each_in_its_turn_and_not_again_before_it_is_due() -> None:
    sampler = Sampler()
    watch = BiasWatch(sampler)
    looks = {topic: (look(100), look(200)) for topic in ("a", "b")}
    for n in range(5):
        watch.look(looks, T0 + n * timedelta(seconds=10))
    assert [tp.topic for tp, _, _ in sampler.asked] == ["a", "b"]
    watch.look(looks, T0 + SAMPLE_EVERY)
    assert [tp.topic for tp, _, _ in sampler.asked] == ["a", "b", "a"]
    assert watch.shares() == {"a": 0.5, "b": 0.5}


def test_nothing_is_read_where_nothing_arrives_or_the_log_is_another() -> None:
    sampler = Sampler()
    watch = BiasWatch(sampler)
    same, other = look(100), look(200, topic_id="made again")
    assert watch.look({"idle": (same, same), "new": (None, same), "again": (same, other)}, T0) is None
    assert watch.look({"first": (look(0), look(9))}, T0) is None
    assert sampler.asked == []


def test_a_range_that_cannot_be_read_says_nothing() -> None:
    sampler = Sampler()
    sampler.away = True
    watch = BiasWatch(sampler)
    assert watch.look({"orders": (look(100), look(200))}, T0) is None
    assert watch.shares() == {}
    assert RecordShare(0, 0).share is None
