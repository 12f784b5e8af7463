"""Moves as pure code: every path ends in a named state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.leases.base import GroupView, Lease, LeaseState, Owner, WorkerProfile, WorkerState
from balancer.moves.duties import topic_changes
from balancer.moves.machine import ENDS, MoveLimits, MoveState, Order, Transfer, advance
from balancer.moves.spreading import drains_for, grants_for_free
from forecaster.topics import TopicPartition

TP = TopicPartition("orders", 0)
A, B, B2 = Owner(1, 1, "a"), Owner(2, 1, "b"), Owner(2, 2, "c")
LIMITS = MoveLimits(timedelta(seconds=30), timedelta(seconds=10), timedelta(seconds=5))


def worker(owner: Owner, *, live: bool = True, ready: bool = True, draining: bool = False) -> WorkerState:
    return WorkerState(owner, live, timedelta(seconds=1), ready, ready, draining, WorkerProfile())


def held(owner: Owner, to: Owner | None = None, tp: TopicPartition = TP) -> Lease:
    return Lease(tp, LeaseState.HELD, owner, 3, to)


def free(to: Owner | None = None, tp: TopicPartition = TP) -> Lease:
    return Lease(tp, LeaseState.FREE, None, 3, to)


def group(*leases: Lease, workers: Mapping[int, WorkerState] | None = None) -> GroupView:
    known = workers if workers is not None else {1: worker(A), 2: worker(B)}
    return GroupView(1, 0, known, {lease.partition: lease for lease in leases}, {})


MOVE = Transfer("m", TP, 2, began=0.0)
RELEASING = replace(MOVE, state=MoveState.RELEASING, since=1.0)
TAKING = replace(MOVE, state=MoveState.TAKING, since=1.0)


@pytest.mark.parametrize(
    ("move", "view", "now", "state", "order"),
    [
        (MOVE, group(held(A)), 1.0, MoveState.RELEASING, Order.GRANT),
        (MOVE, group(held(B)), 1.0, MoveState.DONE, None),
        (MOVE, group(held(A), workers={1: worker(A)}), 1.0, MoveState.REQUESTED, None),
        (MOVE, group(held(A), workers={1: worker(A)}), 31.0, MoveState.REFUSED, None),
        (MOVE, group(held(A), workers={1: worker(A), 2: worker(B, ready=False)}), 5.0, MoveState.REQUESTED, None),
        (MOVE, group(held(A), workers={1: worker(A), 2: worker(B, draining=True)}), 31.0, MoveState.REFUSED, None),
        (MOVE, group(), 1.0, MoveState.REFUSED, None),
        (MOVE, group(Lease(TP, LeaseState.FENCING, A, 3)), 1.0, MoveState.REQUESTED, None),
        (RELEASING, group(held(A, B)), 5.0, MoveState.RELEASING, None),
        (RELEASING, group(held(A, B)), 12.0, MoveState.WITHDRAWN, Order.WITHDRAW),
        (RELEASING, group(free(B)), 2.0, MoveState.TAKING, None),
        (RELEASING, group(held(B)), 2.0, MoveState.DONE, None),
        (RELEASING, group(Lease(TP, LeaseState.FENCING, A, 3)), 99.0, MoveState.RELEASING, None),
        (RELEASING, group(free()), 2.0, MoveState.RELEASING, Order.GRANT),
        (RELEASING, group(free(B), workers={2: worker(B2)}), 2.0, MoveState.RELEASING, Order.GRANT),
        (RELEASING, group(free(), workers={1: worker(A)}), 2.0, MoveState.FAILED, None),
        (TAKING, group(free(B)), 3.0, MoveState.TAKING, None),
        (TAKING, group(free(B)), 7.0, MoveState.FAILED, Order.WITHDRAW),
        (TAKING, group(held(B)), 3.0, MoveState.DONE, None),
    ],
)
def test_where_a_move_stands_after_a_look(
    move: Transfer, view: GroupView, now: float, state: MoveState, order: Order | None
) -> None:
    after, ordered = advance(move, view, now, LIMITS)
    assert (after.state, ordered) == (state, order)
    if state in ENDS and state is not MoveState.DONE:
        assert after.detail
    if state is MoveState.DONE:
        assert after.epoch == 3


LEASES = st.sampled_from([held(A), held(A, B), held(B), free(), free(B), free(A), Lease(TP, LeaseState.FENCING, A, 3)])
WORKERS = st.fixed_dictionaries(
    {
        1: st.builds(worker, st.just(A), live=st.booleans()),
        2: st.builds(worker, st.sampled_from([B, B2]), live=st.booleans(), ready=st.booleans(), draining=st.booleans()),
    }
)


@given(st.lists(st.tuples(LEASES, WORKERS), max_size=20), LEASES, WORKERS)
def test_a_stuck_move_ends_by_itself(
    looks: list[tuple[Lease, dict[int, WorkerState]]], last: Lease, workers: dict[int, WorkerState]
) -> None:
    move, now = MOVE, 0.0
    for lease, known in looks:
        now += 1.0
        move, order = advance(move, group(lease, workers=known), now, LIMITS)
        if order is Order.GRANT:
            assert known[2].may_receive  # a partition leaves its owner only once the next one is warm
            assert lease.state is not LeaseState.FENCING  # L5
    if last.state is LeaseState.FENCING:
        return  # ends with the fence
    for _ in range(100):
        now += 1.0
        move, order = advance(move, group(last, workers=workers), now, LIMITS)
        if order is Order.GRANT:
            last = replace(last, next=workers[2].owner)
        elif order is Order.WITHDRAW:
            last = replace(last, next=None)
    assert move.is_over


def leases(*numbers: int, owner: Owner | None = None) -> list[Lease]:
    return [held(owner, tp=tp) if owner else free(tp=tp) for tp in (TopicPartition("orders", n) for n in numbers)]


def test_free_partitions_go_where_the_plan_says_else_to_whoever_has_least() -> None:
    view = group(*leases(0, 1, 2, owner=A), *leases(3, 4, 5, 6, 7))
    wanted = {TopicPartition("orders", 3): 1, TopicPartition("orders", 4): 9}
    grants = grants_for_free(view, wanted, frozenset({TopicPartition("orders", 7)}))
    assert [(tp.partition, i) for tp, i in grants] == [(3, 1), (4, 2), (5, 2), (6, 2)]


def test_nothing_is_granted_to_nobody() -> None:
    view = group(*leases(0, 1), workers={1: worker(A, ready=False)})
    assert grants_for_free(view, {}) == []
    assert drains_for(view) == []


def test_a_draining_worker_gives_to_the_others_in_turn() -> None:
    third = Owner(3, 1, "x")
    workers = {1: worker(A, draining=True), 2: worker(B), 3: worker(third)}
    view = group(*leases(0, 1, 2, 3, owner=A), workers=workers)
    assert [i for _, i in drains_for(view)] == [2, 3, 2, 3]


def test_topics_that_grew_went_and_came_again() -> None:
    known = [replace(lease, topic_id="old") for lease in leases(0, 1)]
    gone = replace(free(tp=TopicPartition("bills", 0)), topic_id="b")
    changes = topic_changes(group(*known, gone), {"orders": ("new", 3)})
    assert [tp.partition for tp in changes.grown] == [2]
    assert changes.gone == (TopicPartition("bills", 0),)
    assert list(changes.recreated) == ["new"]
