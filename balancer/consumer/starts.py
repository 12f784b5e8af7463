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
    """Partitions whose committed offsets did not come, and when to ask again.

    Whoever asks waits, and all that is held waits with it. So there is one pause for all of these partitions, twice as
    long after each time in vain; then one of them is asked for.

    Examples
    --------
    >>> from balancer.leases.base import LeaseState
    >>> unread, lease = Unread(), Lease(TopicPartition("orders", 0), LeaseState.HELD, None, 1)
    >>> unread.failed([lease.partition], now=10.0)
    >>> unread.due([lease], now=10.5), unread.due([lease], now=11.0) == [lease]
    ([], True)
    """

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, None] = {}  # in order: who was asked for last comes last
        self._pause_s = self._until = 0.0

    def failed(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """Ask for none of those that wait before twice the time is over that was waited before."""
        for tp in partitions:
            self._waiting.pop(tp, None)
            self._waiting[tp] = None
        self._pause_s = min(30.0, 2 * self._pause_s) or 1.0
        self._until = now + self._pause_s

    def read(self, partition: TopicPartition) -> None:
        """It has come: the others may as well."""
        if partition in self._waiting:
            del self._waiting[partition]
            self._pause_s = 0.0

    def due(self, leases: Iterable[Lease], now: float) -> list[Lease]:
        """Return which of all that are to be read to ask for now: those never asked for in vain, else one that was.

        What is not among them any more went elsewhere, and is forgotten.
        """
        wanted = {lease.partition: lease for lease in leases}
        self._waiting = {tp: None for tp in self._waiting if tp in wanted}
        fresh = [lease for tp, lease in wanted.items() if tp not in self._waiting]
        return fresh or ([wanted[tp] for tp in list(self._waiting)[:1]] if now >= self._until else [])


def _first(lease: Lease, settings: WorkerSettings, log_range: LogRange) -> int:
    low, high = log_range(lease.partition)
    if lease.start is StartRule.BEGINNING or settings.start_at is StartAt.EARLIEST:
        return low
    if settings.start_at is StartAt.LATEST:
        return high
    raise StartUnknown(f"{lease.partition} has no committed offset and start_at=error: commit one, or choose a start")
