"""One small broker for the schedules of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from tests.peers.kafka import Kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, doors=3) as running:
        yield running
