"""What every sink must do: one suite for SQLite and for a real PostgreSQL."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from balancer.consumer.errors import SinkAhead, WorkerFenced
from balancer.consumer.sinks import SqlSink, postgres_sink, sqlite_sink
from forecaster.topics import TopicPartition
from tests.peers.postgres import Postgres

P = TopicPartition("orders", 0)


class Bench:
    """A database with a table of results, in which several owners have their sinks."""

    def __init__(self, sink: Callable[..., SqlSink], connect: Callable[[], Any], mark: str) -> None:
        self._sink, self._connect, self._mark = sink, connect, mark
        self._made: list[SqlSink] = []
        for text in ("DROP TABLE IF EXISTS rows", "DROP TABLE IF EXISTS headway_offsets", "CREATE TABLE rows (v TEXT)"):
            self._do(text)

    def sink(self, group: str = "g") -> SqlSink:
        made = self._sink(self._apply, group)
        self._made.append(made)
        return made

    def _apply(self, cursor: Any, value: str) -> None:
        if value == "bad":
            raise ValueError("the database does not take it")
        cursor.execute(f"INSERT INTO rows VALUES ({self._mark})", (value,))

    def _do(self, text: str) -> list[Any]:
        connection = self._connect()
        cursor = connection.cursor()
        cursor.execute(text)
        found = list(cursor.fetchall()) if cursor.description else []
        connection.commit()
        connection.close()
        return found

    def rows(self) -> list[str]:
        return sorted(v for (v,) in self._do("SELECT v FROM rows"))

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="headway-postgres-"))
    folder.chmod(0o755)
    with Postgres(folder) as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        path = tmp_path / "sink.sqlite"
        made = Bench(lambda apply, group: sqlite_sink(path, apply, group), lambda: sqlite3.connect(path), "?")
    else:
        dsn = request.getfixturevalue("postgres").dsn
        made = Bench(lambda apply, group: postgres_sink(dsn, apply, group), lambda: psycopg2.connect(dsn), "%s")
    yield made
    made.close()


def test_a_partition_without_a_row_begins_where_it_is_told_and_advances_with_its_results(bench: Bench) -> None:
    sink = bench.sink()
    assert sink.raise_epoch(P, 1) is None
    sink.begin(P, 1, 100)
    sink.write(P, 1, 100, 102, ["a", None, "b"])
    assert bench.rows() == ["a", "b"]
    assert sink.raise_epoch(P, 1) == 102
    assert sink.read_epochs() == {P: 1}


def test_a_later_owner_shuts_the_earlier_one_out_before_it_reads(bench: Bench) -> None:
    old, new = bench.sink(), bench.sink()
    old.begin(P, 1, 0)
    old.write(P, 1, 0, 5, ["a"])
    assert new.raise_epoch(P, 4) == 5
    with pytest.raises(WorkerFenced, match="no longer has orders:0 at epoch 1 and offset 5"):
        old.write(P, 1, 5, 9, ["late"])
    new.write(P, 4, 5, 9, ["b"])
    assert bench.rows() == ["a", "b"]


def test_a_batch_is_written_once_however_often_it_is_tried(bench: Bench) -> None:
    sink = bench.sink()
    sink.begin(P, 1, 0)
    sink.write(P, 1, 0, 3, ["a"])
    with pytest.raises(WorkerFenced):
        sink.write(P, 1, 0, 3, ["a"])
    assert bench.rows() == ["a"]


def test_an_epoch_only_rises_and_a_higher_one_is_reported(bench: Bench) -> None:
    sink = bench.sink()
    sink.begin(P, 9, 7)
    with pytest.raises(SinkAhead, match="epoch 9, above the granted 3"):
        sink.raise_epoch(P, 3)
    assert sink.read_epochs() == {P: 9}


def test_what_cannot_be_applied_rolls_back_with_its_offset(bench: Bench) -> None:
    sink = bench.sink()
    sink.begin(P, 1, 0)
    with pytest.raises(ValueError, match="does not take it"):
        sink.write(P, 1, 0, 2, ["a", "bad"])
    assert bench.rows() == []
    sink.write(P, 1, 0, 1, ["a"])
    assert bench.rows() == ["a"]


def test_groups_share_a_table_without_seeing_each_other(bench: Bench) -> None:
    one, other = bench.sink("one"), bench.sink("other")
    one.begin(P, 1, 10)
    assert other.raise_epoch(P, 5) is None
    other.begin(P, 5, 0)
    assert (one.raise_epoch(P, 2), other.raise_epoch(P, 5)) == (10, 0)
