"""Pushed rows: all or none, and the same again changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from forecaster.errors import InputRefused
from forecaster.ingest.push import PushedRow, push
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
I0 = int(NOW.timestamp()) // 60
KEY = SeriesKey("orders", "arrivals")


def row(minutes_ago: float, count: int, partition: int = 0) -> PushedRow:
    return PushedRow(NOW - timedelta(minutes=minutes_ago), partition, count)


def test_rows_in_any_order_are_written_and_the_others_stay_as_they_were() -> None:
    store = MemorySeriesStore(clock=lambda: NOW)
    done = push(store, "orders", 60, [row(1, 5), row(2, 4, 2), row(2, 3)], NOW)
    assert (done.rows, done.steps, done.partitions) == (3, 2, 2)
    push(store, "orders", 60, [row(1, 9, 1)], NOW)
    cells = store.read(KEY, I0 - 2, I0)
    assert cells.known.tolist() == [[True, True], [False, True], [True, False]]
    assert cells.values.tolist() == [[3, 5], [0, 9], [4, 0]]


def test_the_same_push_again_changes_nothing_and_a_correction_replaces() -> None:
    store = MemorySeriesStore(clock=lambda: NOW)
    for count in (5, 5, 6):
        push(store, "orders", 60, [row(1, count)], NOW)
    assert store.read(KEY, I0 - 1, I0).values.tolist() == [[6]]


def test_weeks_of_rows_at_once_are_history() -> None:
    store = MemorySeriesStore(clock=lambda: NOW)
    rows = [row(m, m) for m in range(1, 20_000)]
    assert push(store, "orders", 60, rows, NOW).steps == 19_999
    cells = store.read(KEY, I0 - 19_999, I0)
    assert cells.known.all()
    assert cells.values[0].tolist() == list(range(19_999, 0, -1))
    push(store, "orders", 60, [row(19_000, 7)], NOW)
    assert store.read(KEY, I0 - 19_000, I0 - 18_999).values.tolist() == [[7]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows is empty"),
        ([row(1, 1), row(2, -1)], r"rows\[1\]: count -1 is negative"),
        ([row(1, 2**53 + 1)], r"rows\[0\]: count .* more than"),
        ([row(1, 1, -1)], r"partition -1"),
        ([row(1, 1, 10**9)], r"partition 1000000000"),
        ([row(1.5, 1)], r"not the start of a 60 s step; the nearest is 2026-01-05T08:58"),
        ([row(-5, 1)], r"is in the future"),
        ([row(1, 1), row(1, 1)], r"rows\[1\]: .* given twice"),
        ([PushedRow(datetime(2026, 1, 5, 9, 0), 0, 1)], r"has no zone"),
        ([row(1, 1, 99_999), row(600, 1), row(50_000, 1)], r"send fewer steps"),
    ],
)
def test_one_row_that_cannot_be_meant_refuses_them_all(rows: list[PushedRow], message: str) -> None:
    store = MemorySeriesStore(clock=lambda: NOW)
    with pytest.raises(InputRefused, match=message):
        push(store, "orders", 60, rows, NOW)
    assert store.topics() == ()


def test_a_step_that_does_not_fit_is_refused() -> None:
    store = MemorySeriesStore(clock=lambda: NOW)
    with pytest.raises(InputRefused, match="divides a day"):
        push(store, "orders", 7, [row(1, 1)], NOW)
    push(store, "orders", 60, [row(1, 1)], NOW)
    with pytest.raises(InputRefused, match="recorded in steps of 60 s, not 300 s"):
        push(store, "orders", 300, [row(0, 1)], NOW)
