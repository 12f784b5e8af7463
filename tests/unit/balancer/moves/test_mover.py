"""The mover over leases in memory, step by step, with a clock of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from balancer.leases.base import (
    Heartbeat,
    LeaderToken,
    LeaseState,
    LeaseStore,
    MoveRequest,
    Owner,
    StartRule,
    WorkerProfile,
    WorkerState,
)
from balancer.leases.memory import MemoryLeaseStore
from balancer.moves.machine import MoveState
from balancer.moves.mover import Mover
from forecaster.topics import GroupId, TopicPartition

TTL = timedelta(seconds=2)
TPS = [TopicPartition("orders", i) for i in range(4)]


class Fencer:
    """Fences when it is let to."""

    def __init__(self) -> None:
        self.fenced: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.fails = 0

    def fence(self, worker: WorkerState) -> None:
        assert self.go.wait(60)
        if self.fails:
            self.fails -= 1
            raise OSError("broker away")
        self.fenced.append(str(worker.owner))


class Founder:
    def found(self, store: LeaseStore, token: LeaderToken) -> None:
        store.found(token, epoch_floor=0)
        store.add(token, TPS, StartRule.POLICY)


class Stage:
    def __init__(self) -> None:
        self.now = 100.0
        self.store = MemoryLeaseStore(GroupId("orders"), clock=lambda: self.now)
        self.fencer = Fencer()
        self.mover = self.another("planner-1")
        self.owners: dict[int, Owner] = {}

    def another(self, name: str) -> Mover:
        return Mover(self.store, self.fencer, Founder(), name, clock=lambda: self.now)

    def live(self, instance: int, nonce: str = "aa") -> None:
        owner = self.store.claim(instance, nonce, TTL, WorkerProfile())
        self.owners[instance] = owner
        self.store.renew(owner, TTL, Heartbeat(initialised=True, ready=True))

    def pass_time(self, seconds: float, *, alive: tuple[int, ...] = ()) -> None:
        for _ in range(max(1, int(seconds))):
            self.now += seconds / max(1, int(seconds))
            for i in alive:
                self.store.renew(self.owners[i], TTL, Heartbeat())

    def obey(self, *instances: int) -> None:
        """Do what workers do with what they are told."""
        for i in instances:
            owner = self.owners[i]
            for tp, lease in self.store.renew(owner, TTL, Heartbeat()).leases.items():
                if lease.state is LeaseState.HELD and lease.next not in (None, owner):
                    self.store.release(owner, tp, lease.epoch, 7)
                elif lease.state is LeaseState.FREE and lease.next == owner:
                    self.store.take(owner, tp)

    def held(self) -> dict[int, int]:
        return {
            tp.partition: lease.owner.instance
            for tp, lease in self.store.view().leases.items()
            if lease.state is LeaseState.HELD and lease.owner
        }

    def step_until_fenced(self) -> None:
        for _ in range(200):
            self.mover.step()
            if not self.mover._fences:
                return
            threading.Event().wait(0.005)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.mover.stop()


def started(stage: Stage) -> None:
    stage.mover.step()
    for i in (1, 2):
        stage.live(i)
    stage.mover.step()
    stage.obey(1, 2)


def test_it_founds_and_spreads_what_is_free(stage: Stage) -> None:
    started(stage)
    assert sorted(stage.held().values()) == [1, 1, 2, 2]


def test_a_move_runs_through_and_is_recorded(stage: Stage) -> None:
    started(stage)
    ended = []
    stage.mover.on_end = ended.append
    source = stage.held()[0]
    move = stage.mover.move(TPS[0], 3 - source)
    stage.mover.step()
    stage.obey(source)
    stage.obey(3 - source)
    stage.mover.step()
    state = stage.mover.state_of(move)
    assert state is not None
    assert (state.state, state.epoch) == (MoveState.DONE, 2)
    assert [m.id for m in ended] == [move]


def test_a_request_through_the_store_is_settled_there(stage: Stage) -> None:
    started(stage)
    stage.store.request(MoveRequest("r1", TopicPartition("orders", 99), 1))
    stage.mover.step()
    settled = stage.store.view().requests["r1"]
    assert (settled.state, settled.detail) == ("refused", "orders:99 is not a partition of this group")


def test_a_later_move_supersedes_an_earlier_one_of_the_same_partition(stage: Stage) -> None:
    started(stage)
    source = stage.held()[0]
    first = stage.mover.move(TPS[0], 3 - source)
    stage.mover.step()
    second = stage.mover.move(TPS[0], source)
    stage.mover.step()
    one, two = stage.mover.state_of(first), stage.mover.state_of(second)
    assert one is not None
    assert two is not None
    assert one.state is MoveState.SUPERSEDED
    assert not two.is_over or two.state is MoveState.DONE


def test_the_silent_are_fenced_once_and_only_then_does_anybody_take_over(stage: Stage) -> None:
    started(stage)
    stage.fencer.go.clear()
    mine = [p for p, i in stage.held().items() if i == 1]
    stage.pass_time(3, alive=(2,))
    stage.mover.step()
    view = stage.store.view()
    assert all(view.leases[TPS[p]].state is LeaseState.FENCING for p in mine)
    stage.mover.step()
    stage.obey(2)
    assert all(p not in stage.held() for p in mine)  # L5
    stage.fencer.go.set()
    stage.step_until_fenced()
    stage.obey(2)
    assert set(stage.held().values()) == {2}
    assert stage.fencer.fenced == ["1#1.aa"]


def test_a_fence_that_fails_is_tried_again(stage: Stage) -> None:
    started(stage)
    stage.fencer.fails = 2
    stage.pass_time(3, alive=(2,))
    stage.step_until_fenced()
    for _ in range(3):
        stage.step_until_fenced()
    stage.obey(2)
    assert set(stage.held().values()) == {2}


def test_a_new_life_frees_the_old_ones_leases_without_a_fence(stage: Stage) -> None:
    started(stage)
    stage.pass_time(3, alive=(2,))
    stage.live(1, "bb")
    stage.mover.step()
    stage.mover.step()
    stage.obey(1, 2)
    assert sorted(stage.held().values()) == [1, 1, 2, 2]
    assert stage.fencer.fenced == []


def test_draining_moves_everything_first(stage: Stage) -> None:
    started(stage)
    stage.store.renew(stage.owners[1], TTL, Heartbeat(draining=True))
    stage.mover.step()
    stage.obey(1)
    stage.obey(2)
    stage.mover.step()
    assert set(stage.held().values()) == {2}
    stage.store.leave(stage.owners[1])


def test_nothing_moves_while_paused_but_fences_go_on(stage: Stage) -> None:
    started(stage)
    stage.mover.paused = "foreign members"
    move = stage.mover.move(TPS[0], 3 - stage.held()[0])
    stage.mover.step()
    state = stage.mover.state_of(move)
    assert state is not None
    assert state.state is MoveState.REQUESTED
    stage.pass_time(3, alive=(2,))
    stage.step_until_fenced()
    assert stage.fencer.fenced == ["1#1.aa"]


def test_another_planner_waits_and_then_carries_on(stage: Stage) -> None:
    started(stage)
    other = stage.another("planner-2")
    assert other.step() is None
    stage.pass_time(6, alive=(1, 2))
    assert other.step() is not None
    assert stage.mover.step() is None
    other.stop()


def test_following_a_plan_publishes_it_and_moves_the_difference(stage: Stage) -> None:
    started(stage)
    stage.mover.follow(dict.fromkeys(TPS, 2), ["more on 2"])
    for _ in range(3):
        stage.mover.step()
        stage.obey(1)
        stage.obey(2)
    assert set(stage.held().values()) == {2}
    published = stage.store.plan()
    assert published is not None
    assert published[1]["reasons"] == ["more on 2"]
    assert len(published[1]["moves"]) == 2


def test_following_a_plan_again_leaves_moves_on_their_way_alone(stage: Stage) -> None:
    started(stage)
    goal = dict.fromkeys(TPS, 1)
    assert stage.mover.follow(goal) == 1
    stage.mover.step()
    under_way = {row.id for row in stage.store.moves()}
    assert stage.mover.follow(goal) == 2
    stage.mover.step()
    assert {row.id for row in stage.store.moves()} == under_way
    stage.obey(2)
    stage.obey(1)
    stage.mover.step()
    assert {row.state for row in stage.store.moves()} == {"done"}
    assert set(stage.held().values()) == {1}


def test_a_plan_that_changes_its_mind_supersedes_what_waits(stage: Stage) -> None:
    started(stage)
    source = stage.held()[0]
    stage.mover.follow({TPS[0]: 9})  # nobody is there yet
    stage.mover.step()
    stage.mover.follow({TPS[0]: 3 - source})
    stage.mover.step()
    assert stage.mover.state_of(stage.store.moves()[-1].id) is not None
    states = [(m.target, m.state) for m in stage.mover._moves.values()]
    assert states == [(9, MoveState.SUPERSEDED), (3 - source, MoveState.RELEASING)]


def test_a_plan_for_a_partition_that_does_not_exist_is_refused_by_name(stage: Stage) -> None:
    started(stage)
    stage.mover.follow({TopicPartition("orders", 99): 1, TPS[0]: stage.held()[0]})
    stage.mover.step()
    (row,) = stage.store.moves()
    assert (row.state, row.detail) == ("refused", "orders:99 is not a partition of this group")
    assert row.seconds is not None


def test_every_move_is_recorded_with_its_owners_its_beginning_and_its_duration(stage: Stage) -> None:
    started(stage)
    source = stage.held()[0]
    stage.mover.move(TPS[0], 3 - source)
    stage.mover.step()
    (row,) = stage.store.moves()
    assert (row.source, row.target, row.state, row.seconds) == (source, 3 - source, "releasing", None)
    assert row.at is not None
    assert row.at.endswith("Z")
    stage.obey(source)
    stage.pass_time(1.0, alive=(1, 2))
    stage.obey(3 - source)
    stage.mover.step()
    (row,) = stage.store.moves()
    assert (row.state, row.seconds, row.epoch) == ("done", 1.0, 2)


def test_the_next_leader_goes_on_with_moves_that_the_last_one_left(stage: Stage) -> None:
    started(stage)
    source = stage.held()[0]
    stage.mover.move(TPS[0], 3 - source)
    stage.mover.step()  # granted, then the planner dies
    later = stage.another("planner-2")
    stage.pass_time(6.0, alive=(1, 2))
    later.step()
    stage.obey(source)
    stage.obey(3 - source)
    later.step()
    (row,) = stage.store.moves()
    assert row.state == "done"
    assert stage.held()[0] == 3 - source
    later.stop()


def test_a_stuck_move_ends_by_itself_in_a_named_state_whoever_leads(stage: Stage) -> None:
    started(stage)
    source = stage.held()[0]
    stage.mover.move(TPS[0], 3 - source)
    stage.mover.step()
    stage.pass_time(6.0, alive=(1, 2))
    later = stage.another("planner-2")
    later.step()
    stage.pass_time(16.0, alive=(1, 2))  # the owner lives and does not release
    later.step()
    (row,) = stage.store.moves()
    assert row.state == "withdrawn"
    assert "did not release within 15 s and keeps it" in row.detail
    assert stage.held()[0] == source
    later.stop()


def test_the_silent_are_seen_when_their_deadline_passes_not_a_period_later(stage: Stage) -> None:
    started(stage)
    assert stage.mover.step() is not None
    assert stage.mover.wait_s(stage.mover.step()) == 0.2  # the period: everybody renewed a moment ago
    stage.now += 1.9
    stage.store.renew(stage.owners[2], TTL, Heartbeat())
    assert stage.mover.wait_s(stage.mover.step()) == pytest.approx(0.105)
    stage.now += 0.105
    stage.step_until_fenced()
    assert [str(stage.owners[1])] == stage.fencer.fenced
