"""Field reports about clients (K-cases) that a planned consumer must not repeat, with clients that a test plays."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import confluent_kafka as ck
import pytest

from balancer.consumer import Mode, PlannedConsumer, WorkerSettings
from balancer.consumer.errors import OffsetsUnread, TransactionAborted, WorkerFenced
from balancer.consumer.kafka import DataConsumer, TransactionalProducer, again, consumer_properties, in_our_words
from balancer.consumer.watchdog import Watchdog
from balancer.leases.base import StartRule
from balancer.leases.memory import MemoryLeaseStore
from forecaster.topics import GroupId, TopicPartition
from tests.unit.balancer.consumer.test_pieces import WHERE, Message

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Client:
    """A confluent-kafka consumer and producer that only remembers what was called."""

    def __init__(self, properties: Any = None) -> None:
        self.properties, self.calls = properties, []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls.append((name, arguments))

        return call


def failure(code: int, *, abort: bool = False, fatal: bool = False, retriable: bool = False) -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(code, "said the broker", fatal, retriable, abort))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    made: list[Client] = []

    def make(properties: Any) -> Client:
        made.append(Client(properties))
        return made[-1]

    monkeypatch.setattr(ck, "Consumer", make)
    monkeypatch.setattr(ck, "Producer", make)
    return made


def test_k29_partitions_are_only_ever_added_and_taken_away_one_by_one(client: list[Client]) -> None:
    data = DataConsumer(WorkerSettings(**WHERE), "c")
    data._known = {"t": 2}
    data.assign({P0: (5, None), P1: (7, 3)})
    data.unassign([P0])
    assert [name for name, _ in client[0].calls] == ["incremental_assign", "incremental_unassign"]


def test_k20_k50_k42_client_settings_are_those_that_were_measured(client: list[Client]) -> None:
    settings = WorkerSettings(**WHERE)
    data = consumer_properties(settings, "c")
    assert (data["fetch.wait.max.ms"], data["retry.backoff.ms"]) == (50, 10)
    assert data["auto.offset.reset"] == "error"
    assert data["metadata.recovery.strategy"] == "none"
    TransactionalProducer(settings, "headway.g.1", "c")
    assert client[0].properties["metadata.recovery.strategy"] == "none"
    assert client[0].properties["retry.backoff.ms"] == 10
    # K41: the partition of a key is the one that every Java client chooses, whatever order metadata come in
    assert client[0].properties["partitioner"] == "murmur2_random"


def test_k26_the_client_is_one_in_which_a_commit_during_a_join_keeps_the_assignment() -> None:
    assert ck.libversion()[1] >= 0x020A0000


def test_k49_a_coordinator_that_is_not_there_yet_is_asked_again_within_a_deadline() -> None:
    answers = [failure(ck.KafkaError.NOT_COORDINATOR), failure(ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS), None]

    def call(_: float) -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "offsets"

    assert again("reading", call, transaction_timeout_s=1) == "offsets"

    def never(_: float) -> str:
        raise failure(ck.KafkaError.NOT_COORDINATOR)

    with pytest.raises(ck.KafkaException, match="said the broker"):
        again("reading", never, transaction_timeout_s=1, total_s=0.1)


@pytest.mark.parametrize("code", [ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.UNKNOWN_MEMBER_ID])
def test_k44_k27_a_refused_commit_is_never_repeated_blindly(code: int) -> None:
    calls = []

    def commit(_: float) -> None:
        calls.append(1)
        raise failure(code)

    with pytest.raises(WorkerFenced, match="removed this member; nothing is repeated blindly"):
        again("commit", commit, transaction_timeout_s=1)
    assert calls == [1]


def test_k47_a_fence_names_the_timeout_and_blames_no_rival() -> None:
    said = in_our_words("commit_transaction", failure(ck.KafkaError._FENCED, fatal=True).args[0], 12.5)
    assert isinstance(said, WorkerFenced)
    assert "transaction_timeout=12.5 s" in str(said)
    assert "newer instance" not in str(said)


def test_k37_any_fatal_error_ends_this_life() -> None:
    assert isinstance(in_our_words("x", failure(ck.KafkaError._FATAL, fatal=True).args[0], 1), WorkerFenced)
    said = in_our_words("x", failure(ck.KafkaError.FENCED_INSTANCE_ID).args[0], 1)
    assert isinstance(said, WorkerFenced)
    aborted = in_our_words("x", failure(ck.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, abort=True).args[0], 1)
    assert isinstance(aborted, TransactionAborted)


class Effects:
    """Transactions that end as the test says."""

    def __init__(self, told: list[str]) -> None:
        self.is_open, self.told, self.committed = False, told, []
        self.hang: threading.Event | None = None

    def initialise(self) -> None:
        self.told.append("initialised")

    def warm(self, topics: Any) -> None:
        self.told.append("warm producer")

    def writer(self, topic: str) -> Any:
        return lambda key, value: None

    def begin(self) -> None:
        self.is_open = True

    def poll(self) -> None:
        pass

    def commit(self, rows: Any, metadata: Any) -> None:
        if self.hang is not None:
            self.hang.wait(20)
        self.committed.append(rows)
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False

    def close(self) -> None:
        pass


class Data:
    """A log of a hundred records in each of two partitions."""

    def __init__(self, told: list[str]) -> None:
        self.told, self.at, self.ends = told, {}, 100
        self.gone: set[Any] = set()
        self.unstable: set[Any] = set()

    def warm(self, topics: Any) -> None:
        time.sleep(0.05)
        self.told.append("warm consumer")

    def poll(self, most: int, wait_s: float) -> list[Any]:
        found = []
        for tp, at in list(self.at.items()):
            if at < self.ends and len(found) < most:
                found.append(Message(tp.partition, at))
                self.at[tp] = at + 1
        if not found:
            time.sleep(0.001)
        return found

    def assign(self, starts: Any) -> None:
        self.at |= {tp: offset for tp, (offset, _) in starts.items()}

    def unassign(self, partitions: Any) -> None:
        for tp in partitions:
            self.at.pop(tp, None)

    def committed(self, partitions: Any, patience_s: float = 40.0) -> dict[Any, Any]:
        if self.unstable & set(partitions):
            self.told.append("unread")
            raise OffsetsUnread("committed offsets: _TIMED_OUT")
        return {}

    def log_range(self, tp: Any) -> tuple[int, int]:
        if tp in self.gone:
            raise failure(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
        return 0, self.ends

    def group_metadata(self) -> None:
        return None

    def close(self) -> None:
        pass


class Stage:
    """A worker over played clients, with leases in memory and a planner by hand."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, handler: Any = lambda r: None, *, batch: bool = False, **settings: Any
    ) -> None:
        self.told: list[str] = []
        self.effects, self.data = Effects(self.told), Data(self.told)
        monkeypatch.setattr("balancer.consumer.planned.open_effects", lambda *a: self.effects)
        monkeypatch.setattr("balancer.consumer.planned.DataConsumer", lambda *a: self.data)
        self.store = MemoryLeaseStore(GroupId("g"))
        token = self.store.lead("planner", timedelta(seconds=600))
        assert token is not None
        self.token = token
        self.store.found(token, epoch_floor=0)
        self.store.add(token, [P0, P1], StartRule.BEGINNING)
        self.hung: list[str] = []
        known = {"lease_ttl": timedelta(seconds=60), "commit_interval": timedelta(milliseconds=20)}
        known |= {"drain_timeout": timedelta(seconds=0.3)}
        self.worker = PlannedConsumer(
            WorkerSettings(**{**WHERE, **known, **settings}),
            handler,
            batch=batch,
            leases=self.store,
            watchdog=Watchdog(lambda what, seconds: self.hung.append(what)),
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def wait(self, is_so: Any, within_s: float = 60) -> None:
        end = time.monotonic() + within_s
        while not is_so():
            assert self.error is None, self.error
            assert time.monotonic() < end, "not so in time"
            time.sleep(0.005)

    def wait_renewing(self, is_so: Any) -> None:
        """Wait for what only a renewal brings; those of the worker itself are far apart."""

        def is_so_now() -> bool:
            self.worker._keeper.say(ready=True)
            return bool(is_so())

        self.wait(is_so_now)

    def start(self) -> None:
        self.wait(self.worker.is_ready.is_set)
        for tp in (P0, P1):
            assert self.store.grant(self.token, tp, 1)

    def stop(self) -> None:
        self.worker.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_k43_ready_is_said_only_after_everything_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    seen = []
    while not stage.worker.is_ready.is_set():
        worker = stage.store.view().workers.get(1)
        seen.append((worker is not None and worker.ready, list(stage.told)))
        time.sleep(0.002)
    assert stage.told == ["initialised", "warm consumer", "warm producer"]
    assert all(told == stage.told for ready, told in seen if ready)
    assert stage.store.view().workers[1].may_receive
    stage.stop()


def test_k34_what_is_committed_is_the_next_offset_never_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.start()
    stage.wait(lambda: any(rows.get(P0, (0,))[0] == 100 for rows in stage.effects.committed))
    stage.stop()


def test_a_partition_that_is_gone_before_it_is_begun_ends_nobody_and_begins_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch)
    stage.data.gone.add(P0)
    stage.start()
    stage.wait(lambda: any(rows.get(P1, (0,))[0] == 100 for rows in stage.effects.committed))
    assert P0 not in stage.data.at
    stage.data.gone.clear()
    stage.wait_renewing(lambda: any(rows.get(P0, (0,))[0] == 100 for rows in stage.effects.committed))
    stage.stop()


def test_a_partition_whose_offset_does_not_come_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.data.unstable.add(P0)
    stage.start()
    stage.wait_renewing(lambda: any(rows.get(P1, (0,))[0] == 100 for rows in stage.effects.committed))
    stage.wait_renewing(lambda: stage.told.count("unread") > 1)  # asked again
    assert P0 not in stage.data.at
    stage.data.unstable.clear()
    stage.wait_renewing(lambda: any(rows.get(P0, (0,))[0] == 100 for rows in stage.effects.committed))
    stage.stop()


def test_a_grant_below_what_the_sink_knows_is_given_back_until_one_is_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease store was emptied and founded too low: nobody ends, nothing is consumed below the sink's epoch."""
    from balancer.consumer import planned
    from balancer.consumer.errors import SinkAhead

    begun, start_of = [], planned.start_of

    def start(lease: Any, *rest: Any) -> Any:
        if lease.partition == P0 and lease.epoch < 3:
            raise SinkAhead(f"sink has {lease.partition} at epoch 2")
        begun.append((lease.partition, lease.epoch))
        return start_of(lease, *rest)

    monkeypatch.setattr(planned, "start_of", start)
    stage = Stage(monkeypatch)
    stage.start()
    stage.wait(lambda: any(rows.get(P1, (0,))[0] == 100 for rows in stage.effects.committed))
    while not any(tp == P0 for tp, _ in begun):
        stage.wait(lambda: stage.store.view().leases[P0].owner is None or any(tp == P0 for tp, _ in begun))
        stage.store.grant(stage.token, P0, 1)
    stage.wait(lambda: any(rows.get(P0, (0,))[0] == 100 for rows in stage.effects.committed))
    stage.stop()
    assert all(epoch >= 3 for tp, epoch in begun if tp == P0)


def test_k31_a_commit_names_only_partitions_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.start()
    stage.wait(lambda: any(P0 in rows for rows in stage.effects.committed))
    second = stage.store.claim(2, "bb", timedelta(seconds=60), stage.store.view().workers[1].profile)
    from balancer.leases.base import Heartbeat

    stage.store.renew(second, timedelta(seconds=60), Heartbeat(initialised=True, ready=True))
    stage.store.grant(stage.token, P0, 2)
    stage.wait(lambda: stage.store.view().leases[P0].owner is None)
    count = len(stage.effects.committed)
    stage.wait(lambda: stage.data.at.get(P1) == 100)
    stage.stop()
    assert all(P0 not in rows for rows in stage.effects.committed[count:])


def test_k35_a_slow_handler_does_not_cost_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(
        monkeypatch,
        lambda record: time.sleep(3) if record.offset == 3 else None,
        lease_ttl=timedelta(seconds=2),
        lease_margin=timedelta(seconds=0.5),
    )
    stage.start()
    stage.wait(lambda: any(rows.get(P0, (0,))[0] > 3 for rows in stage.effects.committed))
    worker = stage.store.view().workers[1]
    assert worker.live
    assert worker.owner.number == 1  # the same life, renewed while the handler slept
    stage.stop()


def test_k42_a_commit_that_never_returns_is_seen_by_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, commit_timeout=timedelta(milliseconds=100))
    stage.effects.hang = threading.Event()
    stage.start()
    stage.wait(lambda: stage.hung == ["a commit"])  # the real one ends the process here
    stage.effects.hang.set()
    stage.stop()


@pytest.mark.parametrize("mode", [Mode.AT_LEAST_ONCE, Mode.MEMBERSHIP])
@pytest.mark.parametrize("kind", ["one by one", "in batches", "async"])
def test_while_no_commit_gets_through_a_batch_is_handled_and_then_handlers_pause_and_the_lease_goes_on(
    monkeypatch: pytest.MonkeyPatch, kind: str, mode: Mode
) -> None:
    handled: list[Any] = []

    async def later(record: Any) -> None:
        handled.append(record)

    handler = {"one by one": handled.append, "in batches": handled.extend, "async": later}[kind]
    more = {"membership_topic": "m"} if mode is Mode.MEMBERSHIP else {}
    ttl = timedelta(seconds=600)  # whatever the machine does meanwhile
    stage = Stage(monkeypatch, handler, batch=kind == "in batches", mode=mode, lease_ttl=ttl, **more)
    stage.data.ends, stage.effects.hang = 1000, threading.Event()
    stage.start()
    stage.wait(lambda: len(handled) >= 500, 60)
    for _ in range(3):
        stage.worker._keeper.say(ready=True)
        stage.wait(lambda: stage.worker._obeyed is stage.worker._keeper.word, 60)  # the loop goes on to listen
    assert len(handled) == 500  # and not one of the 2,000 that wait
    assert stage.effects.committed == []
    stage.effects.hang.set()
    stage.wait(lambda: sum(h.committed for h in stage.worker._holdings) == 2000, 60)
    stage.stop()
    assert len(handled) == 2000  # nothing twice


def test_sigterm_without_a_planner_gives_everything_up_within_the_drain_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch)
    stage.start()
    stage.wait(lambda: stage.data.at == {P0: 100, P1: 100})
    began = time.monotonic()
    stage.stop()
    assert time.monotonic() - began < 30
    assert stage.error is None
    view = stage.store.view()
    assert [lease.owner for lease in view.leases.values()] == [None, None]
    assert [lease.offset for lease in view.leases.values()] == [100, 100]
    assert not view.workers[1].live


def test_heartbeats_say_pod_mode_protocol_and_what_the_worker_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, pod="orders-7f9")
    stage.start()
    stage.wait_renewing(lambda: stage.store.view().workers[1].heartbeat.get("rate") is not None)
    worker = stage.store.view().workers[1]
    assert (worker.profile.pod, worker.profile.mode, worker.profile.protocol) == ("orders-7f9", "transactional", 1)
    assert {"capacity", "rate", "busy", "cpu"} <= set(worker.heartbeat)
    stage.stop()
