"""The recorder: one look after the other into the store, whatever happens to source, store, clock and itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from forecaster.errors import SourceRefused, SourceUnavailable, StoreRefused, StoreUnavailable
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.writer import TickWriter
from forecaster.offsets import CountingPolicy, Reset
from forecaster.stores.base import SeriesKey, Tick
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition

STEP = 10
T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
I0 = int(T0.timestamp()) // STEP
GROUP = GroupId("billing")


class Clock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> datetime:
        return self.now

    def on(self, seconds: float = STEP) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Cluster:
    """A source whose log is ours to write: topic → ends of its partitions."""

    clock: Clock
    ends: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, list[int]] = field(default_factory=dict)
    commits: dict[GroupId, dict[TopicPartition, int | None]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    silent: set[TopicPartition] = field(default_factory=set)
    away: Exception | None = None
    order: list[str] = field(default_factory=list)

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        if self.away is not None:
            raise self.away
        samples, failures = {}, {}
        for topic in topics:
            for p, end in enumerate(self.ends.get(topic, [])):
                tp = TopicPartition(topic, p)
                if tp in self.silent:
                    failures[tp] = "NOT_LEADER"
                    continue
                committed = {g: self.commits[g].get(tp) for g in groups if g in self.commits}
                start = self.starts.get(topic, [0] * len(self.ends[topic]))[p]
                samples[tp] = OffsetSample(self.clock(), start, end, committed, self.ids.get(topic))
        return OffsetReading(samples, failures, {t: len(self.ends[t]) for t in topics if t in self.ends})

    def close(self) -> None:
        self.order.append("closed")


class Bench:
    """A recorder over a cluster and a store, with a clock."""

    def __init__(self, store: MemorySeriesStore | None = None, resets: Mapping[GroupId, Reset] | None = None) -> None:
        self.clock = Clock()
        self.cluster = Cluster(self.clock, {"orders": [0, 0]}, ids={"orders": "id-1"})
        self.store = store or MemorySeriesStore(clock=self.clock)
        self.resets = resets
        self.recorder = self.start()

    def start(self) -> Recorder:
        policy = CountingPolicy(STEP, tolerance_s=1.0, max_gap_s=0.0)
        return Recorder(
            self.store, self.cluster, {GROUP: ("orders",)}, policy=policy, resets=self.resets, clock=self.clock
        )

    def look(self, *ends: int, after: float = STEP) -> None:
        if ends:
            self.cluster.ends["orders"] = list(ends)
        self.recorder.tick()
        self.clock.on(after)

    def series(self, metric: str, steps: int, group: GroupId | None = None) -> list[list[int | None]]:
        cells = self.store.read(SeriesKey("orders", metric, group, STEP), I0, I0 + steps)
        return [
            [int(v) if k else None for v, k in zip(vs, ks, strict=True)]
            for vs, ks in zip(cells.values, cells.known, strict=True)
        ]


def test_arrivals_lag_and_consumption_are_recorded_side_by_side() -> None:
    b = Bench()
    b.cluster.commits[GROUP] = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): None}
    b.look(0, 0)
    b.cluster.commits[GROUP][TopicPartition("orders", 0)] = 40
    b.look(50, 7)
    b.cluster.commits[GROUP][TopicPartition("orders", 0)] = 50
    b.look(50, 7)
    assert b.series("arrivals", 2) == [[50, 0], [7, 0]]
    assert b.series("lag", 2, GROUP) == [[10, 0], [None, None]]
    assert b.series("consumed", 2, GROUP) == [[40, 10], [None, None]]
    assert b.series("committed", 2, GROUP) == [[40, 50], [None, None]]
    assert b.series("end_offset", 2) == [[50, 50], [7, 7]]
    assert b.series("latency_ms", 2, GROUP) == [[2000, 0], [None, None]]


def test_a18_k12_lag_grows_from_the_live_end_though_nobody_commits() -> None:
    b = Bench()
    b.cluster.commits[GROUP] = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 0}
    for end in (5, 60, 600):
        b.look(end, 0)
    assert b.series("lag", 2, GROUP)[0] == [55, 595]
    assert b.series("consumed", 2, GROUP)[0] == [0, 0]


def test_a6_k17_sentinels_are_none_before_any_arithmetic() -> None:
    b = Bench(resets={GROUP: Reset.EARLIEST})
    b.cluster.commits[GROUP] = {TopicPartition("orders", 0): -1, TopicPartition("orders", 1): -1001}
    b.look(0, 29)
    b.look(0, 29)
    assert b.series("lag", 1, GROUP) == [[0], [29]]
    assert b.series("committed", 1, GROUP) == []


def test_retention_past_the_group_is_not_consumption() -> None:
    b = Bench()
    b.cluster.commits[GROUP] = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 0}
    b.look(1000, 0)
    b.cluster.starts["orders"] = [900, 0]
    b.cluster.commits[GROUP][TopicPartition("orders", 0)] = 950
    b.look(1000, 0)
    b.cluster.commits[GROUP][TopicPartition("orders", 0)] = 960
    b.look(1000, 0)
    assert b.series("consumed", 2, GROUP)[0] == [None, 10]
    assert b.series("lag", 2, GROUP)[0] == [50, 40]


def test_a15_a_partial_answer_stays_partial_and_the_rest_is_recorded() -> None:
    b = Bench()
    b.look(0, 0)
    b.cluster.silent.add(TopicPartition("orders", 1))
    report = b.recorder.tick()
    assert report.failures == {TopicPartition("orders", 1): "NOT_LEADER"}
    assert not report.ok
    b.clock.on()
    b.cluster.silent.clear()
    b.look(20, 20)
    b.look(30, 30)
    assert b.series("arrivals", 3) == [[0, 20, 10], [None, None, 10]]


def test_a16_a24_k7_a_source_away_is_a_gap_and_a_reason_never_a_zero() -> None:
    b = Bench()
    b.look(0, 0)
    b.look(10, 10)
    b.cluster.away = SourceUnavailable("127.0.0.1:9092: no broker answers; check that it runs")
    report = b.recorder.tick()
    assert report.why == "127.0.0.1:9092: no broker answers; check that it runs"
    b.clock.on()
    b.cluster.away = None
    b.look(50, 50)
    b.look(60, 60)
    assert b.series("arrivals", 4)[0] == [10, None, None, 10]


def test_a_source_that_refuses_needs_a_person() -> None:
    b = Bench()
    b.cluster.away = SourceRefused("wrong password")
    with pytest.raises(SourceRefused):
        b.recorder.tick()


def test_k15_a9_a_topic_made_again_is_a_gap_even_when_it_has_grown_past_its_old_end() -> None:
    b = Bench()
    b.look(0, 0)
    b.look(10, 10)
    b.cluster.ids["orders"] = "id-2"
    b.look(5000, 12)
    b.look(5001, 13)
    assert b.series("arrivals", 3)[0] == [10, None, 1]
    b.cluster.ids["orders"] = "id-3"
    b.look(3)  # with one partition less
    b.look(5)
    assert b.series("arrivals", 5) == [[10, None, 1, None, 2], [10, None, 1, None, None]]


def test_k19_an_added_partition_counts_from_its_first_record() -> None:
    b = Bench()
    b.look(0, 0)
    b.look(10, 10)
    b.look(20, 20, 33)
    b.look(30, 30, 35)
    assert b.series("arrivals", 3) == [[10, 10, 10], [10, 10, 10], [None, 33, 2]]


def test_a_restart_between_two_looks_loses_no_step() -> None:
    b = Bench()
    b.cluster.commits[GROUP] = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}
    b.look(0, 0)
    b.look(10, 11)
    b.recorder.close()
    b.recorder = b.start()
    b.cluster.commits[GROUP][TopicPartition("orders", 0)] = 9
    b.look(25, 13)
    assert b.series("arrivals", 2) == [[10, 15], [11, 2]]
    assert b.series("consumed", 2, GROUP) == [[0, 9], [0, 0]]
    assert b.cluster.order == ["closed"]


def test_a_restart_after_a_longer_absence_is_a_gap_not_a_guess() -> None:
    b = Bench()
    b.look(0, 0)
    b.look(10, 10)
    b.recorder = b.start()
    b.clock.on(30)
    b.look(70, 70)
    b.look(90, 90)
    assert b.series("arrivals", 6)[0] == [10, None, None, None, None, 20]


def test_a_kept_counter_of_another_version_is_a_first_look() -> None:
    b = Bench()
    key = SeriesKey("orders", "arrivals", None, STEP)
    column = (np.array([1, 1]), np.array([True, True]))
    b.store.append([Tick("orders", STEP, I0 - 1, {key: column}, offsets={"arrivals": '{"n": 2}', "else": "1"})])
    b.look(0, 0)
    b.look(10, 10)
    assert b.series("arrivals", 1)[0] == [10]


def test_a11_a_topic_that_is_gone_writes_nothing_more() -> None:
    b = Bench()
    b.look(0, 0)
    b.look(5, 5)
    del b.cluster.ends["orders"]
    report = b.recorder.tick()
    assert (report.partitions, report.steps) == (0, 0)
    assert b.series("arrivals", 2)[0] == [5, None]


class Moody(MemorySeriesStore):
    """A store that is away or full while ``mood`` says so."""

    mood: Exception | None = None

    def append(self, ticks: Sequence[Tick]) -> None:
        if self.mood is not None:
            raise self.mood
        super().append(ticks)

    def meta(self, topic: str):  # type: ignore[no-untyped-def]
        if self.mood is not None:
            raise self.mood
        return super().meta(topic)


@pytest.mark.parametrize("mood", [StoreUnavailable("gone"), StoreRefused("OOM command not allowed")])
def test_ticks_wait_for_a_store_that_is_away_or_full_and_are_written_once(mood: Exception) -> None:
    store = Moody(clock=lambda: datetime(2027, 1, 1, tzinfo=UTC))
    b = Bench(store)
    b.look(0, 0)
    b.look(10, 10)
    store.mood = mood
    b.cluster.ends["orders"] = [30, 31]
    report = b.recorder.tick()
    assert report.written.why == str(mood)
    assert report.written.pending == 1
    b.clock.on()
    b.look(60, 60)
    store.mood = None
    b.look(100, 100)
    assert b.series("arrivals", 4) == [[10, 20, 30, 40], [10, 21, 29, 40]]


def test_a_store_away_at_the_start_is_a_first_look() -> None:
    store = Moody(clock=lambda: datetime(2027, 1, 1, tzinfo=UTC))
    store.mood = StoreUnavailable("gone")
    b = Bench(store)
    b.look(0, 0)
    store.mood = None
    b.look(10, 10)
    assert b.series("arrivals", 1)[0] == [10]


def test_a27_a_tick_that_the_store_never_takes_is_told_and_spoils_no_other() -> None:
    now = T0
    store = MemorySeriesStore(clock=lambda: now)
    key = SeriesKey("orders", "arrivals", None, STEP)
    column = (np.array([1]), np.array([True]))
    ticks = [Tick("orders", STEP, i, {key: column}) for i in (I0 - 1, I0 + 100, I0, I0 - 1)]
    written = TickWriter(store).write(ticks)
    assert written.written == 3
    assert len(written.rejected) == 1
    assert "future" in written.rejected[0]
    assert store.read(key, I0 - 1, I0 + 1).values.tolist() == [[1, 1]]


def test_the_oldest_ticks_go_when_there_is_no_more_room_to_wait() -> None:
    store = Moody(clock=lambda: T0)
    store.mood = StoreUnavailable("gone")
    key = SeriesKey("orders", "arrivals", None, STEP)
    writer = TickWriter(store, room=2)
    for i in range(3):
        written = writer.write([Tick("orders", STEP, I0 - 3 + i, {key: (np.array([i]), np.array([True]))})])
    assert (written.pending, written.dropped) == (2, 1)
    store.mood = None
    assert writer.write([]).written == 2
    assert store.read(key, I0 - 3, I0).known.tolist() == [[False, True, True]]


def test_delays_by_timestamps_hold_over_those_by_offsets_and_their_failure_is_no_failure() -> None:
    asked: list[dict[TopicPartition, int]] = []

    def delays(committed: Mapping[TopicPartition, int], at: datetime) -> dict[TopicPartition, int]:
        asked.append(dict(committed))
        if len(asked) == 2:
            raise SourceUnavailable("no records")
        return {TopicPartition("orders", 0): 1234}

    b = Bench()
    b.recorder = Recorder(
        b.store,
        b.cluster,
        {GROUP: ("orders",)},
        policy=CountingPolicy(STEP, 1.0, 0.0),
        delays=delays,
        clock=b.clock,
    )
    commits = b.cluster.commits[GROUP] = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}
    b.look(0, 0)
    commits[TopicPartition("orders", 0)] = 40
    b.look(50, 0)
    commits[TopicPartition("orders", 0)] = 50
    b.look(50, 0)
    b.look(50, 0)
    assert asked == [{TopicPartition("orders", 0): 40}, {TopicPartition("orders", 0): 50}]
    assert b.series("latency_ms", 3, GROUP) == [[1234, 0, 0], [0, 0, 0]]
