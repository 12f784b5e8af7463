"""What a handler gets, and what it may return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from balancer.consumer.errors import HandlerMisuse
from forecaster.topics import TopicPartition

Output = tuple[bytes | str | None, bytes | str | None]
"""Key and value of one record for the output topic."""


class Record(tuple[Any, int, bytes | None, bytes | None]):
    """One record of a topic, a thin view on the client's message.

    ``lease_epoch`` is the epoch of the lease under which it was fetched: it only grows, partition by partition.

    It is a tuple underneath, since that is what can be made from a whole batch without a step of Python for each.
    """

    __slots__ = ()

    def __new__(cls, message: Any, lease_epoch: int) -> Record:
        """Make the record of one message."""
        return tuple.__new__(cls, (message, lease_epoch, message.key(), message.value()))

    message = property(itemgetter(0), doc="The client's message.")
    lease_epoch = property(itemgetter(1), doc="Epoch of the lease under which it was fetched.")
    key = property(itemgetter(2), doc="Key, as it was written.")
    value = property(itemgetter(3), doc="Value, as it was written; None is a tombstone.")

    @property
    def topic(self) -> str:
        """Topic name."""
        return str(self.message.topic())

    @property
    def partition(self) -> int:
        """Partition number."""
        return int(self.message.partition())

    @property
    def offset(self) -> int:
        """Offset within the partition."""
        return int(self.message.offset())

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Headers in the order of the log."""
        return self.message.headers() or []

    @property
    def timestamp_ms(self) -> int | None:
        """Milliseconds since 1970-01-01T00:00Z, None if the log keeps none."""
        kind, value = self.message.timestamp()
        return None if kind == 0 else int(value)

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return f"Record({self.topic}:{self.partition}@{self.offset})"


def records_of(messages: Sequence[Any], lease_epoch: int) -> Iterator[Record]:
    """Make the records of messages of one kind."""
    kind = type(messages[0])
    facts = zip(messages, repeat(lease_epoch), map(kind.key, messages), map(kind.value, messages))
    return map(tuple.__new__, repeat(Record), facts)


def idempotence_key(record: Record) -> str:
    """Return a key that is the same each time this record is run: for effects outside Kafka that may be repeated.

    At-least-once handlers put it beside what they write (a unique column, an ``Idempotency-Key`` header) and let the
    other side drop what it has seen.
    """
    return f"{record.topic}:{record.partition}:{record.offset}"


def outputs_of(result: object, record: Record) -> Iterable[Output]:
    """Read what a handler returned for a record.

    Raises
    ------
    HandlerMisuse
        If it is anything but None, bytes, str, a (key, value) pair, or a list of those.

    Examples
    --------
    >>> class M:
    ...     def key(self): return b"k"
    ...     def value(self): return b"v"
    >>> list(outputs_of([b"v", ("other", None)], Record(M(), 1)))
    [(b'k', b'v'), ('other', None)]
    """
    if result is None:
        return ()
    if isinstance(result, bytes | str):
        return ((record.key, result),)
    if isinstance(result, tuple) and len(result) == 2 and all(isinstance(x, bytes | str | None) for x in result):
        return (result,)
    if isinstance(result, list):
        return [output for one in result for output in outputs_of(one, record)]
    raise HandlerMisuse(
        f"handler returned {type(result).__name__} for {record!r}: it may return None, bytes, str, (key, value), "
        "or a list of those"
    )
