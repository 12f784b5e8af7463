"""The planned consumer's pure pieces, and its keeper and watchdog, without Kafka."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.consumer import (
    FailurePolicy,
    GiveUp,
    HandlerMisuse,
    Mode,
    PlannedConsumer,
    SettingsRefused,
    WorkerSettings,
)
from balancer.consumer.handling import Handling
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.keeper import LeaseKeeper
from balancer.consumer.pacing import CommitPacer
from balancer.consumer.pulse import Pulse
from balancer.consumer.sinks import SqlSink
from balancer.consumer.watchdog import Watchdog
from balancer.leases.base import Heartbeat, Lease, LeaseRefused, LeaseState, Owner, WorkerProfile
from balancer.leases.memory import MemoryLeaseStore
from balancer.leases.notes import read_commit_metadata
from forecaster.topics import GroupId, TopicPartition

WHERE: dict[str, Any] = {"group": "g", "topics": ("t",), "bootstrap_servers": "127.0.0.1:9"}
TTL = timedelta(seconds=600)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": ""}, "group="),
        ({"topics": ()}, "topics="),
        ({"topics": ("",)}, "at least one topic name"),
        ({"lease_ttl": timedelta(0)}, "lease_ttl="),
        ({"lease_margin": timedelta(seconds=1.5)}, "at most half of lease_ttl"),
        ({"transaction_timeout": timedelta(seconds=5)}, "longer than handler_timeout"),
        ({"longest_commit_interval": timedelta(milliseconds=1)}, "longest_commit_interval"),
        ({"instance": 0}, "instance=0 must be 1 or more"),
        ({"poll_records": 0}, "poll_records"),
        ({"failures": FailurePolicy(give_up=GiveUp.DEAD_LETTER)}, "dead_letter_topic"),
        ({"mode": Mode.MEMBERSHIP}, "exactly one partition"),
        ({"properties": {"auto.offset.reset": "latest"}}, r"properties\.auto\.offset\.reset"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsRefused, match=says):
        WorkerSettings(**{**WHERE, **wrong})


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"first_delay": timedelta(minutes=5)}])
def test_failure_policies_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsRefused):
        FailurePolicy(**wrong)


@given(st.integers(1, 200))
def test_delays_grow_to_a_limit_and_block_never_ends(failed: int) -> None:
    policy = FailurePolicy()
    delay = policy.delay(failed)
    assert delay is not None
    assert policy.first_delay <= delay <= policy.longest_delay
    assert delay <= (policy.delay(failed + 1) or timedelta(0))


@given(st.lists(st.floats(0, 10), max_size=50), st.floats(0.01, 1), st.floats(1, 10))
def test_the_commit_interval_stays_within_its_bounds(costs: list[float], wanted: float, longest: float) -> None:
    pacer = CommitPacer(wanted, longest)
    for cost in costs:
        pacer.took(cost)
    assert wanted <= pacer.interval_s <= longest


def test_one_commit_that_waited_for_brokers_does_not_slow_those_that_follow() -> None:
    pacer = CommitPacer(wanted_s=0.1, longest_s=5.0)
    pacer.took(43.0)
    assert pacer.interval_s <= 1.0
    for _ in range(20):
        pacer.took(0.014)
    assert pacer.interval_s == 0.1


def test_a_sink_and_its_mode_belong_together() -> None:
    with pytest.raises(HandlerMisuse, match="needs a sink"):
        PlannedConsumer(WorkerSettings(**WHERE, mode=Mode.SINK), lambda r: None, leases=MemoryLeaseStore(GroupId("g")))


class Message:
    def __init__(self, partition: int, offset: int, error: object = None) -> None:
        self._where, self._error = (partition, offset), error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._where[0]

    def offset(self) -> int:
        return self._where[1]

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v%d" % self._where[1]

    def error(self) -> object:
        return self._error

    def leader_epoch(self) -> int:
        return 4


def hold(holdings: Holdings, partition: int, position: int = 0) -> Held:
    lease = Lease(TopicPartition("t", partition), LeaseState.HELD, Owner(1, 1, "a"), 5)
    held = Held(lease, position, position, "note")
    holdings.add(held)
    return held


def handling(handler: Any, *, batch: bool = False) -> tuple[Handling, list[Any]]:
    out: list[Any] = []
    made = Handling(WorkerSettings(**WHERE), handler, batch, lambda held, record, outputs, result: out.extend(outputs))
    return made, out


FOREVER = float("inf")


def test_k27_records_of_other_leases_or_behind_the_position_are_dropped() -> None:
    holdings = Holdings()
    held = hold(holdings, 0, position=3)
    run, out = handling(lambda record: record.value)
    handled, left, misfits = run.run([Message(0, 2), Message(1, 9), Message(0, 3), Message(0, 7)], holdings, FOREVER)
    assert (handled, left, misfits) == (2, [], [])
    assert out == [(b"k", b"v3"), (b"k", b"v7")]
    assert (held.position, held.offset_row) == (8, (8, 4, "note"))  # K34: last + 1; K24: with the leader epoch


@pytest.mark.parametrize("kind", ["one", "batch", "async"])
def test_after_a_failure_nothing_behind_it_is_handled_and_others_go_on(kind: str) -> None:
    holdings = Holdings()
    first, second = hold(holdings, 0), hold(holdings, 1)
    seen: list[tuple[int, int]] = []

    def one(record: Any) -> None:
        if (record.partition, record.offset) == (0, 1):
            raise ValueError("bad")
        seen.append((record.partition, record.offset))

    def many(records: list[Any]) -> None:
        for record in records:
            one(record)

    async def later(record: Any) -> None:
        one(record)

    run, _ = handling({"one": one, "batch": many, "async": later}[kind], batch=kind == "batch")
    messages = [Message(0, 0), Message(0, 1), Message(1, 0), Message(0, 2), Message(1, 1)]
    first.failures = 1  # batches go one by one after a failure
    _, _, misfits = run.run(messages, holdings, FOREVER)
    if run._loop is not None:
        run._loop.close()
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1)]
    assert (first.position, second.position) == (1, 2)
    assert [(m.message.offset(), str(m.failure)) for m in misfits] == [(1, "bad")]
    assert first.blocked_until is not None


def test_a_slow_handler_gives_way_after_its_slice() -> None:
    holdings = Holdings()
    hold(holdings, 0)
    run, _ = handling(lambda record: None)
    messages = [Message(0, i) for i in range(5)]
    handled, left, _ = run.run(messages, holdings, 0.0)
    assert (handled, left) == (1, messages[1:])


def test_an_abort_takes_a_partition_back_to_its_last_commit() -> None:
    held = hold(Holdings(), 0, position=10)
    held.position, held.dirty = 15, True
    held.results.append("x")
    held.rewound()
    assert (held.position, held.dirty, held.results) == (10, False, [])
    held.position = 20
    held.settled(20, 1.0)
    assert (held.committed, held.committed_at) == (20, 1.0)


def test_a_worker_says_what_it_could_do_not_only_what_it_did() -> None:
    now = [0.0, 0.0]
    pulse = Pulse(lambda: now[0], lambda: now[1])
    pulse.worked(100, 0.5)
    pulse.committed(0.5)
    now[:] = [10.0, 2.0]
    beat = pulse.beat(Heartbeat(ready=True))
    assert (beat.ready, beat.capacity, beat.rate, beat.busy, beat.cpu) == (True, 190.0, 10.0, 0.1, 0.2)
    now[0] = 20.0
    idle = pulse.beat(Heartbeat())
    assert (idle.capacity, idle.rate) == (190.0, 0.0)  # B14: an idle worker has not lost its capacity


def test_a_handler_that_does_not_come_back_shows_as_busy_and_slow() -> None:
    now = [0.0, 0.0]
    pulse = Pulse(lambda: now[0], lambda: now[1])
    pulse.worked(1000, 0.5)
    now[0] = 1.0
    assert pulse.beat(Heartbeat()).capacity == 2000.0
    pulse.begins(1.0)
    capacities = []
    for now[0] in (2.0, 3.0, 4.0, 5.0):
        beat = pulse.beat(Heartbeat())
        assert (beat.rate, beat.busy) == (0.0, 1.0)
        capacities.append(beat.capacity)
    assert capacities == sorted(capacities, reverse=True)
    assert capacities[-1] < 50
    pulse.worked(1, 4.0)
    now[0] = 6.0
    assert pulse.beat(Heartbeat()).busy == 0.0  # the time in the handler has been counted already


def keeper() -> tuple[LeaseKeeper, MemoryLeaseStore, list[float]]:
    now = [100.0]
    store = MemoryLeaseStore(GroupId("g"), clock=lambda: now[0])
    token = store.lead("p", TTL)
    assert token is not None
    store.found(token, epoch_floor=0)
    made = LeaseKeeper(store, TTL, lambda beat: beat)
    made.claim(None, "aa", WorkerProfile(), 0.0)
    return made, store, now


def test_a_refused_renewal_is_final_and_a_lost_store_is_not() -> None:
    kept, store, now = keeper()
    kept.say(ready=True)
    assert kept.word is not None
    store.lose()
    kept.say()
    assert kept.refused is None
    assert kept.word is None
    assert "founded" in str(kept.holding)
    kept, _, now = keeper()
    now[0] += 700
    kept.say()
    assert "never revives" in str(kept.refused)


def test_a_store_that_shows_an_older_plan_is_not_obeyed() -> None:
    kept, _, _ = keeper()
    kept._plan_epoch = 9
    kept.say()
    assert kept.word is None
    assert "went back in time" in str(kept.holding)


def test_a_worker_waits_for_its_predecessors_deadline() -> None:
    _, store, now = keeper()
    second = LeaseKeeper(store, TTL, lambda beat: beat)
    with pytest.raises(Exception, match=r"taken by 1#1\.aa"):
        second.claim(1, "bb", WorkerProfile(), 0.0)
    now[0] += 700
    assert second.claim(1, "bb", WorkerProfile(), 0.0).number == 2
    with pytest.raises(LeaseRefused):
        LeaseKeeper(store, TTL, lambda beat: beat).owner  # noqa: B018


def test_the_watchdog_sees_the_innermost_call_and_names_it() -> None:
    overrun = threading.Event()
    said: list[str] = []

    def note(what: str, seconds: float) -> None:
        said.append(what)
        overrun.set()

    dog = Watchdog(note)
    dog.start()
    with dog.guard("outer", 100), dog.guard("a commit", 0.0):
        assert overrun.wait(60)
    dog.stop()
    assert said == ["a commit"]


@given(st.text())
def test_foreign_metadata_are_never_taken_for_ours(text: str) -> None:
    note = read_commit_metadata(text)
    assert note is None or '"e"' in text


def test_users_processes_load_nothing_heavy() -> None:
    code = (
        "import sys, balancer.consumer, balancer.leases.redis, balancer.consumer.membership\n"
        "heavy = ('numpy', 'pandas', 'scipy', 'sklearn', 'fastapi', 'pydantic', 'kafka')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class _Gone:
    """A connection whose database has gone away."""

    def cursor(self) -> Any:
        return self

    def execute(self, *_: object) -> None:
        if self.is_gone:
            raise ConnectionError("server closed the connection unexpectedly")

    def commit(self) -> None:
        self.execute()

    def rollback(self) -> None:
        if self.is_gone:
            raise RuntimeError("connection already closed")

    close = rollback
    is_gone = False
    rowcount = 1


@pytest.mark.parametrize("at_commit", [False, True], ids=["execute", "commit"])
def test_a_sink_tells_what_went_wrong_with_the_database_and_not_that_the_rollback_failed(at_commit: bool) -> None:
    connection = _Gone()
    sink = SqlSink(lambda: connection, lambda cursor, result: setattr(connection, "is_gone", at_commit))
    connection.is_gone = not at_commit
    with pytest.raises(ConnectionError, match="server closed the connection"):
        sink.write(TopicPartition("orders", 0), 1, 0, 1, ["result"])
