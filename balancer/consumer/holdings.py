"""What a worker holds: one partition each, from its start to its release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from balancer.leases.base import Lease
from forecaster.topics import TopicPartition


@dataclass(slots=True)
class Held:
    """One partition that is held: how far it is handled, and how far that is committed.

    ``position`` is the next offset to handle, ``committed`` the last one committed (next offset as well).
    """

    lease: Lease
    position: int
    committed: int
    note: str
    leader_epoch: int | None = None
    last: Any = None
    """Last message handled; its leader epoch goes beside the offset."""
    dirty: bool = False
    committed_at: float = 0.0
    failures: int = 0
    blocked_until: float | None = None
    results: list[Any] = field(default_factory=list)
    """Sink mode: what the handler returned since the last write."""

    @property
    def offset_row(self) -> tuple[int, int | None, str]:
        """What a commit says of it: next offset, leader epoch (K24), metadata."""
        if self.last is not None:
            self.leader_epoch = self.last.leader_epoch()
            self.last = None
        return self.position, self.leader_epoch, self.note

    def settled(self, position: int, now: float) -> None:
        """Everything up to ``position`` is committed."""
        self.committed, self.committed_at = position, now
        self.results.clear()

    def rewound(self) -> None:
        """Everything since the last commit is void."""
        self.position, self.dirty, self.last = self.committed, False, None
        self.results.clear()


class Holdings:
    """All partitions held, found by topic and number at the price of one dictionary look-up per record."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Held] = {}
        self.get = self._by_name.get

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._by_name.values()))

    def __contains__(self, tp: TopicPartition) -> bool:
        return (tp.topic, tp.partition) in self._by_name

    def of(self, tp: TopicPartition) -> Held | None:
        """Return what is held of a partition."""
        return self._by_name.get((tp.topic, tp.partition))

    def add(self, held: Held) -> None:
        """Hold one more."""
        tp = held.lease.partition
        self._by_name[tp.topic, tp.partition] = held

    def drop(self, tp: TopicPartition) -> Held | None:
        """Hold one less."""
        return self._by_name.pop((tp.topic, tp.partition), None)
