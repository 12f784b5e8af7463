"""RedisTimeSeries as it really is: what it does to the careless, and that we are not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from forecaster.errors import SampleRejected, StoreRefused
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.opening import open_store
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_store import RedisSeriesStore
from tests.peers import redis as peers
from tests.peers.timeseries import timeseries_server

pytestmark = pytest.mark.timeseries

T0 = datetime(2026, 1, 5, tzinfo=UTC)
I0 = int(T0.timestamp()) // 60
ARRIVALS = SeriesKey("orders", "arrivals")
NAME = RedisKeys("main").timeseries(ARRIVALS, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.Server]:
    with timeseries_server(tmp_path_factory.mktemp("timeseries")) as server:
        yield server


@pytest.fixture
def raw(server: peers.Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def store(server: peers.Server, raw: redis.Redis) -> Iterator[RedisSeriesStore]:
    with contextlib.closing(open_store(server.url, "main")) as store:
        yield store


def tick(index: int, *values: int) -> Tick:
    return Tick("orders", 60, index, {ARRIVALS: (np.array(values), np.ones(len(values), dtype=np.bool_))})


def cells(first: int, values: np.ndarray) -> Cells:
    table = np.atleast_2d(values).astype(np.int64)
    return Cells(first, table, np.ones(table.shape, dtype=np.bool_))


def info(raw: redis.Redis, name: str = NAME) -> dict[str, Any]:
    flat: list[Any] = raw.execute_command("TS.INFO", name)  # type: ignore[assignment]
    return {k.decode(): v for k, v in zip(flat[::2], flat[1::2], strict=True)}


def test_auto_takes_time_series_where_the_server_has_them(store: RedisSeriesStore, tmp_path: Path) -> None:
    assert (store.layout, store.health().layout) == ("timeseries", "timeseries")
    with EmbeddedServer(tmp_path) as plain:
        with contextlib.closing(open_store(plain.url, "main")) as rows:
            assert rows.layout == "rows"
        with pytest.raises(StoreRefused, match="no RedisTimeSeries here"):
            open_store(plain.url, "main", layout="timeseries")


def test_auto_takes_rows_where_the_user_may_not_use_time_series(server: peers.Server, raw: redis.Redis) -> None:
    raw.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~hw:*", "+@all", "-ts.get", "-ts.madd")
    url = f"redis://limited:pw@127.0.0.1:{server.port}/0"
    with contextlib.closing(open_store(url, "limited")) as rows:
        assert rows.layout == "rows"
        rows.append([tick(I0, 1)])


def test_series_are_set_up_for_others_to_read(store: RedisSeriesStore, raw: redis.Redis) -> None:
    store.append([tick(I0, 5, 6), tick(I0 + 1, 7, 8)])
    assert raw.execute_command("TS.RANGE", NAME, "-", "+") == [[I0 * 60_000, b"5"], [(I0 + 1) * 60_000, b"7"]]
    facts = info(raw)
    assert (facts["chunkSize"], facts["duplicatePolicy"]) == (1024, b"last")
    assert facts["retentionTime"] == 63 * 86_400_000
    assert dict(map(tuple, facts["labels"])) == {
        b"cluster": b"main", b"topic": b"orders", b"partition": b"0", b"metric": b"arrivals", b"step_s": b"60",
    }  # fmt: skip


def test_a_sample_of_the_future_would_drop_the_history_and_never_arrives(
    store: RedisSeriesStore, raw: redis.Redis
) -> None:
    store.append([tick(I0 + i, i + 1) for i in range(10)])
    with pytest.raises(SampleRejected, match="future"):
        store.append([tick(I0 + 10**6, 1)])
    assert store.read(ARRIVALS, I0, I0 + 10).known.all()
    raw.execute_command("TS.MADD", NAME, (I0 + 10**6) * 60_000, 1)  # the trap itself
    assert not store.read(ARRIVALS, I0, I0 + 10).known.any()


def test_values_are_sent_as_plain_numbers(store: RedisSeriesStore, raw: redis.Redis) -> None:
    with pytest.raises(redis.exceptions.RedisError):
        raw.execute_command("TS.CREATE", "x")
        raw.execute_command("TS.ADD", "x", 1000, repr(np.float64(1.5)))
    store.append([tick(I0, 2**53 - 1)])
    assert int(store.read(ARRIVALS, I0, I0 + 1).values[0, 0]) == 2**53 - 1


def test_history_behind_the_newest_is_made_beside_and_put_in_place(store: RedisSeriesStore, raw: redis.Redis) -> None:
    rng = np.random.default_rng(3)
    older, newer = rng.poisson(50, 3000), rng.poisson(50, 2000)
    store.backfill(ARRIVALS, cells(I0, newer))
    raw.execute_command("TS.CREATE", f"{NAME}:hourly", "RETENTION", 0)
    raw.execute_command("TS.CREATERULE", NAME, f"{NAME}:hourly", "AGGREGATION", "sum", 3_600_000)
    store.append([tick(I0 + 2000, 9), tick(I0 + 2001, 11)])
    before = info(raw)
    store.backfill(ARRIVALS, cells(I0 - 3000, older))
    after = info(raw)
    assert after["labels"] == before["labels"]
    assert after["retentionTime"] == before["retentionTime"]
    assert [rule[:3] for rule in after["rules"]] == [rule[:3] for rule in before["rules"]] != []
    assert after["totalSamples"] == 5002
    assert store.read(ARRIVALS, I0 - 3000, I0 + 2002).values[0].tolist() == [*older, *newer, 9, 11]
    assert not list(raw.scan_iter("*:draft"))
    found = raw.execute_command("TS.QUERYINDEX", "topic=orders", "metric=arrivals")
    assert found == [NAME.encode()]


def test_history_in_order_goes_straight_in(store: RedisSeriesStore, raw: redis.Redis) -> None:
    store.backfill(ARRIVALS, cells(I0, np.arange(1500)))
    store.backfill(ARRIVALS, cells(I0 + 1500, np.arange(1500)))
    assert info(raw)["totalSamples"] == 3000


def test_history_behind_the_newest_costs_the_server_little(store: RedisSeriesStore, raw: redis.Redis) -> None:
    """The naive way takes the server at least twice as long (benchmarks/storage.py has the figure)."""
    newer = cells(I0, np.random.default_rng(0).poisson(50, (4, 8000)))
    older = cells(I0 - 8000, np.random.default_rng(1).poisson(50, (4, 8000)))

    def server_s() -> float:
        cpu = raw.info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])

    store.backfill(ARRIVALS, newer)
    began = server_s()
    store.backfill(ARRIVALS, older)
    ours = server_s() - began
    naive = SeriesKey("naive", "arrivals")
    store.backfill(naive, newer)
    began = server_s()
    for p in range(4):
        name = RedisKeys("main").timeseries(naive, p)
        for start in range(0, 8000, 2000):
            words = [
                word
                for i, value in enumerate(older.values[p, start : start + 2000].tolist(), older.first_index + start)
                for word in (name, i * 60_000, value)
            ]
            raw.execute_command("TS.MADD", *words)
    assert server_s() - began > 2 * ours


def test_a_key_of_another_kind_is_told(store: RedisSeriesStore, raw: redis.Redis) -> None:
    raw.set(NAME, "mine")
    with pytest.raises(StoreRefused, match=r"orders: .*|WRONGTYPE"):
        store.append([tick(I0, 1)])
    assert raw.get(NAME) == b"mine"


def test_new_partitions_get_their_series(store: RedisSeriesStore) -> None:
    store.append([tick(I0, 1)])
    store.append([tick(I0 + 1, 1, 2, 3)])
    read = store.read(ARRIVALS, I0, I0 + 2)
    assert read.known.tolist() == [[True, True], [False, True], [False, True]]


def test_aggregating_over_gaps_is_left_to_numpy(store: RedisSeriesStore, raw: redis.Redis) -> None:
    """The server's EMPTY gives 0 for a sum over a gap: a wrong number; our hours are missing there."""
    store.append([tick(I0, 4), tick(I0 + 130, 4), tick(I0 + 1440, 1)])
    hour = 3_600_000
    asked = raw.execute_command("TS.RANGE", NAME, I0 * 60_000, (I0 + 180) * 60_000, "AGGREGATION", "sum", hour, "EMPTY")
    assert [I0 * 60_000 + hour, b"0"] in asked
    store.seal("orders", datetime(2026, 1, 6, 1, tzinfo=UTC))
    sums, peaks = store.read_hourly(ARRIVALS, I0 // 60, I0 // 60 + 3)
    assert not sums.known.any()
    assert peaks.known.tolist() == [[True, False, True]]


def test_a_sealed_day_outlives_its_series(store: RedisSeriesStore, raw: redis.Redis) -> None:
    store.append([tick(I0 + i, i) for i in range(5)] + [tick(I0 + 1440, 1)])
    assert store.seal("orders", datetime(2026, 1, 6, 1, tzinfo=UTC)) == 1
    raw.delete(NAME)
    assert store.read(ARRIVALS, I0, I0 + 5).values.tolist() == [[0, 1, 2, 3, 4]]


def test_ticks_during_a_backfill_are_kept(server: peers.Server, store: RedisSeriesStore) -> None:
    import threading

    store.backfill(ARRIVALS, cells(I0, np.ones((3, 3000))))
    errors: list[Exception] = []

    def record() -> None:
        try:
            with contextlib.closing(open_store(server.url, "main")) as recorder:
                for i in range(150):
                    recorder.append([tick(I0 + 3000 + i, i, i, i)])
        except Exception as exc:
            errors.append(exc)

    thread = threading.Thread(target=record)
    thread.start()
    while thread.is_alive():
        store.backfill(ARRIVALS, cells(I0 - 2000, np.full((3, 2000), 7)))
    thread.join()
    assert not errors
    read = store.read(ARRIVALS, I0 - 2000, I0 + 3150)
    assert read.known.all()
    assert read.values[:, 5000:].tolist() == [list(range(150))] * 3
