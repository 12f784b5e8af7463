"""Handlers, failing records, and modes, on real Kafka."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from balancer.consumer import FailurePolicy, GiveUp, HandlerMisuse, Mode, Record, StartAt, idempotence_key
from balancer.consumer.errors import RecordRefused, SinkAhead, WorkerFenced
from balancer.consumer.keeper import LeaseKeeper
from balancer.consumer.sinks import sqlite_sink
from balancer.consumer.watchdog import Watchdog
from balancer.leases.base import InstanceTaken, WorkerProfile
from forecaster.topics import TopicPartition
from tests.integration.handover.pool import Pool, echo

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves a bootstrap socket to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUICK = FailurePolicy(tries=3, first_delay=timedelta(milliseconds=50))


def names(start: int, end: int) -> list[str]:
    return [f"v{i:03d}" for i in range(start, end)]


def flat(found: dict[int, list[str]]) -> list[str]:
    return sorted(v for values in found.values() for v in values)


def test_k34_what_comes_in_goes_out_once_and_offsets_carry_epoch_and_worker(pool: Pool) -> None:
    pool.create(pool.topic, pool.out)
    pool.write(names(0, 30), 0)
    pool.write(names(30, 60), 1)
    pool.plan()
    worker = pool.worker(lambda r: [(r.key, r.value.upper())])
    assert flat(pool.read(60)) == [n.upper() for n in names(0, 60)]
    pool.wait(lambda: pool.committed(0) == 30)
    note = pool.source.commits()[TopicPartition(pool.topic, 0)].note
    assert note is not None
    assert (note.owner.instance, note.epoch) == (1, 1)
    worker.stop()
    assert worker.error is None
    assert not pool.store.view().workers[1].live


def test_a_failing_record_is_tried_again_in_order_while_other_partitions_flow(pool: Pool) -> None:
    pool.create(pool.topic, pool.out)
    tries: list[str] = []

    def handle(record: Record) -> Any:
        if record.value == b"v002":
            tries.append("v002")
            if len(tries) < 4:
                raise OSError("downstream is away")
        return (str(record.partition), record.value)

    pool.plan()
    pool.ready(pool.worker(handle, failures=FailurePolicy(first_delay=timedelta(milliseconds=300))))
    pool.write(names(0, 5), 0)
    pool.write(names(10, 15), 1)
    order = [v for values in pool.read(10).values() for v in values]
    assert len(tries) == 4
    assert [v for v in order if v < "v010"] == names(0, 5)
    assert [v for v in order if v >= "v010"] == names(10, 15)


def test_a_record_given_up_goes_to_the_dead_letter_topic_with_the_reason(pool: Pool) -> None:
    dead = f"{pool.name}-dead"
    pool.create(pool.topic, pool.out, dead, partitions=1)

    def handle(record: Record) -> bytes | None:
        if record.value in (b"v001", b"v003"):
            raise ValueError("cannot read it")
        return record.value

    pool.plan()
    pool.write(names(0, 6))
    pool.worker(handle, failures=FailurePolicy(tries=2, first_delay=timedelta(0), give_up=GiveUp.DEAD_LETTER),
                dead_letter_topic=dead)  # fmt: skip
    assert pool.read(4) == {0: ["v000", "v002", "v004", "v005"]}
    assert pool.read(2, dead) == {0: ["v001", "v003"]}


def test_stop_ends_the_worker_after_an_orderly_release(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)

    def handle(record: Record) -> bytes | None:
        if record.value == b"v002":
            raise ValueError("never")
        return record.value

    pool.plan()
    pool.write(names(0, 4))
    worker = pool.worker(handle, failures=FailurePolicy(tries=1, give_up=GiveUp.STOP))
    worker.thread.join(120)
    assert isinstance(worker.error, RecordRefused)
    assert f"{pool.topic}:0@2" in str(worker.error)
    assert pool.committed(0) == 2
    assert pool.owner(0) is None
    worker.error = None


@pytest.mark.parametrize(("result", "says"), [({"a": 1}, "returned dict"), ((b"a",), "returned tuple"), (3, "int")])
def test_a_handler_that_returns_what_it_may_not_is_told_what_it_may(pool: Pool, result: object, says: str) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.plan()
    pool.write(["x"])
    worker = pool.worker(lambda record: result)
    worker.thread.join(120)
    assert isinstance(worker.error, HandlerMisuse)
    assert says in str(worker.error)
    assert "(key, value)" in str(worker.error)
    worker.error = None


def test_a_handler_that_hangs_is_ended_by_the_watchdog(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.plan()
    pool.write(["x"])
    overran = threading.Event()
    go_on = threading.Event()

    def overrun(what: str, seconds: float) -> None:
        assert what == "a handler"
        overran.set()
        go_on.set()

    pool.worker(
        lambda record: go_on.wait(60) and None, handler_timeout=timedelta(seconds=0.5), watchdog=Watchdog(overrun)
    )
    assert overran.wait(120)


def test_batches_find_the_record_that_fails(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    sizes = []

    def handle(records: list[Record]) -> list[bytes | None]:
        sizes.append(len(records))
        if any(r.value == b"v007" for r in records):
            raise ValueError("bad one")
        return [r.value for r in records]

    pool.write(names(0, 20))
    pool.plan()
    pool.worker(handle, batch=True, failures=FailurePolicy(tries=3, first_delay=timedelta(0), give_up=GiveUp.SKIP))
    assert pool.read(19) == {0: [n for n in names(0, 20) if n != "v007"]}
    assert max(sizes) > 1


def test_async_handlers_run_partitions_at_once_and_keep_order_within(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=4)
    now, most = [0], [0]

    async def handle(record: Record) -> tuple[str, bytes | None]:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.005 if most[0] > 1 else 0.2)  # until then, time for the other partitions to come
        now[0] -= 1
        return str(record.partition), record.value

    for p in range(4):
        pool.write([f"{p}-{n}" for n in names(0, 15)], p)
    pool.plan()
    pool.worker(handle)
    found = [v for values in pool.read(60).values() for v in values]
    for p in range(4):
        assert [v for v in found if v.startswith(f"{p}-")] == [f"{p}-{n}" for n in names(0, 15)]
    assert most[0] > 1


def test_sink_mode_starts_from_the_sink_and_writes_each_record_once(pool: Pool, tmp_path: Path) -> None:
    pool.create(pool.topic, partitions=1)
    path = tmp_path / "sink.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE rows (v TEXT)")

    def sink() -> Any:
        return sqlite_sink(path, lambda cursor, v: cursor.execute("INSERT INTO rows VALUES (?)", (v,)), pool.group)

    def rows() -> list[str]:
        with sqlite3.connect(path) as db:
            return [v for (v,) in db.execute("SELECT v FROM rows ORDER BY rowid")]

    pool.write(names(0, 10))
    first = sink()
    first.raise_epoch(TopicPartition(pool.topic, 0), 0)
    first.begin(TopicPartition(pool.topic, 0), 0, 4)  # the sink has 0 to 3 from somewhere else, Kafka knows nothing
    pool.plan()
    worker = pool.worker(lambda r: r.value.decode(), mode=Mode.SINK, sink=first, output_topic=None)
    pool.wait(lambda: len(rows()) == 6)
    pool.wait(lambda: pool.committed(0) == 10)
    worker.stop()
    pool.write(names(10, 15))
    pool.worker(lambda r: r.value.decode(), mode=Mode.SINK, sink=sink(), output_topic=None)
    pool.wait(lambda: len(rows()) == 11)
    assert rows() == names(4, 15)


def test_a_sink_ahead_of_the_granted_epoch_refuses_the_grant(tmp_path: Path) -> None:
    sink = sqlite_sink(tmp_path / "s.sqlite", lambda cursor, v: None)
    tp = TopicPartition("orders", 0)
    sink.begin(tp, 9, 100)
    with pytest.raises(SinkAhead, match="epoch 9, above the granted 3"):
        sink.raise_epoch(tp, 3)
    assert sink.read_epochs() == {tp: 9}


def test_at_least_once_keys_are_the_same_for_a_repeated_record(pool: Pool) -> None:
    pool.create(pool.topic, partitions=1)
    seen: list[str] = []
    pool.write(names(0, 3))
    pool.plan()
    pool.worker(lambda r: seen.append(idempotence_key(r)), mode=Mode.AT_LEAST_ONCE, output_topic=None)
    pool.wait(lambda: pool.committed(0) == 3)
    assert seen == [f"{pool.topic}:0:{i}" for i in range(3)]


def test_k26_k48_membership_mode_needs_no_transaction_survives_joins_and_leaves_at_once(pool: Pool) -> None:
    members = f"{pool.name}-members"
    pool.create(members, partitions=1)
    pool.create(pool.topic, pool.out, partitions=4)
    pool.plan()
    # a session that would outlast the test: whoever is gone has said so
    kind = {"mode": Mode.MEMBERSHIP, "membership_topic": members, "properties": {"session.timeout.ms": 300_000}}
    first = pool.worker(lambda r: (str(r.partition), r.value), **kind)
    pool.ready(first)
    for p in range(4):
        pool.write([f"{p}-{n}" for n in names(0, 20)], p)
    pool.wait(lambda: all(pool.committed(p) == 20 for p in range(4)))
    second = pool.worker(lambda r: (str(r.partition), r.value), **kind)
    pool.ready(second)
    for p in (0, 1):
        pool.mover.move(TopicPartition(pool.topic, p), 2)
    pool.wait(lambda: pool.owner(0) == pool.owner(1) == 2)
    for p in range(4):
        pool.write([f"{p}-{n}" for n in names(20, 40)], p)
    found = [v for values in pool.read(160).values() for v in values]
    for p in range(4):
        assert [v for v in found if v.startswith(f"{p}-")] == [f"{p}-{n}" for n in names(0, 40)]
    assert len(pool.source.members()) == 2
    second.stop()
    pool.wait(lambda: len(pool.source.members()) == 1)  # K48
    assert first.error is None


def test_k47_a_worker_that_stalls_beyond_its_transaction_timeout_is_told_which_and_a_new_life_goes_on(
    pool: Pool,
) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    stalled = threading.Event()

    def handle(record: Record) -> bytes | None:
        # what the record before gave has opened the transaction, unless a commit came between
        if record.offset > 3 and not stalled.is_set() and (pool.committed(0) or 0) < record.offset:
            stalled.wait(9)  # the broker looks for such transactions every half second
            stalled.set()
        return record.value

    pool.plan()
    pool.write(names(0, 3))
    limits = {"transaction_timeout": timedelta(seconds=5), "handler_timeout": timedelta(seconds=4.9)}
    worker = pool.worker(handle, instance=1, commit_interval=timedelta(seconds=0.5), **limits)
    pool.wait(lambda: pool.committed(0) == 3)
    pool.write(names(3, 43))
    worker.thread.join(120)
    assert isinstance(worker.error, WorkerFenced)
    assert "transaction_timeout=5 s" in str(worker.error)
    pool.workers.remove(worker)
    pool.worker(handle, instance=1, **limits)
    assert pool.read(43) == {0: names(0, 43)}


def test_two_workers_with_one_instance_number_the_second_says_who_has_it(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.plan()
    first = pool.worker(echo, instance=1, lease_ttl=timedelta(seconds=5))
    pool.ready(first)
    second = LeaseKeeper(pool.store, timedelta(seconds=5), lambda beat: beat)
    with pytest.raises(InstanceTaken, match=r"instance 1 is taken by 1#1\."):
        second.claim(1, "bb", WorkerProfile(), 6.0)  # longer than a lease: the first one lives on
    assert first.error is None
    pool.write(["v"])
    assert pool.read(1) == {0: ["v"]}


def test_k17_without_a_commit_latest_starts_at_the_end_and_that_is_made_to_last(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write(names(0, 5))
    pool.plan()
    worker = pool.worker(echo, start_at=StartAt.LATEST)
    pool.wait(lambda: pool.committed(0) == 5)
    worker.stop()
    pool.write(names(5, 8))
    pool.worker(echo, start_at=StartAt.LATEST)
    assert pool.read(3) == {0: names(5, 8)}
