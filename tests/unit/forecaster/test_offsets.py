"""Offsets → facts, against a record-by-record oracle, and the field reports that concern rates and lag."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.offsets import NO_EPOCH, Counter, CountingPolicy, Reset, TopicLook, Why, advance, counts_over, total

STEP = 10
EXACT = CountingPolicy(STEP, tolerance_s=0.0, max_gap_s=0.0)


def look(start: int, end: int, committed: int | None, known: bool = True) -> TopicLook:
    def one(x: int) -> np.ndarray:
        return np.array([x], dtype=np.int64)

    commit = {"g": (one(committed or 0), np.array([committed is not None]))}
    return TopicLook(np.zeros(1), one(start), one(end), np.array([known]), one(NO_EPOCH), None, commit)


def lag(one: TopicLook, reset: Reset = Reset.UNKNOWN) -> int | None:
    values, known, _ = one.lag("g", reset)
    return int(values[0]) if known[0] else None


# --- lag: the field reports -------------------------------------------------------------------------------------------


def test_a1_k2_no_commit_on_a_trimmed_and_empty_partition_lags_by_nothing() -> None:
    assert lag(look(5_000_000, 5_000_000, None), Reset.EARLIEST) == 0
    assert lag(look(4_000_000, 5_000_000, None), Reset.EARLIEST) == 1_000_000


def test_a2_k16_a_commit_below_log_start_counts_from_log_start() -> None:
    assert lag(look(1_000_000, 1_000_000, 100)) == 0
    assert lag(look(999_990, 1_000_000, 100)) == 10


def test_a4_k1_k3_no_commit_is_one_explicit_rule_per_reset_mode() -> None:
    assert lag(look(0, 70, None), Reset.LATEST) == 0
    assert lag(look(0, 70, None), Reset.EARLIEST) == 70
    assert lag(look(0, 70, None), Reset.UNKNOWN) is None
    _, _, why = look(0, 70, None).lag("g")
    assert Why(why[0]) is Why.NEVER_COMMITTED
    assert "never committed" in Why(why[0]).text


@pytest.mark.parametrize("reset", Reset)
def test_a5_empty_partitions_contribute_nothing_whatever_the_rule(reset: Reset) -> None:
    """A hundred partitions: forty empty ones (half of them trimmed) without a commit, sixty read to their ends."""
    ends = np.arange(100) * 37
    starts = np.where(np.arange(100) < 40, ends, 0)
    commits = {"g": (np.where(np.arange(100) < 40, 0, ends), np.arange(100) >= 40)}
    hundred = TopicLook(np.zeros(100), starts, ends, np.ones(100, bool), np.full(100, NO_EPOCH), None, commits)
    values, known, _ = hundred.lag("g", reset)
    assert total(values, known) == (0, 1.0)


def test_a7_k13_lag_is_never_negative() -> None:
    assert lag(look(0, 100, 130)) == 0
    assert look(0, 100, 130).ahead("g").tolist() == [True]
    assert look(0, 100, 100).ahead("g").tolist() == [False]


def test_a20_one_unknown_partition_leaves_the_others_and_the_coverage_says_so() -> None:
    assert total(np.array([5, 7, 0]), np.array([True, True, False])) == (12, 2 / 3)
    assert total(np.array([0]), np.array([False])) == (None, 0.0)
    assert lag(look(0, 9, 9, known=False)) is None


def test_a_group_that_nobody_asked_about_is_unknown() -> None:
    values, known, _ = look(0, 9, 9).lag("another")
    assert (values.tolist(), known.tolist()) == ([0], [False])


# --- arrivals: the field reports --------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Feeds looks at one partition, and collects what steps they complete."""

    policy: CountingPolicy = EXACT
    counter: Counter | None = None
    steps: dict[int, int] = field(default_factory=dict)
    why: dict[int, Why] = field(default_factory=dict)

    def see(
        self, at: float, end: int, *, known: bool = True, epoch: int = NO_EPOCH, topic_id: str | None = None
    ) -> Watch:
        def arr(x: int) -> np.ndarray:
            return np.array([x], dtype=np.int64)

        self.counter, steps = advance(
            self.counter, np.array([at]), arr(end), np.array([known]), self.policy, epoch=arr(epoch), topic_id=topic_id
        )
        for step in steps:
            if step.known[0]:
                assert step.index not in self.steps, "a known step is not said twice"
                self.steps[step.index] = int(step.values[0])
            else:
                self.why[step.index] = Why(step.why[0])
        return self


def test_a9_k15_a_topic_made_again_within_one_look_gives_no_rate_at_all() -> None:
    by_offset = Watch().see(0, 100).see(10, 20).see(20, 25)
    assert by_offset.steps == {1: 5}
    assert by_offset.why[0] is Why.WENT_BACKWARDS
    by_id = Watch().see(0, 100, topic_id="a").see(10, 120, topic_id="b").see(20, 121, topic_id="b")
    assert by_id.steps == {1: 1}
    assert by_id.why[0] is Why.TOPIC_RECREATED


def test_k24_a_new_leader_epoch_is_another_log_until_two_looks_agree() -> None:
    w = Watch().see(0, 10, epoch=4).see(10, 20, epoch=5).see(20, 31, epoch=5)
    assert w.steps == {1: 11}
    assert w.why[0] is Why.LEADER_CHANGED


def test_a15_a24_k7_what_was_not_answered_is_missing_and_never_zero() -> None:
    w = Watch().see(0, 10).see(10, 0, known=False).see(20, 30).see(30, 37)
    assert w.steps == {2: 7}
    assert not {0, 1} & set(w.steps)


def test_a25_d5_bursts_between_looks_are_counted_whole() -> None:
    w = Watch().see(0, 0).see(10, 1_000_000).see(20, 1_000_000)
    assert w.steps == {0: 1_000_000, 1: 0}


def test_a22_the_first_look_says_nothing_about_rates() -> None:
    w = Watch().see(10, 500)
    assert w.steps == {}
    assert w.why[0] is Why.FIRST_LOOK


def test_k19_records_of_an_added_partition_count_from_its_first_offset() -> None:
    counter, _ = advance(None, np.array([10.0]), np.array([5]), np.array([True]), EXACT)
    counter = counter.grown(2, born_s=10.0)
    _, steps = advance(counter, np.array([20.0, 20.0]), np.array([9, 3]), np.array([True, True]), EXACT)
    assert [s.values.tolist() for s in steps if s.known.any()] == [[4, 3]]


def test_a_partition_that_was_not_watched_before_needs_two_looks() -> None:
    counter, _ = advance(None, np.array([10.0]), np.array([5]), np.array([True]), EXACT)
    counter, steps = advance(counter, np.array([20.0, 20.0]), np.array([9, 3]), np.array([True, True]), EXACT)
    assert steps[-1].known.tolist() == [True, False]


def test_a_late_look_shares_its_difference_over_the_boundary() -> None:
    policy = CountingPolicy(STEP, tolerance_s=1.0, max_gap_s=15.0)
    w = Watch(policy).see(0, 0).see(14, 140).see(20.5, 200)
    assert w.steps == {0: 100, 1: 100}  # the boundary at 10 lies between two looks; 20.5 stands for 20


def test_looks_too_far_apart_leave_a_gap_and_say_so() -> None:
    policy = CountingPolicy(STEP, tolerance_s=1.0, max_gap_s=15.0)
    w = Watch(policy).see(0, 0).see(20, 200).see(30, 300)
    assert w.steps == {2: 100}
    assert w.why[1] is Why.LOOKS_TOO_FAR_APART


def test_a_clock_set_back_starts_anew_and_the_same_look_twice_changes_nothing() -> None:
    w = Watch().see(100, 10).see(50, 20).see(60, 26)
    assert w.steps == {5: 6}
    again = Watch().see(0, 5).see(10, 9).see(10, 9).see(20, 10)
    assert again.steps == {0: 4, 1: 1}


def test_a_policy_that_cannot_be_meant_is_refused() -> None:
    for bad in ({"step_s": 0}, {"tolerance_s": 30.0}, {"tolerance_s": -1.0}, {"max_gap_s": -1.0}):
        with pytest.raises(ValueError, match="must"):
            CountingPolicy(**{"step_s": 60, **bad})  # type: ignore[arg-type]


# --- against the oracle: a log kept record by record ------------------------------------------------------------------


@dataclass
class Log:
    """A partition as it really is: the times at which records were appended, its identity, and what happened to it."""

    end: int = 0
    epoch: int = 0
    topic_id: int = 0
    appended: list[float] = field(default_factory=list)
    """When each record of this very log (topic id and epoch) was appended since it began."""
    disturbed: list[float] = field(default_factory=list)
    """When the log was cut, made anew, or changed leader."""
    all_appends: list[float] = field(default_factory=list)


events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("look"), st.booleans()),
        st.tuples(st.just("cut"), st.integers(1, 30)),
        st.tuples(st.just("recreate"), st.just(0)),
        st.tuples(st.just("elect"), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, 3)),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_every_covered_step_is_exact_every_other_missing_and_none_wrong(history: list[tuple[str, int]]) -> None:
    log, w, now = Log(), Watch(), 0.0
    looked: dict[int, bool] = {}
    for kind, arg in history:
        now += 0.01
        if kind == "append":
            log.end += arg
            log.all_appends += [now] * arg
        elif kind == "cut":  # unclean election: records are gone, the epoch tells
            log.end = max(0, log.end - arg)
            log.epoch += 1
            log.disturbed.append(now)
        elif kind == "recreate":
            log.end, log.epoch, log.topic_id = 0, 0, log.topic_id + 1
            log.disturbed.append(now)
        elif kind == "elect":
            log.epoch += 1
            log.disturbed.append(now)
        elif kind == "pass":
            now = (now // STEP + arg) * STEP
        else:  # look, always at a boundary; it may fail
            now = (now // STEP + 1) * STEP
            answered = bool(arg)
            looked[int(now // STEP)] = answered
            w.see(now, log.end if answered else 0, known=answered, epoch=log.epoch, topic_id=f"id{log.topic_id}")
    for index in range(int(now // STEP) + 1):
        lo, hi = index * STEP, (index + 1) * STEP
        covered = (
            looked.get(index, False) and looked.get(index + 1, False) and not any(lo < at <= hi for at in log.disturbed)
        )
        assert (index in w.steps) == covered
        if covered:
            assert w.steps[index] == sum(lo < at <= hi for at in log.all_appends)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.3, 25.0), st.integers(0, 1000)), min_size=2, max_size=40),
    st.floats(0, 4.9),
    st.floats(0, 60),
)
def test_interpolated_steps_lie_between_the_looks_and_add_up(
    moves: list[tuple[float, int]], tolerance: float, max_gap: float
) -> None:
    w = Watch(CountingPolicy(STEP, tolerance, max_gap))
    at, end = 3.0, 0
    looks = [(at, end)]
    w.see(at, end)
    for wait, more in moves:
        at, end = at + wait, end + more
        looks.append((at, end))
        w.see(at, end)
    times = np.array([t for t, _ in looks])
    ends = np.array([e for _, e in looks])

    def bounds(instant: float) -> tuple[int, int]:
        near = ends[np.abs(times - instant) <= tolerance]
        before, after = ends[times <= instant], ends[times >= instant]
        lows = ([int(near[0])] if near.size else []) + ([int(before[-1])] if before.size else [0])
        highs = ([int(near[-1])] if near.size else []) + ([int(after[0])] if after.size else [int(ends[-1])])
        return min(lows), max(highs)

    for index, count in w.steps.items():
        (lo0, hi0), (lo1, hi1) = bounds(index * STEP), bounds((index + 1) * STEP)
        assert max(0, lo1 - hi0) <= count <= hi1 - lo0
    runs: list[list[int]] = []
    for index in sorted(w.steps):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    for run in runs:  # what is interpolated inside a run cancels out: only its two ends matter
        (lo0, hi0), (lo1, hi1) = bounds(run[0] * STEP), bounds((run[-1] + 1) * STEP)
        assert max(0, lo1 - hi0) <= sum(w.steps[i] for i in run) <= hi1 - lo0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=3, max_size=3), max_size=20))
def test_partitions_do_not_disturb_each_other(rows: list[list[tuple[int, bool]]]) -> None:
    policy = CountingPolicy(STEP, 1.0, 25.0)
    together: dict[tuple[int, int], int] = {}
    counter: Counter | None = None
    ends = np.zeros(3, dtype=np.int64)
    alone = [Watch(policy) for _ in range(3)]
    for i, row in enumerate(rows):
        ends = ends + np.array([more for more, _ in row])
        known = np.array([answered for _, answered in row])
        counter, steps = advance(counter, np.full(3, float(i * STEP)), ends, known, policy)
        for s in steps:
            together |= {(s.index, p): int(s.values[p]) for p in range(3) if s.known[p]}
        for p in range(3):
            alone[p].see(i * STEP, int(ends[p]), known=bool(known[p]))
    assert together == {(index, p): count for p in range(3) for index, count in alone[p].steps.items()}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.3, 25.0), st.integers(-300, 1000)), min_size=1, max_size=40),
    st.floats(0, 4.9),
    st.floats(0, 60),
)
def test_a_whole_history_at_once_says_what_look_after_look_says(
    moves: list[tuple[float, int]], tolerance: float, max_gap: float
) -> None:
    policy = CountingPolicy(STEP, tolerance, max_gap)
    w, at, end = Watch(policy), 3.0, 500
    looks = []
    for wait, more in moves:
        at, end = at + wait, max(0, end + more)
        looks.append((at, end))
        w.see(at, end)
    steps = int(at // STEP) + 2
    times, ends = np.array([t for t, _ in looks]), np.array([e for _, e in looks], dtype=np.int64)
    counts, known = counts_over(times, ends, 0, steps, policy)
    assert {i: int(counts[i]) for i in range(steps) if known[i]} == w.steps


def test_no_looks_no_counts() -> None:
    counts, known = counts_over(np.array([]), np.array([], dtype=np.int64), 0, 3, EXACT)
    assert (counts.tolist(), known.tolist()) == ([0, 0, 0], [False, False, False])
