"""The port through which offsets come in, whatever their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from forecaster.topics import GroupId, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetSample:
    """One look at one partition. ``None`` is "not known", with the reason in ``why``; never a sentinel number.

    Parameters
    ----------
    at
        When the end offset was read, aware UTC.
    log_start_offset, log_end_offset
        Oldest offset kept, and next offset to be written.
    committed
        Next offset to be read, by group; None if the group never committed. Read before the end offset.
    topic_id, leader_epoch
        Identity of the log: a change means that offsets before and after cannot be subtracted.
    """

    at: datetime
    log_start_offset: int | None
    log_end_offset: int | None
    committed: Mapping[GroupId, int | None] = field(default_factory=dict)
    topic_id: str | None = None
    leader_epoch: int | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetReading:
    """What one read brought: samples of the partitions that answered, and why the others did not."""

    samples: Mapping[TopicPartition, OffsetSample]
    failures: Mapping[TopicPartition, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions of each topic, as its metadata says."""


class OffsetSource(Protocol):
    """Where offsets come from."""

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Read offsets of all partitions of the topics, and what the groups committed there.

        A partial answer stays partial. Raises :class:`forecaster.errors.SourceUnavailable` or
        :class:`forecaster.errors.SourceRefused` when there is no answer at all.
        """
        ...

    def close(self) -> None:
        """Give up connections."""
        ...
