"""The gates of a planned group: lanes withheld, and a merging lane handed over so that it is committed at once."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from balancer.leases.base import Heartbeat, LeaseState, StartRule, WorkerProfile
from balancer.leases.memory import MemoryLeaseStore
from balancer.moves.gates import LaneGates
from balancer.routing import protocol
from balancer.routing.base import Registration
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from balancer.routing.table import Fence, Kind, SlotTable
from forecaster.topics import GroupId, TopicPartition

TTL = timedelta(seconds=60)
LANE, PARENT = TopicPartition("orders", 2), TopicPartition("orders", 0)
PRODUCER = Registration("p", "n", ("orders",), "headway.route.p")


class Scene:
    """A group of some workers; worker 1 holds the lane, worker 2 (if there is one) its parent."""

    def __init__(self, workers: int) -> None:
        self.leases = MemoryLeaseStore(GroupId("g"))
        token = self.leases.lead("test", TTL)
        assert token is not None
        self.token = token
        self.leases.found(token, epoch_floor=0)
        self.leases.add(token, [LANE, PARENT], StartRule.BEGINNING, "id")
        for i in range(1, workers + 1):
            owner = self.leases.claim(i, "aa", TTL, WorkerProfile())
            self.leases.renew(owner, TTL, Heartbeat(initialised=True, ready=True))
            for tp in [LANE] if i == 1 else [PARENT] if i == 2 else []:
                assert self.leases.grant(token, tp, i)
                self.leases.take(owner, tp)
        self.routes, self.log = MemoryRouteStore(), MemoryTableLog()
        self.woken = threading.Event()
        self.gates = LaneGates("g", ["orders"], self.leases, self.routes, self.log, self.woken.set)
        self.log.take("orders")

    def commit(self, table: SlotTable) -> SlotTable:
        self.log.append(table)
        self.routes.publish(table)
        self.gates._stale.set()
        return table

    def tick(self) -> bool:
        return self.gates.tick(self.token, self.leases.view())


def a_lane() -> SlotTable:
    table = protocol.adopt("orders", "id", 2, "murmur2", ["g"])
    table = protocol.prepare(table, Kind.SPLIT, table.slots_of(0)[:10], 0, 2)
    n = table.epoch
    table = protocol.start(protocol.fence(protocol.stop(table, n), n, Fence(0, 0, 0, 0)), n)
    return protocol.done(protocol.open_(protocol.drained(table, n, "g"), n, "g"), n)


@pytest.mark.parametrize(("workers", "heir"), [(2, 2), (3, 2), (1, None)])
def test_a_merging_lane_is_handed_over_once_every_producer_has_answered(workers: int, heir: int | None) -> None:
    scene = Scene(workers)
    scene.routes.register(PRODUCER, TTL)
    lane = scene.commit(a_lane())
    scene.tick()
    merging = protocol.prepare(lane, Kind.MERGE, lane.slots_of(2), 2, 0)
    merging = scene.commit(protocol.stop(merging, merging.epoch))
    scene.tick()
    assert scene.leases.view().leases[LANE].next is None  # the producer may still write
    scene.routes.renew(PRODUCER, TTL, {"orders": merging.epoch}, {}, {})
    scene.gates._await_answers()
    assert scene.woken.is_set()
    scene.tick()
    lease = scene.leases.view().leases[LANE]
    assert lease.state is LeaseState.HELD and (None if lease.next is None else lease.next.instance) == heir
    if heir is not None:
        scene.leases.withdraw(scene.token, LANE)
        assert not scene.tick() and scene.leases.view().leases[LANE].next is None  # once


def test_splits_hand_nothing_over_and_wait_for_nobody() -> None:
    scene = Scene(2)
    scene.routes.register(PRODUCER, TTL)
    table = protocol.adopt("orders", "id", 2, "murmur2", ["g"])
    table = protocol.prepare(table, Kind.SPLIT, table.slots_of(1)[:10], 1, 3)
    scene.commit(protocol.stop(table, table.epoch))
    scene.gates._await_answers()
    assert not scene.woken.is_set()
