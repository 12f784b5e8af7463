"""Servers that die, refuse, evict or run full: nothing acknowledged is lost, nothing is counted twice."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from forecaster.errors import SampleRejected, StoreRefused, StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.embedded import EmbeddedServer
from forecaster.stores.embedded_process import find_binary
from forecaster.stores.opening import open_store
from forecaster.stores.redis_store import RedisSeriesStore
from tests.peers import redis as peers
from tests.peers.timeseries import timeseries_server

T0 = datetime(2026, 1, 5, tzinfo=UTC)
I0 = int(T0.timestamp()) // 60
ARRIVALS = SeriesKey("orders", "arrivals")
LAG = SeriesKey("orders", "lag", "billing")

TIMESERIES = pytest.param("timeseries", marks=pytest.mark.timeseries)
REDIS7 = pytest.param("redis7", marks=pytest.mark.redis)


@contextlib.contextmanager
def started(kind: str, folder: Path, *options: str) -> Iterator[peers.Server]:
    if kind == "timeseries":
        with timeseries_server(folder, *options) as server:
            yield server
    else:
        binary = peers.debian_redis() if kind == "redis7" else find_binary()
        with peers.running(binary, folder, options) as server:
            yield server


def tick(index: int, value: int, partitions: int = 3) -> Tick:
    values = np.arange(partitions, dtype=np.int64) + value
    known = np.ones(partitions, dtype=np.bool_)
    return Tick("orders", 60, index, {ARRIVALS: (values, known), LAG: (values * 10, known)})


def sums(store: RedisSeriesStore, key: SeriesKey, steps: int) -> list[int]:
    return store.read(key, I0, I0 + steps).values.sum(axis=0).tolist()


def eventually(act: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except (StoreUnavailable, redis.exceptions.ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("kind", ["valkey", REDIS7, TIMESERIES])
def test_kill_9_loses_no_acknowledged_tick(kind: str, tmp_path: Path) -> None:
    """The server is killed three times amid ticks; a tick that was not acknowledged is sent again."""
    acknowledged = 0
    with started(kind, tmp_path) as server:
        store = open_store(server.url, "main", timeout_s=2)
        for n in range(120):
            if n in {25, 60, 95}:
                killer = threading.Timer(0.002, server.kill)
                killer.start()
                with contextlib.suppress(StoreUnavailable):
                    for again in range(n, n + 5):
                        store.append([tick(I0 + again, again)])
                        acknowledged = max(acknowledged, again + 1)
                killer.join()
                server.start()
                eventually(lambda: sums(store, ARRIVALS, 1))
                found = sums(store, ARRIVALS, acknowledged)
                assert found == [3 * i + 3 for i in range(acknowledged)]
            eventually(lambda n=n: store.append([tick(I0 + n, n)]))
            acknowledged = max(acknowledged, n + 1)
        assert sums(store, ARRIVALS, 120) == [3 * i + 3 for i in range(120)]
        assert sums(store, LAG, 120) == [30 * i + 30 for i in range(120)]
        assert store.waiting == 0
        store.close()


def test_the_embedded_server_killed_amid_ticks_comes_back_under_the_same_store(tmp_path: Path) -> None:
    import os
    import signal

    with EmbeddedServer(tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        for n in range(60):
            if n % 20 == 10:
                os.kill(server.pid, signal.SIGKILL)
            eventually(lambda n=n: store.append([tick(I0 + n, n)]))
        assert sums(store, ARRIVALS, 60) == [3 * i + 3 for i in range(60)]


def test_a_full_server_is_reported_and_its_ticks_follow_later(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        store.append([tick(I0, 0)])
        with server.client() as r:
            r.config_set("maxmemory", "1mb")
            for n in range(1, 4):
                with pytest.raises(StoreRefused, match=r"maxmemory.*retention"):
                    store.append([tick(I0 + n, n)])
            assert store.waiting == 3
            assert "3 ticks wait" in " ".join(store.health().warnings)
            assert sums(store, ARRIVALS, 4) == [3, 0, 0, 0], "what is there can still be read"
            r.config_set("maxmemory", "100mb")
        store.append([tick(I0 + 4, 4)])
        assert store.waiting == 0
        assert sums(store, ARRIVALS, 5) == [3, 6, 9, 12, 15]


def test_the_ring_is_bounded_and_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forecaster.stores.redis_store.RING_TICKS", 5)
    with started("valkey", tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        with server.client() as r:
            r.config_set("maxmemory", "1mb")
            for n in range(8):
                with pytest.raises(StoreRefused):
                    store.append([tick(I0 + n, n)])
            r.config_set("maxmemory", "100mb")
        assert store.waiting == 5
        store.append([])
        assert store.read(ARRIVALS, I0, I0 + 8).known.all(axis=0).tolist() == [False] * 3 + [True] * 5


def test_a_rejected_tick_does_not_wait_in_the_ring(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        with pytest.raises(SampleRejected):
            store.append([tick(int(time.time()) // 60 + 10, 1)])
        assert store.waiting == 0


def test_a_server_that_evicts_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with (
        started("valkey", tmp_path, "--maxmemory-policy", "allkeys-lru") as server,
        pytest.raises(StoreRefused, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"),
    ):
        open_store(server.url, "main")


@pytest.mark.redis
def test_a_read_only_replica_is_refused(tmp_path: Path) -> None:
    with (
        started("redis7", tmp_path / "a") as primary,
        started("redis7", tmp_path / "b", "--replicaof", "127.0.0.1", str(primary.port)) as replica,
        pytest.raises(StoreRefused, match=r"point .* at the primary"),
    ):
        open_store(replica.url, "main")


def test_a_primary_that_becomes_a_replica_refuses_ticks_and_keeps_them(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        store.append([tick(I0, 0)])
        with server.client() as r:
            r.replicaof("127.0.0.1", 1)
            with pytest.raises(StoreRefused, match="primary"):
                store.append([tick(I0 + 1, 1)])
            r.replicaof("NO", "ONE")
        store.append([tick(I0 + 2, 2)])
        assert sums(store, ARRIVALS, 3) == [3, 6, 9]


def test_a_fail_over_to_a_fresh_server_at_the_same_place(tmp_path: Path) -> None:
    """The replica that takes over has the data, and none of our scripts."""
    with started("valkey", tmp_path / "a") as primary, contextlib.closing(open_store(primary.url, "main")) as store:
        store.append([tick(I0, 0)])
        replica = peers.Server(find_binary(), tmp_path / "b", ("--replicaof", "127.0.0.1", str(primary.port)))
        replica.start()
        with replica.client() as r:
            deadline = time.monotonic() + 15
            while r.info("replication")["master_link_status"] != "up" or not r.dbsize():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            primary.kill()
            r.replicaof("NO", "ONE")
            r.script_flush()
        replica.stop()
        heir = peers.Server(find_binary(), tmp_path / "b", ("--port", str(primary.port)))
        heir.port = primary.port
        heir.start()
        try:
            eventually(lambda: store.append([tick(I0 + 1, 1)]))
            assert sums(store, ARRIVALS, 2) == [3, 6]
        finally:
            heir.stop()


def test_nobody_there(tmp_path: Path) -> None:
    (port,) = peers.free_ports(1)
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*is the server up"):
        open_store(f"redis://:s3cret@127.0.0.1:{port}", "main")
    with pytest.raises(StoreUnavailable):
        open_store(f"unix://{tmp_path}/none.sock", "main")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:6379", ""])
def test_an_url_that_is_none(url: str) -> None:
    with pytest.raises(StoreRefused, match="redis://, rediss:// or unix://"):
        open_store(url, "main")


def test_wrong_credentials_are_told_without_the_secret(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, server.client() as r:
        r.config_set("requirepass", "right")
        for url in (server.url, f"redis://:wr0ng@127.0.0.1:{server.port}"):
            with pytest.raises(StoreRefused, match="password") as refused:
                open_store(url, "main")
            assert "wr0ng" not in str(refused.value)
        with contextlib.closing(open_store(f"redis://:right@127.0.0.1:{server.port}", "main")) as store:
            assert "right" not in store.health().server


def test_another_database_than_0_is_refused(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, pytest.raises(StoreRefused, match="database 0"):
        open_store(server.url.replace("/0", "/3"), "main")


def test_no_append_only_file_is_warned_of(tmp_path: Path) -> None:
    with (
        started("valkey", tmp_path, "--appendonly", "no") as server,
        contextlib.closing(open_store(server.url, "main")) as store,
    ):
        assert any("appendonly" in warning for warning in store.health().warnings)


def test_keys_of_another_program_are_named_and_left_alone(tmp_path: Path) -> None:
    with (
        started("valkey", tmp_path) as server,
        contextlib.closing(open_store(server.url, "main", layout="rows")) as store,
    ):
        with server.client() as r:
            r.set(f"hw:row:{{main:orders}}:arrivals:60:{I0 // 120}", "x" * 1000)
            with pytest.raises(StoreRefused, match=r"hw:row:.*another program"):
                store.append([tick(I0, 0)])
            assert store.waiting == 0, "what can never be written is not tried for ever"
            other = SeriesKey("payments", "arrivals")
            one = (np.array([1]), np.array([True]))
            with pytest.raises(StoreRefused, match="another program"):
                store.append([tick(I0, 0), Tick("payments", 60, I0, {other: one})])
            assert store.read(other, I0, I0 + 1).known.all(), "the other topic's tick is not held up"
            r.set(f"hw:day:{{main:orders}}:arrivals:60:{I0 // 1440 - 1}", "y")
        with pytest.raises(StoreRefused, match="hw:day:"):
            store.backfill(
                ARRIVALS, Cells(I0 - 100, np.ones((1, 10), dtype=np.int64), np.ones((1, 10), dtype=np.bool_))
            )


@pytest.mark.parametrize("kind", ["valkey", TIMESERIES])
def test_sealing_late_ticks_backfill_and_reading_at_once(kind: str, tmp_path: Path) -> None:
    """Every acknowledged tick is there at the end, and no reader ever sees one vanish."""
    steps, errors, seen_less = 900, [], []
    progress = [0]
    with started(kind, tmp_path) as server:

        def recorder(offset: int) -> None:
            try:
                with contextlib.closing(open_store(server.url, "main")) as store:
                    for i in range(offset, steps, 2):
                        index = I0 + 1440 - steps // 2 + i
                        store.append([Tick("orders", 60, index, {ARRIVALS: (np.array([i + 1]), np.array([True]))})])
                        progress[0] = max(progress[0], i)
            except Exception as exc:
                errors.append(exc)

        def sealer() -> None:
            try:
                with contextlib.closing(open_store(server.url, "main")) as store:
                    while any(t.is_alive() for t in writers):
                        store.seal("orders", T0 + timedelta(days=1, hours=1))
                        store.backfill(
                            LAG, Cells(I0 + 1000, np.ones((1, 500), dtype=np.int64), np.ones((1, 500), dtype=np.bool_))
                        )
            except Exception as exc:
                errors.append(exc)

        def reader() -> None:
            try:
                known = 0
                with contextlib.closing(open_store(server.url, "main")) as store:
                    while any(t.is_alive() for t in writers):
                        now = int(store.read(ARRIVALS, I0, I0 + 2880).known.sum())
                        if now < known:
                            seen_less.append((known, now))
                        known = now
            except Exception as exc:
                errors.append(exc)

        writers = [threading.Thread(target=recorder, args=(n,)) for n in range(2)]
        others = [threading.Thread(target=sealer), threading.Thread(target=reader)]
        for thread in (*writers, *others):
            thread.start()
        for thread in (*writers, *others):
            thread.join()
        assert not errors
        assert not seen_less
        with contextlib.closing(open_store(server.url, "main")) as store:
            for _ in range(2):
                cells = store.read(ARRIVALS, I0 + 1440 - steps // 2, I0 + 1440 - steps // 2 + steps)
                assert cells.values[0].tolist() == list(range(1, steps + 1))
                store.seal("orders", T0 + timedelta(days=3))


@pytest.mark.parametrize("kind", ["valkey", TIMESERIES])
def test_a_tick_that_comes_while_its_day_is_being_sealed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after its day was packed and before the day is noted as sealed: the day must stay open."""
    with (
        started(kind, tmp_path) as server,
        contextlib.closing(open_store(server.url, "main")) as store,
        contextlib.closing(open_store(server.url, "main")) as recorder,
    ):
        recorder.append([tick(I0, 1)])
        pack = store._sealed.seal

        def pack_then_tick(*args: Any) -> Cells | None:
            packed = pack(*args)
            recorder.append([tick(I0 + 1, 2)])
            return packed

        monkeypatch.setattr(store._sealed, "seal", pack_then_tick)
        store.seal("orders", T0 + timedelta(days=1, hours=1))
        monkeypatch.undo()
        for _ in range(2):
            assert sums(store, ARRIVALS, 2) == [6, 9]
            store.seal("orders", T0 + timedelta(days=1, hours=1))
        meta = store.meta("orders")
        assert meta is not None
        assert meta.sealed_to_day == I0 // 1440 + 1


def test_two_recorders_that_disagree_on_the_partitions(tmp_path: Path) -> None:
    """One knows of eight partitions, the other still of three: rows are not torn, and nobody's cells are erased."""
    with (
        started("valkey", tmp_path) as server,
        contextlib.closing(open_store(server.url, "main")) as wide,
        contextlib.closing(open_store(server.url, "main")) as narrow,
    ):
        for n in range(6):
            for store, partitions in ((narrow, 3), (wide, 8), (narrow, 3)):
                store.append([tick(I0 + n, 100 * n, partitions)])
        cells = wide.read(ARRIVALS, I0, I0 + 6)
        assert cells.known.all()
        assert cells.values.tolist() == [[100 * n + p for n in range(6)] for p in range(8)]


def test_a_cluster_whose_slots_move_amid_ticks(tmp_path: Path) -> None:
    with (
        peers.cluster_of_three(tmp_path) as servers,
        contextlib.closing(open_store(servers[0].url, "main")) as store,
    ):
        keys = [SeriesKey(f"t{n}", "arrivals") for n in range(12)]
        one = (np.array([1, 2]), np.array([True, True]))

        def write(index: int) -> None:
            store.append([Tick(key.topic, 60, index, {key: one}) for key in keys])

        write(I0)
        for key in keys[:4]:
            peers.move_slot(servers, peers.slot(f"{{main:{key.topic}}}"))
            write(I0 + 1)
        assert all(store.read(key, I0, I0 + 2).known.all() for key in keys)
        assert store.topics() == tuple(sorted(key.topic for key in keys))


def test_all_keys_of_a_topic_share_one_slot(tmp_path: Path) -> None:
    with started("valkey", tmp_path) as server, contextlib.closing(open_store(server.url, "main")) as store:
        store.append([tick(I0, 1), tick(I0 + 1440, 2)])
        store.seal("orders", T0 + timedelta(days=1, hours=1))
        with server.client() as r:
            names = [key.decode() for key in r.keys("*")]
        assert len({peers.slot(name) for name in names if "orders" in name}) == 1
        assert all(name.startswith("hw:") for name in names)
