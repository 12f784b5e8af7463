"""One small broker for all tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from tests.integration.handover.pool import Pool
from tests.peers.kafka import Kafka

RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
"""Whoever comes by the open door may do everything; whoever logs in, what they were granted."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, overrides=RIGHTS) as running:
        yield running


@pytest.fixture
def pool(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Pool]:
    made = Pool(kafka.bootstrap, request.node.name)
    yield made
    made.close()
