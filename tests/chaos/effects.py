"""Results that are not in the output topic: in an external sink, or effects that handlers have by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.rows import OUT, Row, Verdict, judge, judge_repeats


class SinkRows:
    """Rows of an SQLite sink, in the order in which they were written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "sink.sqlite"
        with sqlite3.connect(self._path) as made:
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("CREATE TABLE rows (row BLOB)")
        made.close()
        self._last = 0
        self._rows: list[Row] = []

    def rows(self) -> list[Row]:
        """Return all rows so far."""
        connection = sqlite3.connect(self._path, timeout=30)
        for number, raw in connection.execute(
            "SELECT rowid, row FROM rows WHERE rowid > ? ORDER BY rowid", [self._last]
        ):
            self._rows.append(Row(*OUT.unpack(raw), 0.0))
            self._last = number
        connection.close()
        return self._rows

    def seen(self) -> dict[int, int]:
        """Return partition → the input offset after the last one that has come."""
        return {row.partition: row.offset + 1 for row in self.rows()}

    def judge(self, ends: Mapping[int, int]) -> Verdict:
        """Count what went wrong: everything must be there exactly once and in order."""
        return judge(self.rows(), ends)


class EffectRows:
    """What at-least-once handlers wrote into a file for each life, in the order of the clock that all share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self) -> list[Row]:
        """Return all rows so far."""
        found = []
        for path in self._folder.glob("*.rows"):
            raw = path.read_bytes()
            raw = raw[: len(raw) - len(raw) % OUT.size]
            found += [Row(*values, 0.0) for values in OUT.iter_unpack(raw)]
        return sorted(found, key=lambda row: row.handled)

    def seen(self) -> dict[int, int]:
        """Return partition → the input offset after the highest one that has come."""
        found: dict[int, int] = {}
        for row in self.rows():
            found[row.partition] = max(found.get(row.partition, 0), row.offset + 1)
        return found

    def judge(self, ends: Mapping[int, int]) -> Verdict:
        """Count what went wrong: nothing may be lost, and nothing repeated from further back than a batch."""
        return judge_repeats(self.rows(), ends)
