"""The order of reading: a group works, and its topic grows, between any two of our calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from forecaster.ingest.kafka import KafkaOffsetSource
from forecaster.ingest.kafka_reader import Answer, TopicInfo
from forecaster.topics import GroupId, TopicPartition

GROUP = GroupId("billing")
P0 = TopicPartition("orders", 0)


class LivelyCluster:
    """Before each answer three hundred records come and the group commits all there are."""

    def __init__(self) -> None:
        self.end = 1_000

    def _end(self) -> int:
        self.end += 300
        return self.end

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo | str]:
        return {"orders": TopicInfo("id", {0: 1})}

    def committed(
        self, groups: Sequence[GroupId], partitions: Sequence[TopicPartition]
    ) -> Mapping[GroupId, Mapping[TopicPartition, int | None] | str]:
        return {GROUP: {P0: self._end()}}

    def ends(self, partitions: Sequence[TopicPartition]) -> Answer:
        return Answer({P0: self._end()})

    def starts(self, partitions: Sequence[TopicPartition]) -> Answer:
        return Answer({P0: self._end() - self.end})

    def kinds(self) -> Mapping[GroupId, str]:
        return {}

    def topics_of(self, group: GroupId) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Nothing is held."""


def test_a7_k13_a_commit_is_read_before_the_end_and_is_never_ahead_of_it() -> None:
    source = KafkaOffsetSource({}, reader=LivelyCluster(), clock=lambda: datetime(2026, 1, 5, tzinfo=UTC))
    for _ in range(3):
        sample = source.read(["orders"], [GROUP]).samples[P0]
        committed = sample.committed[GROUP]
        assert committed is not None and sample.log_end_offset - committed == 300
