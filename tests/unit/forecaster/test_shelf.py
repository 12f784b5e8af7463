"""A history on the shelf is the history that was put there, in memory as in a file, whatever the disk does."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.forecast import Forecast
from forecaster.series import ArrivalSeries
from forecaster.serving import ForecastService
from forecaster.shelf import Shelf
from forecaster.timegrid import TimeGrid
from tests.unit.forecaster.test_serving import DAY, NOW, STEP_S, filled, tick

GRID = TimeGrid(60)


def series(first: int, counts: np.ndarray, known: np.ndarray) -> ArrivalSeries:
    rows = tuple(range(counts.shape[0]))
    return ArrivalSeries("t", GRID, first, rows, np.where(known, counts, 0).astype(float), known)


def same(one: ArrivalSeries, other: ArrivalSeries) -> bool:
    return (
        (one.first_index, one.partitions, one.grid) == (other.first_index, other.partitions, other.grid)
        and np.array_equal(one.counts, other.counts)
        and np.array_equal(one.known, other.known)
    )


@given(
    rows=st.integers(1, 4),
    steps=st.integers(1, 50),
    pieces=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 90)), max_size=5),
    seed=st.integers(0, 10_000),
)
def test_extending_equals_writing_over_a_plain_array(
    tmp_path_factory: pytest.TempPathFactory, rows: int, steps: int, pieces: list[tuple[int, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shelves = (Shelf(), Shelf(tmp_path_factory.mktemp("shelf")))

    def some(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, 1 << 24, (rows, count)), rng.random((rows, count)) < 0.8

    counts, known = some(steps)
    for shelf in shelves:
        shelf.put(series(100, counts, known))
    for back, more in pieces:
        at = max(counts.shape[1] - back, 0)
        new, seen = some(more)
        counts = np.concatenate([counts[:, :at], new], axis=1)
        known = np.concatenate([known[:, :at], seen], axis=1)
        for shelf in shelves:
            shelf.extend(series(100 + at, new, seen))
    expected = series(100, counts, known)
    for shelf in shelves:
        assert same(shelf.take("t"), expected)
        assert same(shelf.take("t", 103), expected.between(103, 1 << 40))
        assert shelf.span("t") == (100, expected.end_index)
        shelf.drop("t")


def test_nothing_is_left_in_the_folder_and_little_in_memory(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "made")
    shelf.put(series(0, np.ones((8, 100_000)), np.full((8, 100_000), True)))
    assert list((tmp_path / "made").iterdir()) == []
    assert shelf.take("t").counts.sum() == 800_000


def refuse(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("written", [refuse, lambda *_: 3])
def test_a_full_disk_leaves_the_history_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[..., int]
) -> None:
    monkeypatch.setattr(os, "pwrite", written)
    shelf, whole = Shelf(tmp_path), series(5, np.ones((2, 9)), np.full((2, 9), True))
    shelf.put(whole)
    shelf.extend(series(14, np.ones((2, 1)), np.full((2, 1), True)))
    assert shelf.take("t").steps == 10


def test_a_folder_that_cannot_be_made_leaves_the_history_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shelf, whole = Shelf(tmp_path / "file"), series(5, np.ones((2, 9)), np.full((2, 9), True))
    shelf.put(whole)
    assert same(shelf.take("t"), whole)


def test_forecasts_from_files_equal_those_from_memory(tmp_path: Path) -> None:
    store = filled(days=20)
    filed, plain = ForecastService(store, folder=tmp_path), ForecastService(store)
    for k in range(40):
        at = NOW + k * timedelta(seconds=STEP_S)
        tick(store, at, [100 + k, 7])
        one, other = (service.forecast("orders", at, DAY) for service in (filed, plain))
        assert isinstance(one, Forecast)
        assert isinstance(other, Forecast)
        np.testing.assert_array_equal(one.rates, other.rates)
        assert one.reasons == other.reasons


@pytest.mark.parametrize("call", ["pwrite", "pread"])
def test_a_disk_that_fails_later_is_a_history_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = filled()
    service = ForecastService(store, folder=tmp_path)
    service.forecast("orders", NOW, DAY)
    tick(store, NOW, [55, 7])
    monkeypatch.setattr(os, call, refuse if call == "pwrite" else lambda *_: b"")
    later = NOW + timedelta(seconds=STEP_S)
    seen = service.history("orders", later)
    assert seen is not None
    assert seen.counts[:, -1].tolist() == [55, 7]
    assert seen.end_index == int(later.timestamp()) // STEP_S


def test_a_silent_store_is_answered_from_the_file(tmp_path: Path) -> None:
    store = filled()
    service = ForecastService(store, folder=tmp_path)
    service.forecast("orders", NOW, DAY)
    store.silent = True
    result = service.forecast("orders", NOW + timedelta(minutes=20), DAY)
    assert isinstance(result, Forecast)
    assert result.reasons[0].startswith("the store does not answer")


def test_what_is_backfilled_just_before_a_young_history_is_seen(tmp_path: Path) -> None:
    store = filled(days=0)
    tick(store, NOW, [5, 6])
    for service in (ForecastService(store, folder=tmp_path), ForecastService(store)):
        step = timedelta(seconds=STEP_S)
        first = service.history("orders", NOW + step)
        assert first is not None
        tick(store, NOW - 3 * step, [1, 2])
        again = service.history("orders", NOW + 2 * step)
        assert again is not None
        assert (first.steps, again.counts[:, 0].tolist()) in ((1, [1, 2]), (4, [1, 2]))
