"""Commits beside the loop: what waits for which transaction, and what an abort takes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from balancer.consumer import Mode, WorkerSettings
from balancer.consumer.commits import MOST_WAITING, Commits
from balancer.consumer.errors import OffsetsNotCommitted, TransactionAborted, WorkerFenced
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.pulse import Pulse
from balancer.consumer.watchdog import Watchdog
from balancer.leases.base import Lease, LeaseState, Owner
from forecaster.topics import TopicPartition


class Transactions:
    """A producer whose commits wait until they are let through."""

    def __init__(self) -> None:
        self.is_open = False
        self.open: list[Any] = []
        self.done: list[tuple[dict[int, int], list[Any]]] = []
        self.entered, self.pass_on = threading.Event(), threading.Event()
        self.fails: list[Exception] = []

    def begin(self) -> None:
        self.is_open = True

    def produce(self, topic: str, key: Any, value: Any, headers: Any = None) -> None:
        assert self.is_open
        assert not self.entered.is_set(), "the client refuses records while it commits"
        self.open.append(value)

    def writer(self, topic: str) -> Callable[[Any, bytes], None]:
        def write(key: Any, value: bytes) -> None:
            self.begin()
            self.produce(topic, key, value)

        return write

    def poll(self) -> None:
        assert not self.entered.is_set()

    def commit(self, rows: Any, metadata: Any) -> None:
        self.entered.set()
        try:
            assert self.pass_on.wait(60)
            if self.fails:
                raise self.fails.pop()
        finally:
            self.entered.clear()
        self.done.append(({tp.partition: row[0] for tp, row in rows.items()}, self.open))
        self.open, self.is_open = [], False

    def abort(self) -> None:
        self.open, self.is_open = [], False


class Table:
    """Two partitions held at offset 10, commits due at once."""

    def __init__(self, mode: Mode = Mode.TRANSACTIONAL, sink: Any = None, **settings: Any) -> None:
        known: dict[str, Any] = {"commit_interval": timedelta(microseconds=1), "output_topic": "out", "mode": mode}
        known |= {"membership_topic": "m"} if mode is Mode.MEMBERSHIP else {}
        made = WorkerSettings(group="g", topics=("t",), bootstrap_servers="127.0.0.1:9", **{**known, **settings})
        self.effects, self.holdings, self.pulse = Transactions(), Holdings(), Pulse()
        self.held = [
            Held(Lease(TopicPartition("t", p), LeaseState.HELD, Owner(1, 1, "n"), 1), 10, 10, "") for p in (0, 1)
        ]
        for held in self.held:
            self.holdings.add(held)
        self.undone, self.began = 0, 0.0
        self.commits = Commits(
            made,
            self.holdings,
            self.effects,  # type: ignore[arg-type]
            lambda: None,
            sink=sink,
            watchdog=Watchdog(),
            pulse=self.pulse,
            undo=self._undo,
        )

    def _undo(self) -> None:
        self.undone += 1

    def handle(self, p: int, value: bytes) -> None:
        """Do what the loop does for one record."""
        assert self.commits.writer is not None
        self.commits.writer(b"k", value)
        self.held[p].position += 1
        self.held[p].dirty = True
        self.commits.touched(0.0)


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.effects.pass_on.set()


def test_results_that_come_while_a_commit_is_on_its_way_are_in_the_next_transaction(table: Table) -> None:
    table.handle(0, b"a")
    table.commits.turn()
    assert table.effects.entered.wait(60)
    table.handle(0, b"b")
    table.commits.write("out", b"k", b"c")
    table.commits.turn()  # not there yet: goes on
    assert (table.held[0].committed, table.held[0].position) == (10, 12)
    table.effects.pass_on.set()
    table.commits.land()
    assert table.held[0].committed == 11  # what the commit said, not what was handled since
    assert table.held[0].dirty
    assert table.effects.open == [b"b", b"c"]
    table.commits.turn()
    table.commits.land()
    assert table.effects.done == [({0: 11}, [b"a"]), ({0: 12}, [b"b", b"c"])]


def test_an_abort_takes_back_the_commit_on_its_way_and_everything_since(table: Table) -> None:
    table.effects.fails = [TransactionAborted("no")]
    table.handle(0, b"a")
    table.commits.turn()
    table.handle(0, b"b")
    table.handle(1, b"c")
    table.effects.pass_on.set()
    table.commits.land()
    assert [(h.position, h.committed, h.dirty) for h in table.held] == [(10, 10, False)] * 2
    assert (table.undone, table.effects.open, table.effects.done) == (1, [], [])
    table.handle(0, b"a")
    table.commits.settle(table.held)
    assert table.effects.done == [({0: 11}, [b"a"])]


def test_an_abort_of_what_came_since_keeps_the_commit_that_was_on_its_way(table: Table) -> None:
    table.handle(0, b"a")
    table.commits.turn()
    table.handle(0, b"b")
    table.effects.pass_on.set()
    table.commits.abort("its partition is gone")
    assert (table.held[0].position, table.held[0].committed) == (11, 11)
    assert (table.effects.done, table.effects.open, table.undone) == ([({0: 11}, [b"a"])], [], 1)


def test_giving_up_a_partition_needs_one_more_commit_only_if_it_had_records_since(table: Table) -> None:
    table.handle(0, b"a")
    table.commits.turn()
    table.handle(1, b"b")
    table.effects.pass_on.set()
    table.commits.settle([table.held[0]])
    assert table.effects.done == [({0: 11}, [b"a"])]
    assert table.held[1].dirty
    table.commits.settle([table.held[1]])
    assert table.effects.done[1:] == [({1: 11}, [b"b"])]


def test_a_fence_ends_the_loop_when_the_commit_lands(table: Table) -> None:
    table.effects.fails = [WorkerFenced("over")]
    table.effects.pass_on.set()
    table.handle(0, b"a")
    table.commits.turn()
    with pytest.raises(WorkerFenced, match="over"):
        table.commits.land()
    assert table.held[0].committed == 10


def test_a_sink_commits_where_it_stands() -> None:
    table = Table(Mode.SINK)
    table.effects.pass_on.set()
    table.handle(0, b"a")
    table.commits.turn()
    assert (table.held[0].committed, table.effects.done) == (11, [({0: 11}, [b"a"])])
    assert table.pulse.commits == 1


def note(table: Table, p: int, records: int) -> None:
    """Do what the loop does for records whose handler returns nothing."""
    table.held[p].position += records
    table.held[p].dirty = True
    table.commits.handled(records, table.began)


@pytest.mark.parametrize("mode", [Mode.AT_LEAST_ONCE, Mode.MEMBERSHIP])
def test_what_may_be_repeated_is_never_more_than_a_batch_over_all_partitions(mode: Mode) -> None:
    table = Table(mode, commit_interval=timedelta(hours=1), longest_commit_interval=timedelta(hours=1))
    table.began = time.monotonic()
    note(table, 0, 249)
    table.commits.turn()  # neither time nor half a batch: nothing to do
    assert (table.commits.room, table.effects.entered.is_set()) == (251, False)
    note(table, 1, 1)
    table.commits.turn()
    assert table.effects.entered.wait(10)
    note(table, 1, 250)
    assert table.commits.room == 0
    for _ in range(3):
        table.commits.turn()
        table.commits.rest(0.001)  # gives the loop back, though the commit does not get through
    assert table.commits.room == 0
    table.effects.pass_on.set()
    table.commits.land()
    assert [held.committed for held in table.held] == [259, 11]
    assert table.commits.room == 250
    table.commits.turn()  # the other half is due at once
    table.commits.land()
    assert ([held.committed for held in table.held], table.commits.room) == ([259, 261], 500)


@pytest.mark.parametrize("mode", [Mode.AT_LEAST_ONCE, Mode.MEMBERSHIP])
def test_records_of_a_partition_that_is_gone_leave_no_handler_waiting_for_a_commit_that_never_comes(mode: Mode) -> None:
    table = Table(mode)
    table.effects.fails = [OffsetsNotCommitted("no") if mode is Mode.MEMBERSHIP else TransactionAborted("no")]
    note(table, 0, 250)
    table.commits.turn()
    assert table.effects.entered.wait(60)
    note(table, 0, 250)
    assert table.commits.room == 0
    table.holdings.drop(table.held[0].lease.partition)  # dropped without a commit; the other partition stays
    table.effects.pass_on.set()
    table.commits.land()
    table.commits.turn()
    assert (table.effects.done, table.commits.room) == ([], 500)
    note(table, 1, 3)
    table.commits.settle(table.held)
    assert table.effects.done == [({1: 13}, [])]


@pytest.mark.parametrize("mode", [Mode.AT_LEAST_ONCE, Mode.TRANSACTIONAL, Mode.SINK])
def test_a_transaction_of_offsets_alone_undoes_no_effect_and_is_only_committed_again(mode: Mode) -> None:
    table = Table(mode)
    table.effects.fails = [TransactionAborted("broker was away"), TransactionAborted("still away")]
    table.effects.pass_on.set()
    note(table, 0, 7)
    table.commits.settle(table.held)
    assert (table.undone, table.held[0].position, table.held[0].committed) == (0, 17, 17)
    assert table.effects.done == [({0: 17}, [])]
    assert not table.held[0].dirty


def test_results_of_a_transaction_of_offsets_alone_that_aborted_wait_for_the_next() -> None:
    table = Table(Mode.AT_LEAST_ONCE)
    table.effects.fails = [TransactionAborted("broker was away")]
    note(table, 0, 1)
    table.commits.turn()
    assert table.effects.entered.wait(10)
    table.handle(1, b"b")
    table.effects.pass_on.set()
    table.commits.settle(table.held)
    assert (table.undone, table.effects.done) == (0, [({0: 11, 1: 11}, [b"b"])])


def test_a_member_whose_results_last_commits_their_offsets_again() -> None:
    table = Table(Mode.MEMBERSHIP)
    table.effects.fails = [OffsetsNotCommitted("commit: _TIMED_OUT")]
    table.effects.pass_on.set()
    table.handle(0, b"a")
    table.commits.settle(table.held)
    assert (table.undone, table.held[0].committed) == (0, 11)


def test_a_transaction_waits_only_when_very_much_waits_for_it() -> None:
    table = Table()
    note(table, 0, 2 * MOST_WAITING)
    assert table.commits.room == MOST_WAITING  # no commit on its way: the interval alone counts
    table.commits.turn()
    assert table.effects.entered.wait(10)
    note(table, 0, MOST_WAITING - 1)
    assert table.commits.room == 1
    note(table, 0, 1)
    assert table.commits.room == 0
    table.effects.pass_on.set()
    table.commits.land()
    assert table.commits.room == MOST_WAITING


class Passed:
    """A sink that notes what had been committed when it was written."""

    def __init__(self) -> None:
        self.effects: Transactions | None = None
        self.written: list[tuple[int, int, list[Any]]] = []

    def write(self, partition: TopicPartition, epoch: int, start: int, end: int, results: Any) -> None:
        assert self.effects is not None
        self.written.append((start, end, [values for _, values in self.effects.done]))


def test_a_dead_letter_lasts_before_the_sink_passes_its_record() -> None:
    sink = Passed()
    table = Table(Mode.SINK, sink, output_topic=None, dead_letter_topic="dead")
    sink.effects = table.effects
    table.effects.pass_on.set()
    table.commits.write("dead", b"k", b"bad")
    table.held[0].position, table.held[0].dirty = 11, True
    table.commits.settle(table.held)
    assert sink.written == [(10, 11, [[b"bad"]])]
    assert table.effects.done == [({}, [b"bad"]), ({0: 11}, [])]


def test_a_dead_letter_that_is_aborted_leaves_the_sink_where_it_was() -> None:
    sink = Passed()
    table = Table(Mode.SINK, sink, output_topic=None, dead_letter_topic="dead")
    sink.effects = table.effects
    table.effects.pass_on.set()
    table.effects.fails = [TransactionAborted("no")]
    table.commits.write("dead", b"k", b"bad")
    table.held[0].position, table.held[0].dirty = 11, True
    table.commits.settle(table.held)
    assert sink.written == []
    assert (table.held[0].position, table.undone) == (10, 1)
