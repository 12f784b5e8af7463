"""Traces as history and as a live source: the same numbers either way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import InputRefused, SourceRefused
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.replay import ReplaySource, load
from forecaster.ingest.trace import read_trace, spread
from forecaster.offsets import CountingPolicy
from forecaster.series import ArrivalSeries
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.timegrid import TimeGrid
from forecaster.topics import GroupId, TopicPartition

DATA = Path(__file__).parents[4] / "data"
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def trace(counts: list[list[float]], known: list[list[bool]] | None = None, first: int = 100) -> ArrivalSeries:
    values = np.array(counts, dtype=np.float64)
    seen = np.ones(values.shape, dtype=np.bool_) if known is None else np.array(known)
    return ArrivalSeries("orders", TimeGrid(60), first, tuple(range(len(counts))), np.where(seen, values, 0.0), seen)


def test_a_trace_loads_as_history_and_loading_it_again_changes_nothing() -> None:
    store = MemorySeriesStore(clock=lambda: LATER)
    series = spread(read_trace(DATA / "nyc_taxi_30min.csv.gz", integers=True), 3, seed=1)
    key = SeriesKey("taxi", "arrivals", None, 1800)
    for _ in range(2):
        loaded = load(store, series, "taxi")
        assert (loaded.steps, loaded.partitions, loaded.gaps, loaded.rejected) == (4416, 3, 6, 0)
        assert loaded.rows == 3 * 4414
        cells = store.read(key, series.first_index, series.end_index)
        assert (cells.values == series.counts).all()
        assert (cells.known == series.known).all()


def test_what_lies_in_the_future_is_not_history() -> None:
    store = MemorySeriesStore(clock=lambda: LATER)
    series = trace([[1, 2, 3, 4]])
    loaded = load(store, series, now=series.grid.start_of(102))
    assert (loaded.rows, loaded.steps, loaded.rejected) == (2, 2, 2)
    assert store.read(SeriesKey("orders", "arrivals"), 100, 104).known.tolist() == [[True, True, False, False]]


def test_decimals_and_another_step_are_refused() -> None:
    store = MemorySeriesStore(clock=lambda: LATER)
    with pytest.raises(InputRefused, match=r"2\.5 at 1970-01-01T01:41:00.* is not a whole number"):
        load(store, trace([[1, 2.5]]))
    load(store, trace([[1, 2]]))
    other = ArrivalSeries("orders", TimeGrid(30), 0, (0,), np.ones((1, 2)), np.ones((1, 2), dtype=np.bool_))
    with pytest.raises(InputRefused, match=r"orders is recorded in steps of 60 s, this trace has 30 s"):
        load(store, other)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=8, max_size=8), min_size=1, max_size=3))
def test_replayed_through_the_recorder_a_trace_is_what_it_was_gaps_included(rows: list[list[int | None]]) -> None:
    series = trace([[v or 0 for v in row] for row in rows], [[v is not None for v in row] for row in rows])
    now = series.start
    store = MemorySeriesStore(clock=lambda: now)
    source = ReplaySource(series, clock=lambda: now)
    policy = CountingPolicy(60, 1.0, 90.0)
    recorder = Recorder(store, source, {}, topics=("orders",), policy=policy, clock=lambda: now)
    for _ in range(series.steps + 1):
        recorder.tick()
        now += timedelta(seconds=60)
    cells = store.read(SeriesKey("orders", "arrivals"), series.first_index, series.end_index)
    got = np.zeros(series.counts.shape)
    known = np.zeros(series.known.shape, dtype=np.bool_)
    got[: cells.partitions], known[: cells.partitions] = cells.values, cells.known
    assert (known == series.known).all()
    assert (got == series.counts).all()


def test_between_boundaries_records_are_spread_evenly_and_outside_nobody_answers() -> None:
    series = trace([[60, 30]])
    now = series.start
    source = ReplaySource(series, clock=lambda: now, committed=lambda: {GroupId("g"): {0: 7}})

    def end() -> int | None:
        sample = source.read(["orders"], [GroupId("g")]).samples.get(TopicPartition("orders", 0))
        return None if sample is None else sample.log_end_offset

    ends = []
    for second in (0, 30, 60, 90, 120):
        now = series.start + timedelta(seconds=second)
        ends.append(end())
    assert ends == [0, 30, 60, 75, 90]
    now = series.start - timedelta(seconds=1)
    assert end() is None
    now = series.end + timedelta(seconds=1)
    assert end() is None
    assert "the trace reaches from" in source.read(["orders"], []).failures[TopicPartition("orders", 0)]
    now = series.start
    assert source.read(["orders"], [GroupId("g")]).samples[TopicPartition("orders", 0)].committed == {"g": 7}
    with pytest.raises(SourceRefused, match="has the topic orders, not x"):
        source.read(["x"], [])
    source.close()
