"""Single records of a real broker: how late they were, and how many offsets are records."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.sampler import RecordSampler
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import TopicPartition
from tests.peers.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_the_record_before_the_commit_says_how_long_it_took(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    now_ms = int(time.time() * 1000)
    for partition, age_ms in ((0, 30_000), (0, 20_000), (0, 10_000), (1, 4_000)):
        producer.produce(topic, b"x" * 2000, partition=partition, timestamp=now_ms - age_ms)
    assert producer.flush(60) == 0
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    sampler = RecordSampler({"bootstrap.servers": kafka.bootstrap}, budget_s=90)
    asked = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 1, TopicPartition(topic, 2): 0}
    assert sampler.delays_ms(asked, at) == {TopicPartition(topic, 0): 20_000, TopicPartition(topic, 1): 4_000}


def test_a12_markers_and_aborted_records_are_offsets_but_no_records(
    kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"x-{topic}", "log_level": 0})
    producer.init_transactions(60)
    for i in range(10):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"x", partition=0)
        producer.flush(60)
        (producer.abort_transaction if i % 5 == 4 else producer.commit_transaction)(60)
    sampler = RecordSampler({"bootstrap.servers": kafka.bootstrap}, budget_s=90)
    seen = sampler.record_share(TopicPartition(topic, 0), 0, 40)
    assert (seen.records, seen.offsets, seen.share) == (24, 40, 0.6)
    assert sampler.record_share(TopicPartition(topic, 0), 5, 5).share is None
    part = sampler.record_share(TopicPartition(topic, 0), 0, 40, most=8)
    assert (part.records, part.offsets) == (6, 8)


def test_a12_the_bias_of_a_transactional_topic_is_recorded_beside_its_rates(
    kafka: Kafka, make_topic: Callable[..., str], send: Callable[[str, int, int], None]
) -> None:
    topic, plain = make_topic(1), make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"x-{topic}", "log_level": 0})
    producer.init_transactions(60)
    now = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    store = MemorySeriesStore(clock=lambda: now)
    properties = {"bootstrap.servers": kafka.bootstrap}
    recorder = Recorder(
        store,
        KafkaOffsetSource(properties, clock=lambda: now),
        {},
        topics=(topic, plain),
        shares=RecordSampler(properties, budget_s=90).record_share,
        clock=lambda: now,
    )
    with closing(recorder):
        for _ in range(4):
            for _ in range(5):
                producer.begin_transaction()
                for _ in range(4):
                    producer.produce(topic, b"x", partition=0)
                producer.commit_transaction(60)
            send(plain, 0, 20)
            report = recorder.tick()
            now += timedelta(minutes=1)
    assert report.record_shares == {topic: 0.8, plain: 1.0}  # four records and a marker
    first = int(now.timestamp()) // 60 - 4
    arrivals = store.read(SeriesKey(topic, "arrivals"), first, first + 4)
    assert arrivals.values[arrivals.known].tolist() == [25, 25, 25]  # offsets, as they are
    kept = store.read(SeriesKey(topic, "records_permille"), first, first + 4)
    assert kept.values[kept.known].tolist() == [800]
