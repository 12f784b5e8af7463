"""The port through which effects and offsets are made to last together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from forecaster.topics import TopicPartition

OffsetRow = tuple[int, int | None, str]
"""Next offset, leader epoch, metadata."""


class Effects(Protocol):
    """Writes results and commits offsets; a producer's transactions, or a member's commits."""

    is_open: bool

    def initialise(self) -> None:
        """Make sure that no earlier life of this instance can commit."""
        ...

    def warm(self, topics: Iterable[str]) -> None:
        """Learn what will be needed."""
        ...

    def begin(self) -> None:
        """Open a transaction, if none is open."""
        ...

    def produce(self, topic: str, key: Any, value: Any, headers: list[tuple[str, Any]] | None = None) -> None:
        """Write one record."""
        ...

    def writer(self, topic: str) -> Callable[[Any, bytes], None]:
        """Return a function of key and value that opens a transaction, if none is open, and writes to one topic."""
        ...

    def poll(self) -> None:
        """Serve callbacks."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetRow], group_metadata: Any) -> None:
        """Make what was written and the offsets last."""
        ...

    def abort(self) -> None:
        """Undo what was written since the last commit, as far as that is possible."""
        ...

    def close(self) -> None:
        """Give up connections."""
        ...
