"""What the observer sees of each kind of group on a real broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer

from balancer.errors import ObserverUnavailable
from balancer.group import GroupProtocol, PartitionState
from balancer.observers.kafka import KafkaGroupObserver
from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.topics import GroupId, TopicPartition
from tests.peers.kafka import Kafka

pytestmark = pytest.mark.kafka


@contextmanager
def member(kafka: Kafka, group: str, topic: str, **more: object) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0, **more}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    deadline = time.monotonic() + 120
    while not consumer.assignment():
        consumer.poll(0.2)
        assert time.monotonic() < deadline
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("more", "protocol"),
    [({}, GroupProtocol.CLASSIC), ({"group.protocol": "consumer"}, GroupProtocol.CONSUMER)],
)
def test_k46_members_and_what_they_own_under_either_protocol(
    kafka: Kafka, make_topic: Callable[..., str], more: dict[str, str], protocol: GroupProtocol
) -> None:
    topic = make_topic(3)
    group = GroupId(f"g-{topic}")
    state = {TopicPartition(topic, 0): PartitionState(5, 1.0)}
    observer = KafkaGroupObserver(
        {"bootstrap.servers": kafka.bootstrap}, facts=lambda g: state if g == group else {}, replicas=lambda g: 4
    )
    with closing(observer), member(kafka, group, topic, **{"group.instance.id": "one"}, **more):
        seen = observer.observe(group)
    assert seen.protocol is protocol
    assert seen.assignment == {"one": tuple(TopicPartition(topic, p) for p in range(3))}
    assert (seen.replicas, seen.lag, seen.working) == (4, (5, 1.0), 1)


def join_share_group(kafka: Kafka, group: str, topic: str) -> None:
    """Send one ShareGroupHeartbeat by hand: no Python client has share groups yet."""

    def compact(text: str) -> bytes:
        return bytes([len(text) + 1]) + text.encode()

    body = compact(group) + compact("bWVtYmVyLW9uZS1vZi1vbmU") + struct.pack(">i", 0) + b"\0"
    body += bytes([2]) + compact(topic) + b"\0"
    deadline = time.monotonic() + 120
    while True:
        head = struct.pack(">hhih", 76, 1, 1, 4) + b"test" + b"\0"
        with socket.create_connection(("127.0.0.1", kafka.ports[0]), timeout=10) as s, s.makefile("rb") as reply:
            s.sendall(struct.pack(">i", len(head + body)) + head + body)
            answer = reply.read(struct.unpack(">i", reply.read(4))[0])
        error = struct.unpack(">h", answer[9:11])[0]  # correlation id, tags, throttle, then the error
        if error == 0:
            return
        assert time.monotonic() < deadline, f"error {error}"
        time.sleep(0.2)


def test_a_share_group_is_a_share_group_and_not_an_empty_one(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic = make_topic(1)
    join_share_group(kafka, f"s-{topic}", topic)
    with closing(KafkaOffsetSource({"bootstrap.servers": kafka.bootstrap})) as source:
        observer = KafkaGroupObserver({"bootstrap.servers": kafka.bootstrap}, kind_of=source.kind_of)
        assert observer.observe(GroupId(f"s-{topic}")).protocol is GroupProtocol.SHARE


def test_k46_a_group_that_nobody_has_is_unknown_and_a_cluster_that_is_away_is_an_error(kafka: Kafka) -> None:
    seen = KafkaGroupObserver({"bootstrap.servers": kafka.bootstrap}).observe(GroupId("nobody"))
    assert (seen.protocol, seen.members, seen.replicas) == (GroupProtocol.UNKNOWN, (), None)
    away = KafkaGroupObserver({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1)
    with pytest.raises(ObserverUnavailable, match=r"group orders on 127\.0\.0\.1:1"):
        away.observe(GroupId("orders"))
    with pytest.raises(ObserverUnavailable, match=r"no\.such\.property"):
        KafkaGroupObserver({"no.such.property": 1})
