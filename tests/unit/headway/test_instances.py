"""Several instances over one plan store: they share the groups, take over in a lease and a tick, and never clash."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import pytest

from balancer.actuators.board import ScalerBoard
from balancer.plans.memory import MemoryPlanStore
from forecaster.stores.memory import MemorySeriesStore
from headway.application import Application
from headway.assembly import assemble
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.status.board import Board
from headway.status.metrics import Metrics
from headway.work.jobs import LEASE_TICKS
from tests.unit.headway.conftest import NOW

EVERY = timedelta(seconds=15)
ELSEWHERE = "another instance leads"


class Instances:
    """Instances of one service, by the same stores and the same clock."""

    def __init__(self, stack, count, groups):
        self.now, self.stack = NOW, stack
        self.plans = MemoryPlanStore(clock=lambda: self.now)
        self.store = MemorySeriesStore(clock=lambda: self.now)
        own = {"topics": ["t"], "capacity_per_member": 10.0}
        self.settings = Settings(groups={f"group-{n}": own for n in range(groups)})
        self.lives = [self.started(f"instance-{n}") for n in range(count)]

    def started(self, holder):
        stack = self.stack.enter_context(ExitStack())
        operations = Operations(self.plans, Audit())
        app = Application(
            self.settings, self.store, self.plans, Board(), operations, Metrics(), clock=lambda: self.now, holder=holder
        )
        return holder, assemble(app, stack, ScalerBoard()), stack

    def tick(self):
        """Let every instance run every group's tick; return group → who led it."""
        self.now += EVERY
        led = {}
        for name in self.settings.groups:
            for holder, jobs, _ in self.lives:
                result = jobs.run_now("act", name)
                assert result.ok, result.detail
                if result.detail != ELSEWHERE:
                    led.setdefault(name, []).append(holder)
        return led


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_each_group_is_led_by_one_and_a_dead_leader_is_followed_within_a_lease_and_a_tick(stack):
    house = Instances(stack, 3, 6)
    for _ in range(3):
        led = house.tick()
        assert {name: len(holders) for name, holders in led.items()} == dict.fromkeys(house.settings.groups, 1)
    dead = next(life for life in house.lives if life[0] == led["group-0"][0])
    house.lives.remove(dead)  # killed: it gives nothing back
    missed = 0
    while "group-0" not in (led := house.tick()):
        missed += 1
        assert missed <= LEASE_TICKS
    assert {len(holders) for holders in led.values()} == {1}


def test_a_rolling_upgrade_leaves_no_gap(stack):
    house = Instances(stack, 2, 4)
    house.tick()
    for _ in range(2):
        _, _, old = house.lives.pop(0)
        old.close()  # what SIGTERM does: the leads are given back
        house.lives.append(house.started(f"new-{len(house.lives)}-{house.now.isoformat()}"))
        assert set(house.tick()) == set(house.settings.groups)


def test_500_groups_on_one_instance(stack):
    house = Instances(stack, 1, 500)
    assert len(house.tick()) == 500
    assert len({row["group"] for row in house.lives[0][1].status()}) == 500
