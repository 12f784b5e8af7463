"""The incremental state: constant work a tick, restartable from bytes, as good as the pass over time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from forecaster.methods.grid_state import GridState

from .histories import daily, series

FIVE_MINUTES = 300
DAY = 288


def history(days=22, rows=3, noise=0.05):
    return series(daily(days=days, rows=rows, step_s=FIVE_MINUTES, noise=noise), step_s=FIVE_MINUTES)


def test_ticks_and_history_give_the_same_state():
    whole = history()
    split = whole.end_index - 500
    state = GridState.of(whole)
    again = GridState.of(whole.between(whole.first_index, split))
    assert again.next_index == split
    for i in range(whole.steps - 500, whole.steps):
        again.update(whole.counts[:, i], whole.known[:, i])
    assert again.next_index == state.next_index
    # parameters are chosen at the split, seasons start from what was known there
    ratio = again.path(DAY) / np.maximum(state.path(DAY), 1)
    assert np.median(np.abs(np.log(ratio[ratio > 0]))) < 0.1


def test_forecasts_a_regular_day():
    whole = history(days=29, noise=0.02)
    cut = whole.end_index - DAY
    path = GridState.of(whole.between(whole.first_index, cut)).path(DAY)
    truth = whole.counts[:, -DAY:]
    assert np.abs(path - truth).sum() / truth.sum() < 0.1


def test_at_most_30_kb_a_partition():
    assert GridState.of(history(days=2)).bytes_per_row <= 30_000


def test_gaps_change_no_level():
    state = GridState.of(history())
    before = state.level.copy()
    for _ in range(12):
        state.update(np.zeros(3), np.zeros(3, dtype=bool))
    np.testing.assert_array_equal(state.level, before)
    assert np.isfinite(state.path(DAY)).all()


def test_minutes_share_a_five_minute_slot():
    minutes = series(daily(days=4, rows=1, step_s=60, noise=0.02), step_s=60)
    state = GridState.of(minutes)
    assert state.slot_steps == 5 and state.day.shape[0] == DAY
    assert state.path(60).shape == (1, 60)


def test_ten_thousand_partitions_move_on_in_less_than_100_ms():
    few = GridState.of(history(days=2, rows=10))
    wide = GridState(
        few.grid, few.slot_steps, few.next_index,
        *(np.repeat(a, 1000, axis=0) for a in (few.unit, few.sets, few.level, few.error)),
        *(np.repeat(a, 1000, axis=1) for a in (few.day, few.week)),
        np.zeros(10_000), np.zeros(10_000, dtype=np.int64),
    )  # fmt: skip
    tick, known = np.full(10_000, 5.0), np.full(10_000, True)
    spent = []
    for _ in range(20):
        began = time.process_time()
        wide.update(tick, known)
        spent.append(time.process_time() - began)
    assert np.median(spent) < 0.1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata"])
def test_slots_follow_the_wall_clock(zone):
    from datetime import UTC, datetime

    from forecaster.timegrid import TimeGrid

    grid = TimeGrid(FIVE_MINUTES, zone)
    first = grid.index_of(datetime(2026, 3, 29, tzinfo=UTC)) - 14 * DAY
    slots = grid.day_slots(first, 17 * DAY)
    counts = np.where(slots // 12 == 9, 1000.0, 100.0)[None]
    known = counts[:, : 15 * DAY]
    state = GridState.of(type(history())("t", grid, first, (0,), known, np.full(known.shape, True)))
    truth = counts[0, 15 * DAY : 16 * DAY]
    said = state.path(DAY)[0]
    assert said[truth == 1000].min() > 2 * said[truth == 100].max()
