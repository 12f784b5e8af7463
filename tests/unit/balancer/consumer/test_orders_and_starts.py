"""What a worker reads from the planner's word, where it starts, and what it still owes the store."""

from __future__ import annotations

from typing import Any

import pytest

from balancer.consumer import StartAt, WorkerSettings
from balancer.consumer.errors import StartUnknown
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.orders import orders_in
from balancer.consumer.owed import Owed
from balancer.consumer.starts import Unread, start_of
from balancer.leases.base import Lease, LeaseRefused, LeaseState, LeaseStoreUnavailable, Owner, StartRule, WorkerView
from balancer.leases.notes import commit_metadata
from forecaster.topics import TopicPartition

ME, OTHER = Owner(1, 1, "aa"), Owner(2, 1, "bb")
P = [TopicPartition("t", n) for n in range(10)]


def held(n: int, epoch: int = 5, **more: Any) -> Lease:
    return Lease(P[n], LeaseState.HELD, ME, epoch, **more)


def settings(start_at: StartAt = StartAt.EARLIEST) -> WorkerSettings:
    return WorkerSettings(group="g", topics=("t",), bootstrap_servers="127.0.0.1:9", start_at=start_at)


def log_range(_: TopicPartition) -> tuple[int, int]:
    return 100, 900


@pytest.mark.parametrize("quiet", [True, False])
def test_orders_are_the_difference_between_word_and_holdings(quiet: bool) -> None:
    seen = [
        held(0),  # stays
        held(1, void=True),
        held(2, next=OTHER),
        held(3, epoch=6, next=OTHER),  # another epoch: this word is of another life of the lease
        Lease(P[4], LeaseState.FREE, None, 2, next=ME),
        held(5),  # not known to be ours
        Lease(P[6], LeaseState.HELD, OTHER, 9),  # believed to be ours
        Lease(P[7], LeaseState.FREE, None, 2, next=ME),  # owed
        Lease(P[8], LeaseState.HELD, OTHER, 9, next=ME),  # not free yet
        Lease(P[9], LeaseState.FENCING, OTHER, 9, next=ME),  # nobody knows when
    ]
    holdings = Holdings()
    for n in (0, 1, 2, 3, 6):
        holdings.add(Held(held(n), 0, 0, "", None, dirty=False, committed_at=0.0))
    asked = orders_in(WorkerView(1, False, {x.partition: x for x in seen}), ME, holdings, {P[7]}, quiet=quiet)
    assert [h.lease.partition for h in asked.void] == [P[1]]
    assert [h.lease.partition for h in asked.release] == [P[2]]
    assert asked.take == [P[4]]
    assert [x.partition for x in asked.unknown] == ([P[5]] if quiet else [])
    assert [h.lease.partition for h in asked.gone] == ([P[6]] if quiet else [])


def test_a_start_is_what_was_handed_over_else_committed_else_ruled() -> None:
    given = held(0, offset=7, leader_epoch=3)
    assert start_of(given, (5, 1, ""), settings(), None, log_range) == (7, 3, True)
    assert start_of(held(0), (5, 1, ""), settings(), None, log_range) == (5, 1, True)
    assert start_of(held(0), None, settings(), None, log_range) == (100, None, False)
    assert start_of(held(0), None, settings(StartAt.LATEST), None, log_range) == (900, None, False)
    young = held(0, start=StartRule.BEGINNING)
    assert start_of(young, None, settings(StartAt.LATEST), None, log_range) == (100, None, False)
    with pytest.raises(StartUnknown, match="no committed offset"):
        start_of(held(0), None, settings(StartAt.ERROR), None, log_range)


def test_a_commit_of_the_topics_earlier_life_does_not_count() -> None:
    old = commit_metadata(ME, 1, "earlier")
    assert start_of(held(0, topic_id="now"), (5, 1, old), settings(), None, log_range) == (100, None, False)
    assert start_of(held(0, topic_id="earlier"), (5, 1, old), settings(), None, log_range) == (5, 1, True)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_lease_that_was_never_begun_and_is_wanted_elsewhere_is_given_up_as_it_is(quiet: bool) -> None:
    seen = {x.partition: x for x in (held(0), held(1, next=OTHER), held(2, void=True), held(3, next=ME), held(4))}

    def given(draining: bool = False, released: bool = False, leaving: bool = False) -> tuple[list[int], list[int]]:
        view = WorkerView(1, draining, seen, released)
        asked = orders_in(view, ME, Holdings(), {P[4]}, quiet=quiet, leaving=leaving)
        return [x.partition.partition for x in asked.give], [x.partition.partition for x in asked.unknown]

    assert given() == (([1, 2], [0, 3]) if quiet else ([], []))
    for why in ("draining", "released", "leaving"):
        assert given(**{why: True}) == (([0, 1, 2, 3], []) if quiet else ([], []))


def test_offsets_that_did_not_come_are_asked_for_ever_more_seldom_one_at_a_time() -> None:
    unread, (a, b, c) = Unread(), (held(n) for n in (0, 1, 2))
    unread.failed([a.partition, b.partition], now=0.0)
    assert unread.due([a, b, c], now=0.0) == [c]  # never asked for in vain
    assert unread.due([a, b], now=0.5) == []
    assert unread.due([a, b], now=1.0) == [a]
    unread.failed([a.partition], now=1.0)
    assert (unread.due([a, b], now=2.5), unread.due([a, b], now=3.0)) == ([], [b])
    unread.read(b.partition)  # whatever was away is back, or a alone is the trouble
    assert unread.due([a], now=3.0) == [a]
    for _ in range(10):
        unread.failed([a.partition], now=0.0)
    assert (unread.due([a], now=29.0), unread.due([a], now=30.0)) == ([], [a])


def test_many_partitions_without_offsets_cost_the_others_no_more_time_than_one() -> None:
    unread, leases, asked, now = Unread(), [held(n) for n in range(10)], 0, 0.0
    unread.failed([lease.partition for lease in leases], now)
    while now < 120:
        for lease in unread.due(leases, now):
            asked, now = asked + 1, now + 3.0  # the loop stands still for that
            unread.failed([lease.partition], now)
        now += 0.7
    assert asked <= 7


def test_a_partition_that_went_elsewhere_and_comes_back_is_asked_for_at_once() -> None:
    unread, (a, b) = Unread(), (held(n) for n in (0, 1))
    unread.failed([a.partition, b.partition], now=0.0)
    assert unread.due([b], now=0.0) == []
    assert unread.due([a, b], now=0.0) == [a]


class Books:
    """Answers releases as told; the rest of a store is not asked."""

    def __init__(self) -> None:
        self.answers: list[Exception | None] = []
        self.told: list[tuple[TopicPartition, int, int | None]] = []
        self.mark, self.owner = 0, ME

    def release(self, _: Owner, tp: TopicPartition, epoch: int, offset: int | None, __: int | None) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        self.told.append((tp, epoch, offset))


def test_what_is_owed_is_told_until_the_store_answers() -> None:
    books: Any = Books()
    owed = Owed(books, books)
    owed.add(held(0), 7, 1)
    owed.add(held(1))
    books.answers = [LeaseStoreUnavailable("silent")]
    owed.pay()
    assert (len(owed), P[0] in owed, books.mark) == (2, True, 1)
    books.answers = [None, LeaseRefused("not yours")]
    owed.pay()
    assert (len(owed), books.told, books.mark) == (0, [(P[0], 5, 7)], 3)
