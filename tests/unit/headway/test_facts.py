"""From records to a snapshot's partitions: the last good value while young, then unknown with the reason."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from forecaster.stores.base import SeriesKey, Tick
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from headway.work.facts import recorded_states

NOW = datetime(2026, 1, 5, 9, 0, 20, tzinfo=UTC)
END = int(NOW.timestamp()) // 60
GROUP = GroupId("billing")
Row = list[int | None]


def store(**series: list[Row]) -> MemorySeriesStore:
    """One row a partition, one value a step, the last step being the last complete one."""
    kept = MemorySeriesStore(clock=lambda: NOW)
    for name, rows in series.items():
        key = SeriesKey("orders", name, None if name in ("arrivals", "end_offset") else GROUP, 60)
        for i in range(len(rows[0])):
            column = (
                np.array([row[i] or 0 for row in rows], dtype=np.int64),
                np.array([row[i] is not None for row in rows]),
            )
            if column[1].any():
                kept.append([Tick("orders", 60, END - len(rows[0]) + i, {key: column})])
    return kept


def test_rates_are_means_of_the_latest_known_steps_and_lag_is_the_last() -> None:
    kept = store(arrivals=[[60, 120, 240]], consumed=[[60, 60, 120]], lag=[[0, 60, 180]])
    states = recorded_states(kept, GROUP, ["orders"], NOW, rate_steps=2)
    state = states[TopicPartition("orders", 0)]
    assert (state.lag, state.arrival_rate, state.consumption_rate, state.why) == (180, 3.0, 1.5, None)


def test_a15_a24_the_last_good_value_holds_while_it_is_young_then_it_is_unknown() -> None:
    young = store(arrivals=[[60, None, None]], lag=[[7, None, None]])
    state = recorded_states(young, GROUP, ["orders"], NOW)[TopicPartition("orders", 0)]
    assert (state.lag, state.arrival_rate) == (7, 1.0)
    old = store(arrivals=[[60, *[None] * 9]], lag=[[7, *[None] * 9]])
    state = recorded_states(old, GROUP, ["orders"], NOW)[TopicPartition("orders", 0)]
    assert (state.lag, state.arrival_rate) == (None, None)
    assert state.why == "no arrivals are recorded of the last 300 s; they begin two steps after the start"
    pushed = store(arrivals=[[60, 60, 60]])
    state = recorded_states(pushed, GROUP, ["orders"], NOW)[TopicPartition("orders", 0)]
    assert (state.arrival_rate, state.why) == (1.0, "no lag of billing is recorded of the last 300 s")


def test_a13_a_stuck_partition_says_so_and_a_commit_beyond_the_end_too() -> None:
    kept = store(
        arrivals=[[50, 50, 50], [50, 50, 50], [5, 5, 5]],
        consumed=[[0, 0, 0], [50, 50, 50], [5, 5, 5]],
        lag=[[100, 150, 200], [9, 9, 9], [0, 0, 0]],
        committed=[[1, 1, 1], [50, 100, 150], [900, 900, 900]],
        end_offset=[[101, 151, 201], [59, 109, 159], [5, 10, 15]],
    )
    states = recorded_states(kept, GROUP, ["orders"], NOW)
    assert [s.is_stuck for s in states.values()] == [True, False, False]
    whys = [s.why for s in states.values()]
    assert whys[0] is not None
    assert whys[0].startswith("stuck: its commit stands still")
    assert whys[1] is None
    assert whys[2] is not None
    assert whys[2].startswith("offset_ahead")


def test_a_topic_without_records_has_no_partitions() -> None:
    assert recorded_states(MemorySeriesStore(clock=lambda: NOW), GROUP, ["orders"], NOW) == {}
