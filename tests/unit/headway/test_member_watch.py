"""From snapshots and records to what each member did in a step; one bad record is not low capacity."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from balancer.actuators.memory import MemoryActuator
from balancer.group import GroupSnapshot, Member, PartitionState
from forecaster.serving import ForecastService
from forecaster.stores.base import SeriesKey, Tick
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.settings import Settings
from headway.work.loops import GroupRunner
from headway.work.member_watch import MemberWatch
from tests.unit.headway.conftest import NOW

END = int(NOW.timestamp()) // 60
GROUP = GroupId("orders")
P = [TopicPartition("orders", n) for n in range(3)]
OWNED = {"a": (P[0],), "b": (P[1], P[2])}


def record(store, index, consumed, lag):
    cells = {
        SeriesKey("orders", name, None if name == "arrivals" else GROUP): (np.array(row), np.ones(3, dtype=bool))
        for name, row in (("arrivals", consumed), ("consumed", consumed), ("lag", lag))
    }
    store.append([Tick("orders", 60, index, cells)])


def seen(at, owned):
    members = tuple(Member(name, partitions) for name, partitions in owned.items())
    return GroupSnapshot(GROUP, at, len(members), members, {tp: PartitionState(0, 1.0) for tp in P})


@pytest.fixture
def store():
    kept = MemorySeriesStore(clock=lambda: NOW + timedelta(hours=1))
    record(kept, END - 1, [600, 60, 60], [900, 0, 900])
    return kept


def test_a_recorded_step_becomes_an_interval_of_each_member_once(store):
    watch = MemberWatch(store, GROUP, ["orders"])
    assert watch(seen(NOW, OWNED)) == []  # who owned what before this look is not known
    assert watch(seen(NOW + timedelta(seconds=60), OWNED)) == []  # not recorded yet
    record(store, END, [660, 60, 0], [900, 0, 960])
    a, b = watch(seen(NOW + timedelta(seconds=75), OWNED))
    assert (a.member, a.rate, a.is_busy()) == ("a", 11.0, True)
    assert (b.rate, b.stable, b.is_busy()) == (1.0, False, False)  # stuck on one record
    assert watch(seen(NOW + timedelta(seconds=90), OWNED)) == []


def test_a_member_whose_partitions_changed_within_the_step_teaches_nothing(store):
    watch = MemberWatch(store, GROUP, ["orders"])
    watch(seen(NOW, OWNED))
    watch(seen(NOW + timedelta(seconds=30), {"a": (P[0], P[1]), "b": (P[2],)}))
    record(store, END, [660, 60, 60], [900, 900, 900])
    assert [i.stable for i in watch(seen(NOW + timedelta(seconds=60), OWNED))] == [False, False]


class Observer:
    """Shows the same two members whenever it is asked."""

    def __init__(self, app):
        self.app = app

    def observe(self, group):
        return replace(seen(self.app.clock(), OWNED), replicas=2)

    def close(self):
        pass


def test_a_group_without_capacity_holds_with_what_unlocks_it_then_plans(application, client, store):
    application.settings = Settings(groups={"orders": {"topics": ["orders"], "cap_at_partitions": False}})
    application.store = store
    target = MemoryActuator({"orders": 2})
    runner = GroupRunner(
        application, "orders", Observer(application), target, ForecastService(store), timedelta(seconds=15)
    )
    for minute in range(5):
        application.clock = lambda at=NOW + timedelta(minutes=minute): at
        if minute:
            record(store, END + minute - 1, [660, 330, 330], [900, 900, 900])
        runner.act()
        body = client.get("/v1/groups/orders").json()
        if minute < 2:
            assert body["hold"]
            assert "or set capacity_per_member" in body["problems"]["capacity"]
    assert body["problems"] == {}
    assert body["capacity_per_member"] == 11.0
    assert not body["hold"]
