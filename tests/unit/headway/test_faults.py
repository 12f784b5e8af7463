"""Redis, Kafka, Kubernetes or KEDA down, slow or wrong, each alone and in pairs, over the ports and by a fake clock.

Two groups run through each case, one scaled directly and one through KEDA. Under a constant load nobody is ever scaled
in by an error; the load rises during the fault, and two ticks after its end both groups have what they need. The same
faults with real servers are in ``tests/integration``.
"""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from balancer.actuation import Actuation, ActuationState
from balancer.actuators.board import ScalerBoard
from balancer.errors import ObserverUnavailable, PlanStoreUnavailable, TargetRefused, TargetUnavailable
from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.plans.memory import MemoryPlanStore
from forecaster.errors import StoreUnavailable
from forecaster.serving import ForecastService
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import TopicPartition
from headway.application import Application
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.operation.posting import Posting
from headway.status.board import Board
from headway.status.metrics import Metrics
from headway.work.jobs import Jobs
from headway.work.loops import GroupRunner
from tests.unit.headway.conftest import NOW

EVERY = timedelta(seconds=60)
CALM, RISEN = 50.0, 110.0  # records/s; one member sustains ten
SYSTEMS, WAYS = ("redis", "kafka", "kubernetes", "keda"), ("down", "slow", "wrong")
FAULTS = [(system, way) for system in SYSTEMS for way in WAYS]
PAIRS = [pair for pair in itertools.combinations(FAULTS, 2) if pair[0][0] != pair[1][0]]
SLOW = timedelta(seconds=10)


class World:
    """The clock, what is broken now, and how many members each group has."""

    def __init__(self):
        self.now, self.rate, self.broken = NOW, CALM, {}
        self.replicas = {"direct": 7, "polled": 7}
        self.history = {"direct": [7], "polled": [7]}

    def meet(self, system, error):
        """Do what the system's fault does to a call; return whether its answer is wrong."""
        way = self.broken.get(system)
        if way == "slow":
            self.now += SLOW
        if way == "down":
            raise error
        return way == "wrong"

    def set(self, group, count):
        self.replicas[group] = count
        self.history[group].append(count)


class Kept:
    """The stores behind Redis: every method may fail, take its time, or answer nonsense."""

    def __init__(self, world, store, error):
        self._world, self._store, self._error = world, store, error

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args, **kwargs):
            if name in ("close", "resign"):
                return method(*args, **kwargs)
            if self._world.meet("redis", self._error):
                if name in ("learned", "setting"):
                    return {"nonsense": [1]}
                raise self._error
            return method(*args, **kwargs)

        return call


class Kafka:
    """Sees both groups; wrongly it loses the members and half of the partitions."""

    def __init__(self, world, current):
        self._world, self._current = world, current

    def observe(self, group):
        wrong = self._world.meet("kafka", ObserverUnavailable(f"group {group}: no answer in 10 s"))
        partitions = {
            TopicPartition("t", p): PartitionState(0, self._world.rate / 16)
            if not wrong or p % 2
            else PartitionState(None, None, None, "not read")
            for p in range(16)
        }
        count = 0 if wrong else self._world.replicas[group]
        owned = [tuple(TopicPartition("t", p) for p in range(m, 16, max(count, 1))) for m in range(count)]
        members = tuple(Member(f"m{m}", owned[m]) for m in range(count))
        at, replicas = self._world.now, self._current(group)
        return GroupSnapshot(
            group, at, replicas if replicas is not None else count, members, partitions, GroupProtocol.CLASSIC
        )

    def close(self):
        """Nothing is held."""


class Kubernetes:
    """A scale subresource; wrongly it refuses every patch and shows no number."""

    def __init__(self, world):
        self._world = world

    def current(self, group):
        wrong = self._world.meet("kubernetes", TargetUnavailable("no answer from Kubernetes"))
        return None if wrong else self._world.replicas["direct"]

    def scale(self, group, replicas, now, *, leaving=()):
        if self._world.meet("kubernetes", TargetUnavailable("no answer from Kubernetes")):
            raise TargetRefused("Kubernetes refused PATCH (422): schema")
        before = self._world.replicas["direct"]
        self._world.set("direct", replicas)
        return Actuation(group, now, replicas, before, ActuationState.PENDING)

    def close(self):
        """Nothing is held."""


class House:
    """Two groups at work in a world."""

    def __init__(self):
        world = self.world = World()
        clock = lambda: world.now  # noqa: E731
        plans = Kept(world, MemoryPlanStore(clock=clock), PlanStoreUnavailable("redis://h does not answer"))
        store = Kept(world, MemorySeriesStore(clock=clock), StoreUnavailable("redis://h does not answer"))
        group = {"capacity_per_member": 10.0, "mode": "act", "max_replicas": 16, "scale_down_dwell": "60s"}
        settings = Settings(
            groups={
                "direct": {**group, "topics": ["t"], "actuator": {"kind": "kubernetes", "name": "d"}},
                "polled": {**group, "topics": ["t"], "actuator": {"kind": "keda"}},
            }
        )
        board = Board()
        self.app = Application(settings, store, plans, board, Operations(plans, Audit()), Metrics(), clock)
        self.posts = ScalerBoard(timedelta(minutes=5))
        self.jobs = Jobs(board, self.app.metrics, clock)
        for name, target in (("direct", Kubernetes(world)), ("polled", self.posts)):
            board.add(name, ("t",))
            posting = Posting(self.posts, plans, name) if name == "polled" else None
            seen = Kafka(world, self._current)
            runner = GroupRunner(self.app, name, seen, target, ForecastService(store), EVERY, posting)
            self.jobs.on_demand("act", name, runner.act)

    def _current(self, group):
        return self.world.replicas["direct"] if group == "direct" else self.posts.current(group)

    def tick(self):
        """Let a minute pass, run both groups' ticks, and let KEDA poll."""
        self.world.now += EVERY
        said = [self.jobs.run_now("act", name) for name in ("direct", "polled")]
        way, posted = self.world.broken.get("keda"), self.posts.fresh("polled", self.world.now)
        if way == "slow":
            self.world.now += SLOW
        if way not in ("down", "wrong") and posted is not None and posted.replicas != self.world.replicas["polled"]:
            self.world.set("polled", posted.replicas)
        return said


def needed(house):
    """Return what both groups settle on under the risen load without any fault."""
    house.world.rate = RISEN
    for _ in range(4):
        house.tick()
    return dict(house.world.replicas)


@pytest.fixture(scope="module")
def enough():
    house = House()
    for _ in range(3):
        house.tick()
    return needed(house)


def name_of(case):
    return "+".join("-".join(fault) for fault in case)


@pytest.mark.parametrize("case", [*((fault,) for fault in FAULTS), *PAIRS], ids=name_of)
def test_c1_c14_a16_a24_no_fault_scales_in_or_crashes_and_all_recover_by_themselves(case, enough):
    house = House()
    for _ in range(3):
        assert all(result.ok for result in house.tick())
    house.world.broken = dict(case)
    for minute in range(12):
        if minute == 8:
            house.world.rate = RISEN
        for result in house.tick():
            assert not result.detail.startswith("unexpected"), result.detail
    for name, sizes in house.world.history.items():
        assert sizes == sorted(sizes), f"{name} was scaled in: {sizes}"
    house.world.broken = {}
    for _ in range(2):
        house.tick()
    assert {name: house.world.replicas[name] >= count for name, count in enough.items()} == dict.fromkeys(enough, True)
    assert all(result.ok for result in house.tick())
    assert [view.problems for name in house.app.board.names if (view := house.app.view(name))] == [{}, {}]
