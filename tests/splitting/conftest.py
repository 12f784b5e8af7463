"""One small broker for the tests of this folder."""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Iterator

import pytest

from tests.peers.kafka import Kafka


@pytest.fixture(autouse=True)
def sockets_that_kafka_python_forgot() -> Iterator[None]:
    """Let go quietly of sockets that kafka-python drops unclosed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory() as folder, Kafka(folder) as running:
        yield running
