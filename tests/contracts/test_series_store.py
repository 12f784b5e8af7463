"""One suite for every series store: whatever keeps the series, this is what it does."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forecaster.errors import SampleRejected
from forecaster.stores.base import Cells, SeriesKey, SeriesStore, Tick
from forecaster.stores.memory import MemorySeriesStore
from forecaster.stores.opening import open_store
from forecaster.stores.retention import Retention
from tests.peers import redis as peers

T0 = datetime(2026, 1, 5, tzinfo=UTC)
DAY0 = (T0 - datetime(1970, 1, 1, tzinfo=UTC)).days
STEP = 60
I0 = DAY0 * 1440
ARRIVALS = SeriesKey("orders", "arrivals", None, STEP)
LAG = SeriesKey("orders", "lag", "billing", STEP)

Make = Callable[..., SeriesStore]
_counter = itertools.count()


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(T0 + timedelta(days=100))


KINDS = [
    "memory",
    "embedded",
    pytest.param("redis7", marks=pytest.mark.redis),
    pytest.param("timeseries", marks=pytest.mark.timeseries),
    "cluster",
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with contextlib.ExitStack() as stack:
        yield peers.started_once(stack, tmp_path_factory.mktemp)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, clock: Clock, servers: Callable[[str], str]) -> Iterator[Make]:
    opened: list[SeriesStore] = []
    name = f"{request.node.name}-{next(_counter)}"

    def make(**options: object) -> SeriesStore:
        if request.param == "memory":
            opened.append(MemorySeriesStore(clock=clock, **options))  # type: ignore[arg-type]
        else:
            opened.append(open_store(servers(request.param), name, clock=clock, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for store in opened:
        for topic in store.topics():
            store.forget(topic)
        store.close()


@pytest.fixture
def store(make: Make) -> SeriesStore:
    return make()


def column(*values: int | None) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([0 if v is None else v for v in values], dtype=np.int64),
        np.array([v is not None for v in values], dtype=np.bool_),
    )


def tick(index: int, *values: int | None, key: SeriesKey = ARRIVALS, **more: object) -> Tick:
    return Tick(key.topic, key.step_s, index, {key: column(*values)}, **more)  # type: ignore[arg-type]


def table(cells: Cells) -> list[list[int | None]]:
    return [
        [int(v) if k else None for v, k in zip(vs, ks, strict=True)]
        for vs, ks in zip(cells.values, cells.known, strict=True)
    ]


def history(first: int, steps: int, partitions: int = 2, seed: int = 0, gaps: float = 0.1) -> Cells:
    rng = np.random.default_rng(seed)
    known = rng.random((partitions, steps)) >= gaps
    return Cells(first, np.where(known, rng.poisson(30, (partitions, steps)), 0), known)


def same(a: Cells, b: Cells) -> bool:
    return a.first_index == b.first_index and np.array_equal(a.known, b.known) and np.array_equal(a.values, b.values)


def test_what_was_never_written_is_missing_and_zero_is_a_value(store: SeriesStore) -> None:
    store.append([tick(I0, 0, None, 7)])
    assert table(store.read(ARRIVALS, I0 - 1, I0 + 2)) == [[None, 0, None], [None, None, None], [None, 7, None]]


def test_an_unknown_series_has_no_partitions(store: SeriesStore) -> None:
    cells = store.read(ARRIVALS, I0, I0 + 5)
    assert (cells.partitions, cells.steps) == (0, 5)
    assert store.meta("orders") is None
    assert store.topics() == ()


def test_a_tick_holds_all_series_of_a_topic_and_what_a_restart_needs(store: SeriesStore) -> None:
    columns = {ARRIVALS: column(5, 6), LAG: column(50, None)}
    store.append([Tick("orders", STEP, I0, columns, topic_id="Uq1", offsets={"0": "1234", "1": "99"})])
    assert table(store.read(LAG, I0, I0 + 1)) == [[50], [None]]
    meta = store.meta("orders")
    assert meta is not None
    assert meta.keys == (ARRIVALS, LAG)
    assert (meta.topic_id, meta.partitions, meta.step_s, meta.last_index) == ("Uq1", 2, STEP, I0)
    assert dict(meta.offsets) == {"0": "1234", "1": "99"}
    assert (meta.sealed_to_day, meta.first_day) == (DAY0, DAY0)


def test_values_beyond_32_bits_are_exact(store: SeriesStore) -> None:
    end_offset = SeriesKey("orders", "end_offset", None, STEP)
    big = 2**40 + 3
    store.append([tick(I0, 7, 8), tick(I0 + 1, 2**31 - 1, 2**31), tick(I0 + 2, 2**33, 1)])
    store.append([tick(I0 + 3, big, big + 1, key=end_offset)])
    assert table(store.read(ARRIVALS, I0, I0 + 3)) == [[7, 2**31 - 1, 2**33], [8, 2**31, 1]]
    assert table(store.read(end_offset, I0 + 3, I0 + 4)) == [[big], [big + 1]]


def test_a_tick_may_be_replayed_and_the_last_wins(store: SeriesStore) -> None:
    for _ in range(3):
        store.append([tick(I0, 5, 6)])
    store.append([tick(I0, 8, None)])
    assert table(store.read(ARRIVALS, I0, I0 + 1)) == [[8], [6]]


def test_a27_late_ticks_are_taken_within_the_window(store: SeriesStore) -> None:
    store.append([tick(I0 + 100, 1, 1)])
    store.append([tick(I0 + 40, 4, None), tick(I0 - 600, 2, 3)])
    cells = store.read(ARRIVALS, I0 - 600, I0 + 101)
    assert table(cells)[0][0] == 2
    assert table(cells)[0][640] == 4
    assert int(cells.known.sum()) == 5
    meta = store.meta("orders")
    assert meta is not None
    assert meta.last_index == I0 + 100


def test_a_tick_older_than_the_window_is_rejected_and_changes_nothing(store: SeriesStore) -> None:
    store.append([tick(I0 + 2000, 1)])
    with pytest.raises(SampleRejected, match=r"orders: .* older than the newest .*backfill"):
        store.append([tick(I0, 9)])
    assert not store.read(ARRIVALS, I0, I0 + 1).known.any()


def test_a_tick_of_the_future_is_rejected_and_history_stays(store: SeriesStore, clock: Clock) -> None:
    clock.now = T0
    store.append([tick(I0, 1), tick(I0 + 2, 3)])
    with pytest.raises(SampleRejected, match="future"):
        store.append([tick(I0 + 3, 9)])
    with pytest.raises(SampleRejected, match="future"):
        store.backfill(ARRIVALS, history(I0 - 10, 1000))
    assert table(store.read(ARRIVALS, I0, I0 + 4)) == [[1, None, 3, None]]


def test_a_rejected_tick_does_not_stop_those_before_it(store: SeriesStore, clock: Clock) -> None:
    clock.now = T0
    with pytest.raises(SampleRejected):
        store.append([tick(I0, 1), tick(I0 + 900, 2), tick(I0 + 1, 3)])
    assert table(store.read(ARRIVALS, I0, I0 + 1)) == [[1]]


def test_partitions_may_be_added_in_the_middle_of_a_day(store: SeriesStore) -> None:
    store.append([tick(I0, 1, 2), tick(I0 + 1, 3, 4)])
    store.append([tick(I0 + 2, 5, 6, 7, 8)])
    store.append([tick(I0 + 3, 9)])
    assert table(store.read(ARRIVALS, I0, I0 + 4)) == [
        [1, 3, 5, 9], [2, 4, 6, None], [None, None, 7, None], [None, None, 8, None],
    ]  # fmt: skip
    meta = store.meta("orders")
    assert meta is not None
    assert meta.partitions == 4


def test_ticks_over_midnight_and_many_blocks(store: SeriesStore) -> None:
    expected = history(I0 + 1300, 300, partitions=3, seed=4)
    ticks = [
        Tick("orders", STEP, expected.first_index + i, {ARRIVALS: (expected.values[:, i], expected.known[:, i])})
        for i in range(expected.steps)
    ]
    store.append(ticks[:100])
    for one in ticks[100:110]:
        store.append([one])
    store.append(ticks[110:])
    assert same(store.read(ARRIVALS, expected.first_index, expected.end_index), expected)
    middle = store.read(ARRIVALS, I0 + 1400, I0 + 1450)
    assert np.array_equal(middle.values, expected.values[:, 100:150])


@pytest.mark.parametrize("step_s", [1, 10, 300, 900, 3600, 21_600, 86_400])
def test_every_step_that_divides_a_day(store: SeriesStore, step_s: int) -> None:
    key = SeriesKey("orders", "arrivals", None, step_s)
    first = DAY0 * (86_400 // step_s)
    store.append([tick(first + i, i, 10 * i, key=key) for i in range(1, 4)])
    assert table(store.read(key, first, first + 4)) == [[None, 1, 2, 3], [None, 10, 20, 30]]


def test_a_step_that_does_not_divide_a_day_is_refused(store: SeriesStore) -> None:
    with pytest.raises(ValueError, match="divides a day"):
        store.append([tick(I0, 1, key=SeriesKey("orders", "arrivals", None, 7))])


def test_backfill_is_idempotent_and_joins_what_is_there(store: SeriesStore) -> None:
    cells = history(I0 - 3000, 4000)
    store.append([tick(I0 + 999, 77, 78), tick(I0 + 1000, 79, 80)])
    for _ in range(2):
        store.backfill(ARRIVALS, cells, topic_id="Uq1")
    read = store.read(ARRIVALS, I0 - 3000, I0 + 1001)
    assert np.array_equal(read.known[:, :3999], cells.known[:, :3999])
    assert np.array_equal(read.values[:, :3999], cells.values[:, :3999])
    assert table(read)[0][4000] == 79
    for row, (last, before) in enumerate(zip(table(read), (77, 78), strict=True)):
        assert last[3999] == (int(cells.values[row, -1]) if cells.known[row, -1] else before)
    meta = store.meta("orders")
    assert meta is not None
    assert (meta.last_index, meta.topic_id) == (I0 + 1000, "Uq1")


def test_backfill_alone_makes_a_topic(store: SeriesStore) -> None:
    cells = history(I0, 1440 * 3)
    store.backfill(LAG, cells)
    assert same(store.read(LAG, I0, I0 + 1440 * 3), cells)
    meta = store.meta("orders")
    assert meta is not None
    assert (meta.last_index, meta.keys, meta.partitions) == (I0 + 1440 * 3 - 1, (LAG,), 2)
    store.append([tick(I0 + 1440 * 3, 3, 4, key=LAG)])
    assert table(store.read(LAG, I0 + 1440 * 3, I0 + 1440 * 3 + 1)) == [[3], [4]]


def test_sealing_changes_nothing_that_is_read(store: SeriesStore) -> None:
    cells = history(I0 + 700, 2000, partitions=3)
    for i in range(0, cells.steps, 250):
        part = slice(i, i + 250)
        store.append(
            [
                Tick("orders", STEP, I0 + 700 + j, {ARRIVALS: (cells.values[:, j], cells.known[:, j])})
                for j in range(part.start, part.stop)
            ]
        )
    assert store.seal("orders", T0 + timedelta(days=1, minutes=4)) == 0  # its last ticks may still be on their way
    assert store.seal("orders", T0 + timedelta(days=1, minutes=6)) == 1
    assert store.seal("orders", T0 + timedelta(days=1, minutes=6)) == 0
    assert same(store.read(ARRIVALS, I0 + 700, I0 + 2700), cells)
    meta = store.meta("orders")
    assert meta is not None
    assert meta.sealed_to_day == DAY0 + 1


def test_a_late_tick_into_a_sealed_day_is_read_at_once_and_sealed_again(store: SeriesStore) -> None:
    store.append([tick(I0 + i, i, 2 * i) for i in range(1, 60)] + [tick(I0 + 1440, 5, 5)])
    assert store.seal("orders", T0 + timedelta(days=1, hours=1)) == 1
    store.append([tick(I0, 100, 200), tick(I0 + 3, 333, None)])
    for _ in range(2):
        assert table(store.read(ARRIVALS, I0, I0 + 5)) == [[100, 1, 2, 333, 4], [200, 2, 4, 6, 8]]
        sums, peaks = store.read_hourly(ARRIVALS, DAY0 * 24, DAY0 * 24 + 1)
        assert store.seal("orders", T0 + timedelta(days=1, hours=1)) in {0, 1}
    sums, peaks = store.read_hourly(ARRIVALS, DAY0 * 24, DAY0 * 24 + 2)
    expected = [sum(range(60)) + 100 + 330, 2 * sum(range(60)) + 200]
    assert table(sums) == [[expected[0], None], [expected[1], None]]
    assert table(peaks) == [[333, None], [200, None]]


def test_hours_are_summed_only_where_whole(store: SeriesStore) -> None:
    store.append([tick(I0 + i, 1, None if i == 70 else 2) for i in range(120)])
    store.append([tick(I0 + 1440, 1, 1)])
    sums, _ = store.read_hourly(ARRIVALS, DAY0 * 24, DAY0 * 24 + 3)
    assert not sums.known.any()
    store.seal("orders", T0 + timedelta(days=1, hours=1))
    sums, peaks = store.read_hourly(ARRIVALS, DAY0 * 24, DAY0 * 24 + 3)
    assert table(sums) == [[60, 60, None], [120, None, None]]
    assert table(peaks) == [[1, 1, None], [2, 2, None]]


def test_backfilled_days_have_hours(store: SeriesStore) -> None:
    cells = history(I0 - 1440 * 40, 1440 * 41, gaps=0.0)
    store.backfill(ARRIVALS, cells)
    sums, peaks = store.read_hourly(ARRIVALS, (DAY0 - 40) * 24, (DAY0 + 1) * 24)
    assert sums.known.all()
    assert np.array_equal(sums.values, cells.values.reshape(2, -1, 60).sum(axis=2))
    assert np.array_equal(peaks.values, cells.values.reshape(2, -1, 60).max(axis=2))


def test_prune_drops_old_steps_and_keeps_their_hours(make: Make) -> None:
    store = make(retention=Retention(steps=timedelta(days=2), hourly=timedelta(days=30)))
    store.backfill(ARRIVALS, history(I0, 1440 * 6, gaps=0.0))
    assert store.prune("orders", T0 + timedelta(days=6)) == 3
    assert store.prune("orders", T0 + timedelta(days=6)) == 0
    kept = store.read(ARRIVALS, I0, I0 + 1440 * 6)
    assert kept.known.all(axis=0).sum() == 1440 * 3
    assert kept.known[:, 1440 * 3 :].all()
    assert store.read_hourly(ARRIVALS, DAY0 * 24, (DAY0 + 6) * 24)[0].known.all()


def test_hours_may_be_written_where_the_steps_are_gone(make: Make) -> None:
    store = make(retention=Retention(steps=timedelta(days=2), hourly=timedelta(days=400)))
    store.backfill(ARRIVALS, history(I0, 1440, gaps=0.0))
    first = (DAY0 - 40) * 24 + 5  # over the end of a month
    sums, peaks = history(first, 24 * 20, gaps=0.3), history(first, 24 * 20, gaps=0.1, seed=1)
    for _ in range(2):
        store.backfill_hourly(ARRIVALS, sums, peaks)
    found = store.read_hourly(ARRIVALS, first, first + 24 * 20)
    assert same(found[0], sums)
    assert same(found[1], peaks)
    assert store.read_hourly(ARRIVALS, DAY0 * 24, (DAY0 + 1) * 24)[0].known.all()
    store.backfill_hourly(ARRIVALS, Cells(first, sums.values[:1, :3] + 1, ~sums.known[:1, :3]), peaks)
    again = store.read_hourly(ARRIVALS, first, first + 3)[0]
    assert again.known[0].all()  # beside what was there, not instead of it


def test_prune_does_not_drop_a_topic_for_having_stopped(store: SeriesStore) -> None:
    store.backfill(ARRIVALS, history(I0, 1440))
    assert store.prune("orders", T0 + timedelta(days=9000)) == 0
    assert store.read(ARRIVALS, I0, I0 + 1440).known.any()


def test_a_topic_can_be_forgotten(store: SeriesStore) -> None:
    other = SeriesKey("payments", "arrivals", None, STEP)
    store.append([tick(I0, 1, 2), tick(I0, 3, key=other)])
    store.backfill(ARRIVALS, history(I0 - 3000, 3000))
    assert store.topics() == ("orders", "payments")
    store.forget("orders")
    assert store.topics() == ("payments",)
    assert store.meta("orders") is None
    assert store.read(ARRIVALS, I0 - 3000, I0 + 1).partitions == 0
    assert table(store.read(other, I0, I0 + 1)) == [[3]]


def test_names_that_look_like_keys(store: SeriesStore) -> None:
    odd = [SeriesKey(t, "lag", g, STEP) for t in ("a:b", "a{b}", "ä b", "a%3Ab") for g in ("x:y", "{z}", "x%3Ay")]
    for n, key in enumerate(odd):
        store.append([tick(I0, n, key=key)])
    assert [int(store.read(key, I0, I0 + 1).values[0, 0]) for key in odd] == list(range(len(odd)))
    assert store.topics() == tuple(sorted({key.topic for key in odd}))
    meta = store.meta("a{b}")
    assert meta is not None
    assert {k.group for k in meta.keys} == {"x:y", "{z}", "x%3Ay"}


def test_topic_id_and_offsets_follow_the_newest_tick(store: SeriesStore) -> None:
    store.append([tick(I0, 1, topic_id="a", offsets={"0": "10"})])
    store.append([tick(I0 + 5, 1, topic_id="b", offsets={"0": "20", "1": "3"})])
    store.append([tick(I0 + 1, 1, topic_id="a", offsets={"0": "12"})])
    meta = store.meta("orders")
    assert meta is not None
    assert (meta.topic_id, dict(meta.offsets), meta.last_index) == ("b", {"0": "20", "1": "3"}, I0 + 5)
    store.append([tick(I0 + 5, 9, key=LAG), tick(I0 + 6, 9, key=LAG)])  # somebody else's tick, who keeps none
    meta = store.meta("orders")
    assert meta is not None
    assert (dict(meta.offsets), meta.last_index) == ({"0": "20", "1": "3"}, I0 + 6)


def test_two_step_lengths_of_one_topic(store: SeriesStore) -> None:
    fine = SeriesKey("orders", "arrivals", None, 10)
    store.append([tick(I0, 60), tick(I0 * 6 + 7, 9, key=fine)])
    assert table(store.read(ARRIVALS, I0, I0 + 1)) == [[60]]
    assert table(store.read(fine, I0 * 6 + 6, I0 * 6 + 8)) == [[None, 9]]
    meta = store.meta("orders")
    assert meta is not None
    assert (meta.step_s, meta.last_index) == (10, I0 * 6 + 7)


def test_health_names_what_answers(store: SeriesStore) -> None:
    health = store.health()
    assert health.kind
    assert health.server


writes = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "backfill", "seal"]),
        st.integers(0, 2 * 1440),
        st.lists(st.one_of(st.none(), st.integers(0, 2**33)), min_size=1, max_size=4),
        st.integers(1, 200),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes)
def test_any_history_of_writes_reads_like_a_plain_table(
    make: Make, ops: list[tuple[str, int, list[int | None], int]]
) -> None:
    """The oracle is a dictionary of cells; late ticks are refused by the same rule."""
    store = make()
    store.forget("orders")
    expected: dict[tuple[int, int], int] = {}
    last: int | None = None
    for op, offset, values, length in ops:
        index = I0 + offset
        if op == "append":
            if last is not None and index < last - 1440:
                with pytest.raises(SampleRejected):
                    store.append([tick(index, *values)])
                continue
            store.append([tick(index, *values)])
            expected.update({(p, index): v for p, v in enumerate(values) if v is not None})
            last = index if last is None else max(last, index)
        elif op == "backfill":
            one, known = column(*values)
            cells = Cells(index, np.repeat(one[:, None], length, axis=1), np.repeat(known[:, None], length, axis=1))
            store.backfill(ARRIVALS, cells)
            for p, v in enumerate(values):
                if v is not None:
                    expected.update({(p, index + i): v for i in range(length)})
            last = max(last or 0, index + length - 1)
        else:
            store.seal("orders", T0 + timedelta(minutes=offset))
    read = store.read(ARRIVALS, I0, I0 + 3 * 1440 + 200)
    found = {(int(p), int(i) + I0): int(read.values[p, i]) for p, i in zip(*np.nonzero(read.known), strict=True)}
    assert found == expected


ticks_of_two = st.lists(
    st.tuples(
        st.booleans(),  # which of two writers
        st.sampled_from([1, 1, 1, 1, 0, 2, -1, 120]),  # steps on from the newest
        st.lists(st.one_of(st.none(), st.integers(0, 9), st.just(2**33)), min_size=1, max_size=4),
        st.sampled_from([None, None, None, None, "seal", "backfill"]),
    ),
    min_size=4,
    max_size=30,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ticks_of_two)
def test_two_writers_of_one_topic_add_up_tick_by_tick(
    make: Make, ops: list[tuple[bool, int, list[int | None], str | None]]
) -> None:
    """Step after step, as recorders write: what one wrote is there, whatever the other took the topic to be."""
    one = make()
    other = one if isinstance(one, MemorySeriesStore) else make()
    one.forget("orders")
    expected: dict[tuple[int, int], int] = {}
    last = I0
    for by_other, on, values, meanwhile in ops:
        index = max(last + on, I0)
        (other if by_other else one).append([tick(index, *values, topic_id="id")])
        last = max(last, index)
        expected.update({(p, index): v for p, v in enumerate(values) if v is not None})
        if meanwhile == "seal":
            one.seal("orders", T0 + timedelta(minutes=last - I0))
        elif meanwhile == "backfill":
            cells, known = column(*values)
            other.backfill(ARRIVALS, Cells(last + 1, cells[:, None], known[:, None]))
            expected.update({(p, last + 1): v for p, v in enumerate(values) if v is not None})
            last += 1
    read = other.read(ARRIVALS, I0, last + 1)
    found = {(int(p), int(i) + I0): int(read.values[p, i]) for p, i in zip(*np.nonzero(read.known), strict=True)}
    assert found == expected
    for p in range(read.partitions):
        assert (read.known[p] == [(p, I0 + i) in expected for i in range(last + 1 - I0)]).all()
