"""Hot partitions and keys, and what is proposed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.hotspots import bound_of, hot_keys, hot_partitions, proposals, when
from balancer.plan import BoundKind
from forecaster.topics import TopicPartition

MONDAY = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
P6, P7 = TopicPartition("orders", 6), TopicPartition("orders", 7)
STEP = timedelta(minutes=20)


def hot(*rows, capacity=100.0):
    return hot_partitions([P6, P7][: len(rows)], np.array(rows, dtype=float), MONDAY, STEP, capacity)


def test_e2_bound_by_the_partition_from_the_hour_on():
    found = hot([10, 10, 10, 10], [70, 90, 120, 150])
    bound = bound_of(found)
    assert bound is not None
    assert (bound.kind, bound.id, bound.start) == (BoundKind.PARTITION, "orders:7", MONDAY + 2 * STEP)
    text = proposals(found, MONDAY - timedelta(days=1), "Europe/Berlin")[0].text
    assert text.startswith("partition 7 passes one member's capacity on Monday 09:40")


def test_e2_the_first_to_saturate_bounds():
    found = hot([10, 101, 101], [10, 10, 900])
    assert [str(h.partition) for h in found] == ["orders:7", "orders:6"]
    bound = bound_of(found)
    assert bound is not None and bound.id == "orders:6"


def test_e1_near_the_limit_is_isolated_unless_it_is_alone():
    found = hot([81, 85])
    assert [p.kind for p in proposals(found, MONDAY, "UTC")] == ["isolate"]
    assert proposals(found, MONDAY, "UTC", alone=frozenset([P6])) == ()
    assert bound_of(found) is None
    assert hot([80, 79]) == ()


def test_e4_never_more_partitions_for_keyed_topics():
    kinds = {p.kind for p in proposals(hot([150]), MONDAY, "UTC")}
    assert kinds == {"split", "faster_member", "batching"}
    first = proposals(hot([150]), MONDAY, "UTC")[0]
    assert "once its producers are routed" in first.text
    assert "add" not in " ".join(p.text for p in proposals(hot([150]), MONDAY, "UTC", may_split=True))


def test_e6_a_key_that_alone_is_hot_cannot_be_split():
    keys = hot_keys({(P6, "eve"): 0.9, (P6, "bob"): 0.1, (P7, "eve"): 1.0}, {P6: 150.0}, 100.0)
    assert [(k.key, k.share) for k in keys] == [("eve", pytest.approx(1.35))]
    bound = bound_of(hot([150]), keys)
    assert bound is not None and (bound.kind, bound.id) == (BoundKind.KEY, "orders:6/eve")
    kinds = [p.kind for p in proposals(hot([150]), MONDAY, "UTC", keys=keys)]
    assert kinds == ["key", "faster_member", "batching"]


def test_a_faster_member_is_named_when_there_is_one():
    texts = [p.text for p in proposals(hot([150]), MONDAY, "UTC", faster_capacity=200.0)]
    assert any("200 records/s would do" in t for t in texts)
    assert not any("would do" in p.text for p in proposals(hot([250]), MONDAY, "UTC", faster_capacity=200.0))


def test_instants_are_said_in_the_groups_zone():
    assert when(MONDAY, MONDAY - timedelta(hours=1), "Australia/Sydney") == "on Monday 19:00"
    assert when(MONDAY, MONDAY - timedelta(days=6, hours=23), "UTC") == "on 2026-01-05 08:00"
    assert when(MONDAY, MONDAY, "UTC") == "now"


def test_nothing_known_is_nothing_hot():
    assert hot_partitions([], np.empty((0, 0)), MONDAY, STEP, 100.0) == ()
    with pytest.raises(ValueError, match="capacity=0"):
        hot_partitions([P6], np.ones((1, 1)), MONDAY, STEP, 0)
