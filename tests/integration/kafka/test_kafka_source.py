"""The Kafka source on a real broker: both clients say the same, and every failure keeps its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Wire
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.admin import KafkaAdminClient

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest.base import OffsetReading
from forecaster.ingest.kafka import KafkaOffsetSource, reader_for
from forecaster.ingest.kafka_fast import FastReader, translated
from forecaster.ingest.kafka_full import FullReader
from forecaster.ingest.kafka_reader import BulkReader
from forecaster.ingest.recorder import Recorder
from forecaster.offsets import CountingPolicy, Reset
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from tests.chaos.bed import until
from tests.peers.kafka import PASSWORD, USER, Kafka

pytestmark = pytest.mark.kafka

Send = Callable[[str, int, int], None]
MakeTopic = Callable[..., str]


def fast(kafka: Kafka, timeout_s: float = 30) -> BulkReader:
    properties = {"bootstrap.servers": kafka.bootstrap}
    words = translated(properties)
    assert words is not None
    return FastReader(words, FullReader(properties, timeout_s), timeout_s)


def full(kafka: Kafka, timeout_s: float = 30) -> BulkReader:
    return FullReader({"bootstrap.servers": kafka.bootstrap}, timeout_s)


def read(kafka: Kafka, make: Callable[..., BulkReader], topics: list[str], *groups: GroupId) -> OffsetReading:
    with closing(KafkaOffsetSource({}, reader=make(kafka), starts_every_s=0)) as source:
        return source.read(topics, groups)


def commit(kafka: Kafka, group: str, topic: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    deadline = time.monotonic() + 90
    while True:
        try:
            consumer.commit(offsets=[Wire(topic, partition, offset)], asynchronous=False)
            break
        except Exception:  # K49: the first commit on a new coordinator
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    consumer.close()


@pytest.mark.parametrize("make", [fast, full])
def test_starts_ends_commits_ids_and_epochs_are_read(
    kafka: Kafka, admin: AdminClient, make_topic: MakeTopic, send: Send, make: Callable[..., BulkReader]
) -> None:
    topic = make_topic(3)
    send(topic, 0, 10)
    send(topic, 2, 4)
    commit(kafka, f"g-{topic}", topic, 0, 7)
    for future in admin.delete_records([Wire(topic, 0, 3)]).values():
        future.result(30)
    group, stranger = GroupId(f"g-{topic}"), GroupId("never-committed")
    reading = read(kafka, make, [topic], group, stranger)
    assert reading.failures == {}
    assert reading.partitions == {topic: 3}
    first = reading.samples[TopicPartition(topic, 0)]
    assert (first.log_start_offset, first.log_end_offset) == (3, 10)
    assert first.committed == {group: 7, stranger: None}
    assert first.leader_epoch == 0
    assert abs((datetime.now(UTC) - first.at).total_seconds()) < 30
    assert [reading.samples[TopicPartition(topic, p)].log_end_offset for p in range(3)] == [10, 0, 4]


def test_both_clients_say_the_same(kafka: Kafka, make_topic: MakeTopic, send: Send) -> None:
    topic = make_topic(2)
    send(topic, 1, 5)
    commit(kafka, f"g-{topic}", topic, 1, 5)
    one, other = (read(kafka, make, [topic], GroupId(f"g-{topic}")) for make in (fast, full))
    at = datetime.now(UTC)
    assert {tp: replace(s, at=at) for tp, s in one.samples.items()} == {
        tp: replace(s, at=at) for tp, s in other.samples.items()
    }


def test_a23_only_the_topics_asked_for_are_described(
    kafka: Kafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = make_topic(2), make_topic(2)
    asked: list[object] = []
    answered: set[str] = set()

    fetch, describe, every = (
        KafkaAdminClient._get_cluster_metadata,
        AdminClient.describe_topics,
        AdminClient.list_topics,
    )

    async def fetched(self: Any, topics: Any) -> Any:
        asked.append(topics)
        found = await fetch(self, topics)
        answered.update(t["name"] for t in found["topics"])
        return found

    def described(self: Any, topics: Any, **more: Any) -> Any:
        asked.append(topics.topic_names)
        return describe(self, topics, **more)

    def listed(self: Any, topic: Any = None, *more: Any, **words: Any) -> Any:
        asked.append(None if topic is None else [topic])
        return every(self, topic, *more, **words)

    monkeypatch.setattr(KafkaAdminClient, "_get_cluster_metadata", fetched)
    monkeypatch.setattr(AdminClient, "describe_topics", described)
    monkeypatch.setattr(AdminClient, "list_topics", listed)
    for make in (fast, full):
        with closing(make(kafka)) as reader:
            for _ in range(2):  # kafka-python is asked once the other has had an answer
                assert set(reader.describe([topic])) == {topic}
                assert reader.ends([TopicPartition(topic, 0)]).offsets == {TopicPartition(topic, 0): 0}
    assert set(read(kafka, fast, [topic]).partitions) == {topic}
    assert None not in asked, "the whole cluster"
    assert [topic] in asked and {topic} <= answered
    assert other not in answered and not any(other in names for names in asked if names)


def test_k49_commits_are_read_while_a_coordinator_loads_and_nothing_crashes(
    kafka: Kafka, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    send(topic, 0, 3)
    groups = [GroupId(f"g{n}-{topic}") for n in range(3)]
    for group in groups:
        commit(kafka, group, topic, 0, 2)
    with closing(fast(kafka)) as quick, closing(full(kafka)) as whole:
        for reader in (quick, whole):
            assert reader.committed(groups[:1], [TopicPartition(topic, 0)])
        kafka.kill()
        kafka.restart()
        deadline = time.monotonic() + 60
        wanted = {group: {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): None} for group in groups}
        for reader in (whole, quick):  # asked at once, and until the groups' coordinator is back
            found: Mapping[GroupId, Mapping[TopicPartition, int | None] | str] = dict.fromkeys(groups, "not asked")
            while any(isinstance(answer, str) for answer in found.values()):
                assert time.monotonic() < deadline, found
                with suppress(SourceUnavailable):
                    reader.describe([topic])  # as every look begins
                    found = reader.committed(groups, list(wanted[groups[0]]))
            partial = {g: {tp: answer.get(tp) for tp in wanted[g]} for g, answer in found.items() if answer}  # type: ignore[union-attr]
            assert partial == wanted


@pytest.mark.parametrize("make", [fast, full])
def test_a15_one_unknown_topic_does_not_silence_the_others(
    kafka: Kafka, make_topic: MakeTopic, make: Callable[..., BulkReader]
) -> None:
    topic = make_topic(1)
    reading = read(kafka, make, [topic, "no-such-topic"])
    assert set(reading.samples) == {TopicPartition(topic, 0)}
    assert reading.failures == {
        TopicPartition("no-such-topic", 0): (
            "topic no-such-topic does not exist; create it, or correct its name in the settings"
        )
    }
    assert read(kafka, make, ["no-such-topic"], GroupId("g")).samples == {}


def test_wrong_credentials_are_refused_by_name_without_the_password(kafka: Kafka) -> None:
    def login(password: str, timeout_s: float) -> OffsetReading:
        properties = {
            "bootstrap.servers": kafka.login_bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
        }
        with closing(KafkaOffsetSource(properties, timeout_s=timeout_s)) as source:
            return source.read(["no-such-topic"], [])

    assert login(PASSWORD, 60).failures
    with pytest.raises(SourceRefused, match="refuses us as headway") as refusal:
        login("let-me-in", 8)  # it is tried for so long
    assert "let-me-in" not in str(refusal.value)
    assert "password_file" in str(refusal.value)


def test_a_cluster_that_does_not_answer_is_named(kafka: Kafka) -> None:
    nobody = KafkaOffsetSource({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=2)
    with (
        closing(nobody),
        pytest.raises(SourceUnavailable, match=r"Kafka at 127\.0\.0\.1:1 does not answer .* check that it runs"),
    ):
        nobody.read(["orders"], [])
    with pytest.raises(SourceRefused, match=r"client properties cannot be used .*no\.such\.property.* correct them"):
        KafkaOffsetSource({"bootstrap.servers": kafka.bootstrap, "no.such.property": 1}).read(["orders"], [])
    assert isinstance(reader_for({"bootstrap.servers": "x", "sasl.mechanism": "OAUTHBEARER"}, 1), FullReader)


# kafka-python drops a socket unclosed when its broker dies under it; nothing of ours could close it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_counting_producer_sent_is_what_is_recorded_through_recreation_growth_and_a_broker_restart(
    kafka: Kafka, admin: AdminClient, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    group = GroupId(f"g-{topic}")
    clock = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    first = int(clock.timestamp()) // 60
    store = MemorySeriesStore(clock=lambda: clock)
    reads = KafkaOffsetSource({}, reader=fast(kafka, 10), clock=lambda: clock, starts_every_s=0)
    recorder = Recorder(
        store,
        reads,
        {group: (topic,)},
        policy=CountingPolicy(60, 1.0, 0.0),
        resets={group: Reset.EARLIEST},
        clock=lambda: clock,
    )

    def look() -> bool:
        nonlocal clock
        answered = recorder.tick().why is None
        clock = datetime.fromtimestamp(clock.timestamp() + 60, UTC)
        return answered

    assert look()
    send(topic, 0, 100)
    look()  # step 0: 100, 0
    send(topic, 1, 50)
    commit(kafka, group, topic, 0, 60)
    look()  # step 1: 0, 50; 60 consumed
    for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
        future.result(30)
    until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3, 90)
    send(topic, 2, 5)
    look()  # step 2: 0, 0, 5 (K19)
    kafka.kill()
    assert not look()  # step 3: nobody answered (A16, K7)
    kafka.restart()
    send(topic, 0, 7)
    deadline = time.monotonic() + 90
    while not look():  # steps 4 …: the leader epoch is another
        assert time.monotonic() < deadline
    back = round(clock.timestamp()) // 60 - first - 1
    send(topic, 0, 9)
    look()  # step `back`: 9
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    until(lambda: topic not in admin.list_topics(timeout=30).topics, 90)
    make_topic(3, topic)
    send(topic, 0, 1000)
    look()  # recreated, and already beyond its old end (K15, A9)
    send(topic, 0, 3)
    look()

    recorder.close()
    cells = store.read(SeriesKey(topic, "arrivals", None, 60), first, first + back + 3)
    got = [
        [int(v) if k else None for v, k in zip(vs, ks, strict=True)]
        for vs, ks in zip(cells.values, cells.known, strict=True)
    ]
    gap = [None] * (back - 3)
    assert got[0] == [100, 0, 0, *gap, 9, None, 3]
    assert got[1] == [0, 50, 0, *gap, 0, None, 0]
    assert got[2] == [None, None, 5, *gap, 0, None, 0]
    lag = store.read(SeriesKey(topic, "lag", group, 60), first, first + 3)
    assert lag.values[0].tolist() == [100, 40, 40]
    consumed = store.read(SeriesKey(topic, "consumed", group, 60), first, first + 3)
    assert (consumed.values[0].tolist(), consumed.known[0].tolist()) == ([0, 0, 0], [False, False, True])
