from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.keyed import KeyedTopic, alone_p99_s, run_keyed
from balancer.splits import SplitPolicy

START = datetime(2026, 1, 1, tzinfo=UTC)


def two_peaks() -> ArrivalTrace:
    """Three days of minutes: 100 records/s, and 900 from ten to twelve."""
    minute = np.arange(3 * 1440) % 1440
    rate = np.where((minute >= 600) & (minute < 720), 900.0, 100.0)
    return ArrivalTrace(START, 60, 60 * rate[None, :])


@pytest.mark.parametrize("drift_h", [4, 24])
def test_lanes_come_before_the_peak_and_go_after_it(drift_h: int) -> None:
    topic = KeyedTopic(2, keys=2000, exponent=0.9, drift=timedelta(hours=drift_h))
    day = START + timedelta(days=2)
    run = run_keyed(two_peaks(), topic, 160.0, SplitPolicy(max_partitions=12), day, day + timedelta(days=1))
    splits = [c for c in run.changes if c.kind == "split"]
    merges = [c for c in run.changes if c.kind == "merge"]
    assert {c.partition for c in splits} >= {0, 1} and splits[0].at == day + timedelta(hours=9, minutes=45)
    assert {c.partition for c in merges} == {0, 1} and all(c.at.hour >= 12 for c in merges)
    assert np.allclose(run.split.counts.sum(axis=0), two_peaks().counts[0])  # no record is made or lost
    assert (run.split.counts[2:, -60:] == 0).all()  # back on the first partitions
    before, after = (alone_p99_s(t, 160.0, day, day + timedelta(days=1)) for t in (run.unsplit, run.split))
    assert before > 20 * max(after, 1.0)


def test_the_hottest_key_drifts() -> None:
    topic = KeyedTopic(4, keys=500, drift=timedelta(hours=1))
    hottest = {int(topic.slot_shares(3600.0 * h).argmax()) for h in range(6)}
    assert len(hottest) == 6


def test_a_topic_that_may_not_grow_stays_as_it_is() -> None:
    day = START + timedelta(days=2)
    topic = KeyedTopic(2, keys=2000, exponent=0.9)
    run = run_keyed(two_peaks(), topic, 160.0, SplitPolicy(max_partitions=2), day, day + timedelta(days=1))
    assert run.changes == () and any("max_partitions=2" in why for why in run.refused)
