"""A worker whose results go to a real PostgreSQL, which goes away in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from balancer.consumer import Mode
from balancer.consumer.sinks import SqlSink, postgres_sink
from forecaster.topics import TopicPartition
from tests.integration.handover.pool import Pool
from tests.peers.postgres import Postgres

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="headway-postgres-"))
    folder.chmod(0o755)
    with Postgres(folder) as running:
        yield running


def test_each_record_is_in_the_database_once_though_it_went_away_and_the_worker_with_it(
    pool: Pool, postgres: Postgres
) -> None:
    pool.create(pool.topic, partitions=2)
    with psycopg2.connect(postgres.dsn) as made, made.cursor() as cursor:
        cursor.execute("CREATE TABLE rows (id SERIAL, v TEXT)")
    made.close()

    def sink() -> SqlSink:
        return postgres_sink(
            postgres.dsn, lambda cursor, v: cursor.execute("INSERT INTO rows (v) VALUES (%s)", (v,)), pool.group
        )

    def rows() -> list[str]:
        with psycopg2.connect(postgres.dsn) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT v FROM rows ORDER BY id")
            found = [v for (v,) in cursor.fetchall()]
        connection.close()
        return found

    kind: dict[str, Any] = {"mode": Mode.SINK, "output_topic": None, "instance": 1}
    pool.plan()
    worker = pool.worker(lambda r: f"{r.partition}-{r.value.decode()}", sink=sink(), **kind)
    pool.ready(worker)
    for p in (0, 1):
        pool.write([f"{n:03d}" for n in range(40)], p)
    pool.wait(lambda: len(rows()) == 80)
    postgres.stop()
    pool.write([f"{n:03d}" for n in range(40, 60)], 0)
    worker.thread.join(120)
    assert isinstance(worker.error, psycopg2.Error), worker.error  # this life is over, and says why
    pool.workers.remove(worker)
    postgres.start()
    pool.worker(lambda r: f"{r.partition}-{r.value.decode()}", sink=sink(), **kind)
    pool.wait(lambda: len(rows()) >= 100)
    found = rows()
    assert [v for v in found if v.startswith("0-")] == [f"0-{n:03d}" for n in range(60)]
    assert [v for v in found if v.startswith("1-")] == [f"1-{n:03d}" for n in range(40)]
    assert sink().read_epochs()[TopicPartition(pool.topic, 0)] >= 2
