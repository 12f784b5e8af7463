"""One real broker for all tests of this folder, with a topic and a group name of its own for each."""

from __future__ import annotations

import gc
import uuid
import warnings
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.kafka import Kafka


@pytest.fixture(autouse=True)
def sockets_that_kafka_python_forgot() -> Iterator[None]:
    """Let go quietly of sockets that kafka-python drops unclosed when a broker dies under it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[..., str]:
    def make(partitions: int = 1, name: str | None = None, **config: str) -> str:
        topic = name or f"t-{uuid.uuid4().hex[:10]}"
        for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            future.result(60)
        return topic

    return make


@pytest.fixture
def send(kafka: Kafka) -> Callable[[str, int, int], None]:
    def send_records(topic: str, partition: int, count: int) -> None:
        # a producer of its own each time: it knows nothing of partitions and topics that are gone
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 5})
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
        assert producer.flush(60) == 0

    return send_records
