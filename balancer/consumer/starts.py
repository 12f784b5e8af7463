"""Where a worker starts a partition: at the offset handed over, else the committed one, else where the rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from balancer.consumer.errors import StartUnknown
from balancer.consumer.settings import StartAt, WorkerSettings
from balancer.consumer.sinks import Sink
from balancer.leases.base import Lease, StartRule
from balancer.leases.notes import read_commit_metadata
from forecaster.topics import TopicPartition

LogRange = Callable[[TopicPartition], tuple[int, int]]
"""A partition's first and next offset."""


def start_of(
    lease: Lease,
    committed: tuple[int, int | None, str] | None,
    settings: WorkerSettings,
    sink: Sink | None,
    log_range: LogRange,
) -> tuple[int, int | None, bool]:
    """Return (offset, leader epoch, whether that is committed already).

    Parameters
    ----------
    lease
        The lease just taken; it carries the offset that was handed over, if any.
    committed
        Offset, leader epoch and metadata as committed; None where nothing is. An offset of the topic's earlier life
        (another topic id) does not count.
    settings
        Where to start when nothing is known.
    sink
        In sink mode its own position is the one that counts; its epoch is raised to the lease's.
    log_range
        Asked only when nothing else tells.

    Raises
    ------
    StartUnknown
        If nothing is committed and the settings forbid to choose.
    """
    tp = lease.partition
    known: tuple[int, int | None] | None = None
    if lease.offset is not None:
        known = (lease.offset, lease.leader_epoch)
    elif committed is not None:
        note = read_commit_metadata(committed[2])
        if note is None or not note.topic_id or not lease.topic_id or note.topic_id == lease.topic_id:
            known = committed[:2]
    if sink is not None:
        kept = sink.raise_epoch(tp, lease.epoch)
        if kept is None:
            kept = known[0] if known else _first(lease, settings, log_range)
            sink.begin(tp, lease.epoch, kept)
        return kept, None, known is not None and known[0] == kept
    if known is not None:
        return *known, True
    return _first(lease, settings, log_range), None, False


class Unread:
    """Partitions whose committed offsets did not come, and when to ask again: ever more seldom, one at a time.

    Examples
    --------
    >>> from balancer.leases.base import LeaseState
    >>> unread, lease = Unread(), Lease(TopicPartition("orders", 0), LeaseState.HELD, None, 1)
    >>> unread.failed([lease.partition], now=10.0)
    >>> unread.due([lease], now=10.5), unread.due([lease], now=11.0) == [lease]
    ([], True)
    """

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[float, float]] = {}

    def failed(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Ask for these again, after twice the time that was waited before."""
        for tp in partitions:
            wait = min(30.0, 2 * self._waiting[tp][1]) if tp in self._waiting else 1.0
            self._waiting[tp] = now + wait, wait

    def read(self, partition: TopicPartition) -> None:
        """It has come."""
        self._waiting.pop(partition, None)

    def due(self, leases: Iterable[Lease], now: float) -> list[Lease]:
        """Return which to ask for now: those never asked for in vain, else one of those that were."""
        fresh, again = [], []
        for lease in leases:
            at = self._waiting.get(lease.partition)
            if at is None:
                fresh.append(lease)
            elif at[0] <= now:
                again.append(lease)
        return fresh or sorted(again, key=lambda lease: self._waiting[lease.partition])[:1]


def _first(lease: Lease, settings: WorkerSettings, log_range: LogRange) -> int:
    low, high = log_range(lease.partition)
    if lease.start is StartRule.BEGINNING or settings.start_at is StartAt.EARLIEST:
        return low
    if settings.start_at is StartAt.LATEST:
        return high
    raise StartUnknown(f"{lease.partition} has no committed offset and start_at=error: commit one, or choose a start")
