"""The checker of the chaos suite finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.rows import A_BATCH, Row, Timeline, Verdict, judge, judge_repeats
from tests.chaos.schedule import Fault, draw


def rows(*offsets: int, partition: int = 0) -> list[Row]:
    return [Row(partition, offset, offset, 0.0, float(i), 1, 1, 0.0) for i, offset in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "verdict"),
    [
        ((0, 1, 2, 3), Verdict(4, 0, 0, 0)),
        ((0, 1, 3), Verdict(4, 1, 0, 0)),
        ((0, 1, 1, 2, 3), Verdict(4, 0, 1, 0)),
        ((0, 2, 1, 3), Verdict(4, 0, 0, 1)),
        ((0, 1, 2, 1, 2, 3), Verdict(4, 0, 2, 1)),
        ((), Verdict(4, 4, 0, 0)),
    ],
)
def test_every_fault_is_counted(offsets: tuple[int, ...], verdict: Verdict) -> None:
    assert judge(rows(*offsets), {0: 4}) == verdict


def test_a_record_that_the_producer_wrote_twice_must_come_through_twice() -> None:
    twice = [Row(0, offset, seq, 0.0, 0.0, 1, 1, 0.0) for offset, seq in enumerate([0, 1, 1, 2])]
    assert judge(twice, {0: 4}).is_clean


@given(st.permutations(list(range(12))), st.lists(st.integers(0, 11), max_size=3))
def test_nothing_is_missed_in_any_order(order: list[int], again: list[int]) -> None:
    verdict = judge(rows(*order, *again), {0: 12})
    assert verdict.repeated == len(again)
    assert verdict.is_clean == (order == sorted(order) and not again)


def test_at_least_once_may_repeat_a_batch_and_no_more() -> None:
    once = list(range(1000))
    assert judge_repeats(rows(*once, *range(1000 - A_BATCH + 1, 1000)), {0: 1000}).is_clean
    assert judge_repeats(rows(*once, 400), {0: 1000}).repeated == 1
    assert judge_repeats(rows(*once[:-1]), {0: 1000}).lost == 1


def test_a_pause_is_found_where_it_overlaps_the_span() -> None:
    line = Timeline(
        [Row(0, n, n, 0.0, at, who, 1, 0.0) for n, (at, who) in enumerate([(0, 1), (1, 1), (5, 2), (6, 2)])]
    )
    assert line.longest_gaps(1.5, 2.0) == {0: (4, True)}
    assert line.longest_gaps(5.1, 5.5) == {0: (1, False)}


def test_two_hundred_schedules_let_every_fault_happen() -> None:
    seen = {event.fault for seed in range(1, 201) for event in draw(seed, 10.0, 6)}
    assert seen == set(Fault)
