"""The store is backed up and restored as `docs/capacity.md` says, with the order of its steps."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np

from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.embedded_process import find_binary
from forecaster.stores.opening import open_store
from tests.peers.redis import Server

KEY = SeriesKey("orders", "arrivals")
FIRST = int(time.time()) // 60 - 100
PAGE = Path(__file__).resolve().parents[3] / "docs" / "capacity.md"


def counts(server: Server) -> list[list[int]]:
    store = open_store(server.url, "main")
    try:
        cells = store.read(KEY, FIRST, FIRST + 3)
        return np.where(cells.known, cells.values, -1).tolist()
    finally:
        store.close()


def test_a_back_up_comes_back_only_where_the_log_is_off_at_first(tmp_path):
    with Server(find_binary(), tmp_path / "old") as old:
        store = open_store(old.url, "main")
        store.backfill(KEY, Cells(FIRST, np.array([[5, 0, 7]]), np.ones((1, 3), dtype=np.bool_)))
        store.close()
        with old.client() as client:
            client.save()  # the file that redis-cli --rdb fetches
    for name in ("trap", "new"):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "old" / "dump.rdb", tmp_path / name)
    with Server(find_binary(), tmp_path / "trap") as trap, trap.client() as client:
        assert client.dbsize() == 0
    with Server(find_binary(), tmp_path / "new", ("--appendonly", "no")) as restored, restored.client() as client:
        assert counts(restored) == [[5, 0, 7]]
        client.config_set("appendonly", "yes")
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.05)
    with Server(find_binary(), tmp_path / "new") as as_ever:
        assert counts(as_ever) == [[5, 0, 7]]
    steps = [PAGE.read_text().index(step) for step in ("--rdb headway.rdb", "--appendonly no", "set appendonly yes")]
    assert steps == sorted(steps)
