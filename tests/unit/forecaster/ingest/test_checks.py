"""What doctor finds at a source, and the remedy of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.ingest.checks import check_source
from forecaster.topics import GroupId, TopicPartition

AT = datetime(2026, 1, 5, tzinfo=UTC)
GROUP = GroupId("billing")


class Given:
    def __init__(self, answer: OffsetReading | Exception) -> None:
        self.answer = answer

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None: ...


def sample(committed: int | None, why: str | None = None) -> OffsetSample:
    return OffsetSample(AT, 0, 10, {GROUP: committed}, why=why)


def test_all_is_well() -> None:
    reading = OffsetReading({TopicPartition("orders", p): sample(5 if p else None) for p in range(2)})
    found = check_source(Given(reading), {GROUP: ["orders"]})
    assert [(f.name, f.ok, f.detail) for f in found] == [
        ("topic orders", True, "orders: 2 partitions answer"),
        ("group billing", True, "billing has committed on 1 of 2 partitions of orders"),
    ]


def test_unreachable_and_refused_are_told_apart() -> None:
    away = check_source(Given(SourceUnavailable("no answer")), {GROUP: ["orders"]})
    assert [(f.ok, f.detail, f.remedy) for f in away] == [
        (False, "no answer", "start it, or correct its address in the settings")
    ]
    refused = check_source(Given(SourceRefused("wrong password")), {GROUP: ["orders"]})
    assert "credentials" in refused[0].remedy


def test_unknown_topics_leaderless_partitions_and_silent_groups_are_named() -> None:
    reading = OffsetReading(
        {TopicPartition("orders", 0): sample(None, "group billing: its coordinator does not answer")},
        {
            TopicPartition("orders", 1): "the partition has no leader now",
            TopicPartition("orders", 2): "the partition has no leader now",
            TopicPartition("typo", 0): "topic typo does not exist; create it, or correct its name in the settings",
        },
    )
    found = check_source(Given(reading), {GROUP: ["orders", "typo"]})
    assert [(f.name, f.ok, f.detail) for f in found] == [
        ("topic orders", False, "orders: 1 partitions answer"),
        ("topic orders", False, "the partition has no leader now (2 partitions)"),
        ("topic typo", False, "topic typo does not exist; create it, or correct its name in the settings"),
        ("group billing", False, "group billing: its coordinator does not answer"),
    ]
    assert all(f.remedy for f in found[1:])
