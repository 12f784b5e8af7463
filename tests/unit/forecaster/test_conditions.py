"""What a group does with a partition, by the field reports."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.conditions import Condition, conditions

Row = tuple[list[int | None], list[int | None], list[int | None]]


def judge(*rows: Row, ahead: tuple[int, ...] = ()) -> list[Condition]:
    def column(i: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.array([[v or 0 for v in row[i]] for row in rows], dtype=np.int64)
        return values, np.array([[v is not None for v in row[i]] for row in rows], dtype=np.bool_)

    (arrivals, a), (consumed, c), (lag, g) = column(0), column(1), column(2)
    flags = np.array([p in ahead for p in range(len(rows))])
    return conditions(arrivals, a, consumed, c, lag, g, flags)


BUSY: Row = ([50, 50, 50], [50, 50, 50], [20, 20, 20])


@pytest.mark.parametrize(
    ("row", "condition"),
    [
        (([0, 0, 0], [0, 0, 0], [0, 0, 0]), Condition.IDLE),
        (([0, 0, 0], [0, 0, 0], [1, 1, 1]), Condition.DRAINED),  # A12, K5: the marker of a transaction stays
        (([9, 9, 9], [0, 9, 0], [9, 9, 18]), Condition.CONSUMING),
        (([9, 9, 9], [0, 0, 0], [0, 0, 0]), Condition.CONSUMING),  # marker-like: caught up while records arrive
        (([0, 0, 0], [None, None, None], [None, None, None]), Condition.UNKNOWN),
        (([None, None, None], [0, 0, 0], [5, 5, 5]), Condition.UNKNOWN),
        (([9, 9, 9], [None, None, 0], [90, 99, 108]), Condition.UNKNOWN),  # one step is too little to judge
    ],
)
def test_a12_k5_one_partition(row: Row, condition: Condition) -> None:
    assert judge(row) == [condition]


def test_a13_a_frozen_partition_is_stuck_while_the_group_works_elsewhere() -> None:
    frozen: Row = ([50, 50, 50], [0, 0, 0], [100, 150, 200])
    assert judge(frozen, BUSY) == [Condition.STUCK, Condition.CONSUMING]


def test_a18_k12_a_frozen_group_is_stalled_not_stuck() -> None:
    frozen: Row = ([50, 50, 50], [0, 0, 0], [100, 150, 200])
    assert judge(frozen, frozen) == [Condition.STALLED, Condition.STALLED]


def test_k22_a_commit_beyond_the_end_is_named() -> None:
    assert judge(BUSY, BUSY, ahead=(1,)) == [Condition.CONSUMING, Condition.OFFSET_AHEAD]


def test_an_empty_window_knows_nothing() -> None:
    assert judge(([], [], [])) == [Condition.UNKNOWN]
