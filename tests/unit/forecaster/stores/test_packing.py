"""Cells ↔ bytes, for any cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecaster.stores.base import Cells
from forecaster.stores.packing import (
    BlockShape,
    Columns,
    encode,
    item_bytes_for,
    pack_day,
    pack_month,
    pack_rows,
    rows_per_block,
    unpack_day,
    unpack_month,
    unpack_rows,
)

STEP_S = 3600


@st.composite
def tables(draw: st.DrawFn, most: int = 2**62) -> Cells:
    shape = (draw(st.integers(0, 5)), 24)
    values = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, most)))
    known = draw(hnp.arrays(np.bool_, shape))
    return Cells(48, np.where(known, values, 0), known)


def same(a: Cells, b: Cells) -> bool:
    return np.array_equal(a.values, b.values) and np.array_equal(a.known, b.known) and a.first_index == b.first_index


@given(tables())
def test_days_come_back(cells: Cells) -> None:
    assert same(unpack_day(pack_day(cells, STEP_S), 48), cells)


@given(tables(), st.data())
def test_months_come_back(sums: Cells, data: st.DataObject) -> None:
    known = data.draw(hnp.arrays(np.bool_, sums.known.shape))
    peaks = Cells(48, np.where(known, sums.values // 2, 0), known)
    back = unpack_month(pack_month(sums, peaks), 48)
    assert same(back[0], sums)
    assert same(back[1], peaks)


@given(tables(), st.integers(0, 3))
def test_rows_come_back_and_wider_blocks_hold_missing_cells(cells: Cells, more: int) -> None:
    size = item_bytes_for(cells.values, cells.known)
    shape = BlockShape(STEP_S, cells.partitions + more, 24, size)
    back = unpack_rows(pack_rows(cells, shape), 48)
    assert not back.known[cells.partitions :].any()
    assert same(Cells(48, back.values[: cells.partitions], back.known[: cells.partitions]), cells)


@given(st.lists(tables(most=2**33), min_size=1, max_size=4))
def test_many_columns_at_once_are_each_as_alone(parts: list[Cells]) -> None:
    columns = [(c.values[:, i], c.known[:, i]) for c in parts for i in range(0, 24, 7)]
    laid = Columns(columns)
    assert laid.item_bytes == [item_bytes_for(v, k) for v, k in columns]
    assert laid.whole == [bool(k.all()) for _, k in columns]
    for sizes in (laid.item_bytes, [8] * len(columns)):
        alone = [encode(v, k, size).tobytes() for (v, k), size in zip(columns, sizes, strict=True)]
        assert laid.encoded(sizes) == alone


def test_zeros_read_as_missing() -> None:
    shape = BlockShape(60, 3, 120, 4)
    assert not unpack_rows(shape.header() + bytes(shape.total_bytes - 16), 0).known.any()


def test_31_bits_are_enough_until_they_are_not() -> None:
    known = np.array([True, True])
    assert item_bytes_for(np.array([0, 2**31 - 1]), known) == 4
    assert item_bytes_for(np.array([0, 2**31]), known) == 8
    assert item_bytes_for(np.array([2**40, 1]), np.array([False, True])) == 4


@pytest.mark.parametrize("steps", [1, 24, 96, 288, 1440, 8640, 86_400])
def test_no_block_lies_in_two_days(steps: int) -> None:
    assert steps % rows_per_block(steps) == 0
    assert rows_per_block(steps) <= 120


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-3], lambda b: b"XX" + b[2:], lambda b: b[:10], lambda b: b[:16] + b"no"]
)
def test_damage_is_seen(spoil) -> None:  # type: ignore[no-untyped-def]
    cells = Cells(0, np.arange(48).reshape(2, 24), np.ones((2, 24), dtype=np.bool_))
    with pytest.raises(ValueError, match="block"):
        unpack_day(spoil(pack_day(cells, STEP_S)), 0)
    with pytest.raises(ValueError, match="block"):
        unpack_month(spoil(pack_month(cells, cells)), 0)
    with pytest.raises(ValueError, match="block"):
        unpack_rows(spoil(pack_rows(cells, BlockShape(STEP_S, 2, 24, 4))), 0)


def test_a_realistic_day_takes_little() -> None:
    rng = np.random.default_rng(0)
    level = rng.lognormal(3, 0.8, (200, 1)) * (1 + 0.7 * np.sin(np.arange(1440) / 1440 * 2 * np.pi))
    cells = Cells(0, rng.poisson(level), np.ones((200, 1440), dtype=np.bool_))
    assert len(pack_day(cells, 60)) / cells.values.size <= 1.5
