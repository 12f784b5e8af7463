"""External sinks under the lease epoch: what was written by a later owner is never overwritten by an earlier one.

One row per partition says epoch and next offset. The owner raises it to its epoch when it starts (only upward); each
write is one transaction of the sink that requires ``epoch = mine and next_offset = my batch's start``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from balancer.consumer.errors import SinkAhead, WorkerFenced
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.consumer")


class Sink(Protocol):
    """Where results of the handler go in sink mode."""

    def raise_epoch(self, partition: TopicPartition, epoch: int) -> int | None:
        """Raise the partition's row to ``epoch``; return the next offset kept there, None if there is no row.

        Raises
        ------
        SinkAhead
            If the row has a higher epoch.
        """
        ...

    def begin(self, partition: TopicPartition, epoch: int, offset: int) -> None:
        """Make the row of a partition that has none."""
        ...

    def write(self, partition: TopicPartition, epoch: int, start: int, end: int, results: Sequence[Any]) -> None:
        """Write results of the records from ``start`` up to ``end`` and advance the row, all or nothing.

        Raises
        ------
        WorkerFenced
            If the row is not at ``epoch`` and ``start``: somebody later owns the partition.
        """
        ...

    def read_epochs(self) -> dict[TopicPartition, int]:
        """Return the epoch of every row, for a planner that founds lost books again."""
        ...


class SqlSink:
    """A sink in any DB-API database.

    Parameters
    ----------
    connect
        Makes a connection whose transactions are explicit (no autocommit).
    apply
        Called with (cursor, result) for each result that is not None, within the guarded transaction.
    mark
        The driver's parameter mark, ``?`` or ``%s``.
    group
        Name of the group; the table may be shared by several.
    """

    TABLE = "headway_offsets"

    def __init__(
        self, connect: Callable[[], Any], apply: Callable[[Any, Any], None], mark: str = "?", group: str = ""
    ) -> None:
        self._connection = connect()
        self._apply = apply
        self._group = group
        self._sql = {
            "create": (
                f"CREATE TABLE IF NOT EXISTS {self.TABLE} (consumer_group TEXT NOT NULL, topic TEXT NOT NULL, "
                "part INTEGER NOT NULL, epoch BIGINT NOT NULL, next_offset BIGINT NOT NULL, "
                "PRIMARY KEY (consumer_group, topic, part))"
            ),
            "raise": (
                f"UPDATE {self.TABLE} SET epoch = @ WHERE consumer_group = @ AND topic = @ AND part = @ AND epoch <= @"
            ),
            "read": f"SELECT epoch, next_offset FROM {self.TABLE} WHERE consumer_group = @ AND topic = @ AND part = @",
            "begin": (
                f"INSERT INTO {self.TABLE} (consumer_group, topic, part, epoch, next_offset) VALUES (@, @, @, @, @)"
            ),
            "advance": (
                f"UPDATE {self.TABLE} SET next_offset = @ "
                "WHERE consumer_group = @ AND topic = @ AND part = @ AND epoch = @ AND next_offset = @"
            ),
            "epochs": f"SELECT topic, part, epoch FROM {self.TABLE} WHERE consumer_group = @",
        }
        self._sql = {name: text.replace("@", mark) for name, text in self._sql.items()}
        with self._transaction() as cursor:
            cursor.execute(self._sql["create"])

    def _transaction(self) -> AbstractContextManager[Any]:
        return _Transaction(self._connection)

    def _key(self, tp: TopicPartition) -> tuple[str, str, int]:
        return self._group, tp.topic, tp.partition

    def raise_epoch(self, partition: TopicPartition, epoch: int) -> int | None:
        """See :meth:`Sink.raise_epoch`."""
        with self._transaction() as cursor:
            cursor.execute(self._sql["raise"], (epoch, *self._key(partition), epoch))
            raised = cursor.rowcount == 1
            cursor.execute(self._sql["read"], self._key(partition))
            row = cursor.fetchone()
        if row is None:
            return None
        if not raised:
            raise SinkAhead(
                f"sink has {partition} at epoch {row[0]}, above the granted {epoch}: the lease store has lost its "
                "past; the grant is given back, and every new one is higher, until it is above the sink's"
            )
        return int(row[1])

    def begin(self, partition: TopicPartition, epoch: int, offset: int) -> None:
        """See :meth:`Sink.begin`."""
        with self._transaction() as cursor:
            cursor.execute(self._sql["begin"], (*self._key(partition), epoch, offset))

    def write(self, partition: TopicPartition, epoch: int, start: int, end: int, results: Sequence[Any]) -> None:
        """See :meth:`Sink.write`."""
        with self._transaction() as cursor:
            cursor.execute(self._sql["advance"], (end, *self._key(partition), epoch, start))
            if cursor.rowcount != 1:
                raise WorkerFenced(f"sink no longer has {partition} at epoch {epoch} and offset {start}")
            for result in results:
                if result is not None:
                    self._apply(cursor, result)

    def read_epochs(self) -> dict[TopicPartition, int]:
        """See :meth:`Sink.read_epochs`."""
        with self._transaction() as cursor:
            cursor.execute(self._sql["epochs"], (self._group,))
            return {TopicPartition(topic, int(part)): int(epoch) for topic, part, epoch in cursor.fetchall()}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Transaction:
    """One transaction of a DB-API connection: commits at the end, rolls back on any error."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> Any:
        self._cursor = self._connection.cursor()
        return self._cursor

    def __exit__(self, kind: object, *_: object) -> None:
        undo = (self._connection.rollback, self._cursor.close) if kind is not None else (self._cursor.close,)
        try:
            if kind is None:
                self._connection.commit()
        finally:
            for tidy in undo:
                try:
                    tidy()
                except Exception as error:  # the connection is gone: what went wrong first is what must be told
                    log.debug("after an error in the sink: %s", error)


def sqlite_sink(path: str | Path, apply: Callable[[Any, Any], None], group: str = "") -> SqlSink:
    """Return a sink in an SQLite file.

    Examples
    --------
    >>> sink = sqlite_sink(":memory:", lambda cursor, row: cursor.execute("INSERT INTO sums VALUES (?)", (row,)))
    >>> sink.raise_epoch(TopicPartition("orders", 0), 3)
    >>> sink.begin(TopicPartition("orders", 0), 3, 10)
    >>> sink.raise_epoch(TopicPartition("orders", 0), 4)
    10
    """
    import sqlite3

    def connect() -> Any:
        connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    return SqlSink(connect, apply, "?", group)


def postgres_sink(dsn: str, apply: Callable[[Any, Any], None], group: str = "") -> SqlSink:
    """Return a sink in PostgreSQL (needs ``psycopg2``)."""
    import psycopg2

    return SqlSink(lambda: psycopg2.connect(dsn), apply, "%s", group)
