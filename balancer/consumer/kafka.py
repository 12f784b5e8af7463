"""The Kafka edge of a planned consumer: client settings as measured, short repeated calls, errors in our words.

Everything that confluent-kafka does for us goes through this file.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka as ck

from balancer.consumer.errors import BrokerRefused, OffsetsUnread, TransactionAborted, WorkerFenced
from balancer.consumer.settings import WorkerSettings
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.consumer")
T = TypeVar("T")

OUT_OF_RANGE = int(ck.KafkaError._AUTO_OFFSET_RESET)
TRUNCATED = int(ck.KafkaError._LOG_TRUNCATION)

_E = ck.KafkaError
_FENCED = {_E._FENCED, _E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_ID_MAPPING}
_REFUSED = {
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional id prefix headway.<group>.",
    _E.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    _E.TOPIC_AUTHORIZATION_FAILED: "Read on the consumed topics and Write on the output and dead-letter topics",
    _E.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
    _E.SASL_AUTHENTICATION_FAILED: "valid credentials",
    _E._AUTHENTICATION: "valid credentials",
}
_GROUP_SAYS_NO = {_E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID, _E.FENCED_INSTANCE_ID, _E.REBALANCE_IN_PROGRESS}
for _name in ("STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"):
    if hasattr(_E, _name):
        _GROUP_SAYS_NO.add(getattr(_E, _name))
_PASSING = {
    _E.NOT_COORDINATOR,
    _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_LOAD_IN_PROGRESS,
    _E._TIMED_OUT,
    _E._UNKNOWN_PARTITION,  # the client's metadata are older than the partition
    _E._UNKNOWN_TOPIC,
}
_AWAY = {
    _E._WAIT_COORD,
    _E._TRANSPORT,
    _E._ALL_BROKERS_DOWN,
    _E.REQUEST_TIMED_OUT,
    _E.NETWORK_EXCEPTION,
    _E.NOT_ENOUGH_REPLICAS,
}


def refused(error: Any) -> BrokerRefused | None:
    """Return the error in our words if the broker says no, naming the right that is missing."""
    right = _REFUSED.get(error.code())
    return BrokerRefused(f"broker refuses ({error.name()}): the worker needs {right}") if right else None


def in_our_words(what: str, error: Any, transaction_timeout_s: float) -> Exception:
    """Translate a client error that no repetition cures."""
    if (no := refused(error)) is not None:
        return no
    if error.code() in _FENCED or error.fatal():
        return WorkerFenced(
            f"{what}: {error.name()}. Either the planner fenced this life because its lease ran out, or a transaction "
            f"stayed open for more than transaction_timeout={transaction_timeout_s:g} s; a new life may begin"
        )
    if error.code() in _GROUP_SAYS_NO:
        return WorkerFenced(f"{what}: {error.name()}. The group has removed this member; nothing is repeated blindly")
    if error.txn_requires_abort():
        return TransactionAborted(f"{what}: {error.name()}")
    return ck.KafkaException(error)


def may_pass(error: Any) -> bool:
    """Tell whether brokers may say otherwise later. Outside the transactional API no error calls itself retriable."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING | _AWAY)


def is_gone(failure: Exception) -> bool:
    """Tell whether the broker says that a topic or partition does not exist (any more)."""
    codes = (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._UNKNOWN_PARTITION)
    return isinstance(failure, ck.KafkaException) and failure.args[0].code() in codes


def again(what: str, call: Callable[[float], T], *, transaction_timeout_s: float, total_s: float = 40.0) -> T:
    """Make short calls, repeated while the error may pass: one long call was seen to hang for all of its time."""
    end = time.monotonic() + total_s
    while True:
        try:
            return call(3.0)
        except ck.KafkaException as failure:
            error = failure.args[0]
            passing = error.retriable() or error.code() in _PASSING
            if error.fatal() or error.txn_requires_abort() or not passing or time.monotonic() > end:
                raise in_our_words(what, error, transaction_timeout_s) from failure
            time.sleep(0.02)


def common_properties(settings: WorkerSettings, client_id: str) -> dict[str, Any]:
    """Return what every client of a worker has in common."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": client_id,
        "retry.backoff.ms": 10,  # a commit pays one back-off for CONCURRENT_TRANSACTIONS
        "metadata.recovery.strategy": "none",  # else a commit may never return once all brokers were away
        "log_level": 3,  # no "logger": its call-back was seen to crash the process inside init_transactions
        **settings.properties,
    }


def consumer_properties(settings: WorkerSettings, client_id: str) -> dict[str, Any]:
    """Return the properties of the data consumer."""
    return {
        "fetch.wait.max.ms": 50,  # an added partition waits for the running fetch
        **common_properties(settings, client_id),
        "group.id": settings.group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # where to start is decided here, never silently
    }


class DataConsumer:
    """Fetches what it is told to fetch, from where it is told to."""

    def __init__(self, settings: WorkerSettings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._client = ck.Consumer(consumer_properties(settings, client_id))
        self._known: dict[str, int] = {}
        self._has_doubted = False

    def poll(self, most: int, wait_s: float) -> list[Any]:
        """Return messages, errors among them."""
        return self._client.consume(most, wait_s)

    def assign(self, starts: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Begin to fetch partitions, each at its (offset, leader epoch)."""
        self._learn({tp.topic for tp in starts if tp.partition >= self._known.get(tp.topic, 0)})
        self._client.incremental_assign(
            [
                ck.TopicPartition(tp.topic, tp.partition, offset, leader_epoch=epoch)
                if epoch is not None
                else ck.TopicPartition(tp.topic, tp.partition, offset)
                for tp, (offset, epoch) in starts.items()
            ]
        )

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions; what is queued of them is dropped."""
        self._client.incremental_unassign([ck.TopicPartition(tp.topic, tp.partition) for tp in partitions])

    def pause(self, tp: TopicPartition) -> None:
        """Stop fetching one partition for a while."""
        self._client.pause([ck.TopicPartition(tp.topic, tp.partition)])

    def resume(self, tp: TopicPartition, offset: int) -> None:
        """Fetch a paused partition again, from ``offset``."""
        self.seek(tp, offset)
        self._client.resume([ck.TopicPartition(tp.topic, tp.partition)])

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Fetch from ``offset`` on."""
        try:
            self._client.seek(ck.TopicPartition(tp.topic, tp.partition, offset))
        except ck.KafkaException as failure:
            if failure.args[0].code() != _E._STATE:
                raise
            # Not fetching yet, or stopped by an error: only a new assignment sets it right.
            self.unassign([tp])
            self.assign({tp: (offset, None)})

    def committed(
        self, partitions: Iterable[TopicPartition], patience_s: float = 40.0
    ) -> dict[TopicPartition, tuple[int, int | None, str]]:
        """Return (offset, leader epoch, metadata) of the partitions that have a commit; -1001 means none (K17).

        Waits for stable offsets, and repeats while the coordinator moves (K49). Offsets that a transaction holds back
        for longer are read as they are committed: a lease is granted only when whoever had it has released it or is
        fenced, so that its transactions have ended. What still holds them back came too late to be in any (seen with
        Kafka 4.3: offsets of a frozen worker, pending for ever under an id that has no transaction).

        Raises
        ------
        OffsetsUnread
            If that takes longer than ``patience_s`` ≤ 6 s: brokers are away, or somebody's transaction is open.
        confluent_kafka.KafkaException
            If it takes longer than a greater ``patience_s``.
        BrokerRefused
            If the group may not be read; asked once, until offsets come again, since the answer may take 10 s.
        """
        wanted = [ck.TopicPartition(tp.topic, tp.partition) for tp in partitions]

        def read(total_s: float) -> list[Any]:
            return again(
                "reading committed offsets",
                lambda s: list(self._client.committed(wanted, timeout=s)),
                transaction_timeout_s=self._settings.transaction_timeout.total_seconds(),
                total_s=total_s,
            )

        try:
            found = read(min(6.0, patience_s))
        except ck.KafkaException as silence:
            if (past := self._held_back(wanted)) is not None:
                log.warning("offsets of %d partitions are held back by a transaction that nobody ends", len(wanted))
                return self._found(past)
            if not self._has_doubted and (no := self._why_no_offsets()) is not None:
                raise no from silence
            self._has_doubted = True
            if patience_s <= 6.0:
                raise OffsetsUnread(f"committed offsets: {silence.args[0].name()}") from silence
            found = read(patience_s)
        self._has_doubted = False
        return self._found(found)

    def _held_back(self, wanted: list[Any]) -> list[Any] | None:
        """Read what is committed past transactions; None if brokers do not answer that either."""
        past = {**consumer_properties(self._settings, self._client_id), "isolation.level": "read_uncommitted"}
        reader = ck.Consumer(past)
        try:
            return list(reader.committed(wanted, timeout=3.0))
        except ck.KafkaException:
            return None
        finally:
            reader.close()

    @staticmethod
    def _found(rows: list[Any]) -> dict[TopicPartition, tuple[int, int | None, str]]:
        for one in rows:
            if one.error is not None:
                raise in_our_words("reading committed offsets", one.error, 0)
        return {
            TopicPartition(one.topic, one.partition): (one.offset, one.leader_epoch, one.metadata or "")
            for one in rows
            if one.offset >= 0
        }

    def _why_no_offsets(self) -> BrokerRefused | None:
        """Ask in another way: of a group that we may not read, the client only says that time is up."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(common_properties(self._settings, "headway.doubt"))
        try:
            admin.describe_consumer_groups([self._settings.group])[self._settings.group].result(10)
        except ck.KafkaException as failure:
            return refused(failure.args[0])
        except TimeoutError:
            pass
        return None

    def log_range(self, tp: TopicPartition) -> tuple[int, int]:
        """Return (log start, log end) of a partition as it is now."""
        if tp.partition >= self._known.get(tp.topic, 0):
            self._learn({tp.topic})
        low, high = again(
            f"reading the range of {tp}",
            lambda s: self._client.get_watermark_offsets(ck.TopicPartition(tp.topic, tp.partition), timeout=s),
            transaction_timeout_s=self._settings.transaction_timeout.total_seconds(),
        )
        return low, high

    def group_metadata(self) -> Any:
        """Return what a transaction wants to know of the group."""
        return self._client.consumer_group_metadata()

    def warm(self, topics: Iterable[str]) -> None:
        """Pay for connections, metadata, coordinator and a first fetch on every broker before saying ready (K43)."""
        one_per_leader = self._learn(topics)
        if not one_per_leader:
            return
        self.committed(one_per_leader.values())
        starts = {tp: (self.log_range(tp)[0], None) for tp in one_per_leader.values()}
        self.assign(starts)
        end = time.monotonic() + 1.0
        while time.monotonic() < end and not any(m.error() is None for m in self.poll(1, 0.05)):
            pass
        self.unassign(starts)

    def _learn(self, topics: Iterable[str]) -> dict[int, TopicPartition]:
        """Renew the client's metadata of topics; return one partition for each broker that leads any."""
        one_per_leader: dict[int, TopicPartition] = {}
        for topic in topics:
            known = again(
                f"reading metadata of {topic}",
                lambda s, topic=topic: self._client.list_topics(topic, timeout=s),  # type: ignore[misc]
                transaction_timeout_s=0,
            )
            partitions = known.topics[topic].partitions
            self._known[topic] = len(partitions)
            for number, facts in partitions.items():
                one_per_leader.setdefault(facts.leader, TopicPartition(topic, number))
        return one_per_leader

    def close(self) -> None:
        """Leave; nothing is committed by closing."""
        self._client.close()


class TransactionalProducer:
    """One transactional id: whoever initialises it fences the one before."""

    def __init__(self, settings: WorkerSettings, transactional_id: str, client_id: str) -> None:
        self._timeout_s = settings.transaction_timeout.total_seconds()
        self._client = ck.Producer(
            {
                # A request carries one partition's batch. Nobody sees a record before its commit, and a commit sends at
                # once what waits: so waiting costs no delay, and saves most requests where partitions are many.
                "linger.ms": 20,
                "delivery.report.only.error": True,  # whether a record was written, the commit says
                "partitioner": "murmur2_random",  # the same partition for a key as every Java client
                "queue.buffering.max.messages": 500_000,
                **common_properties(settings, client_id),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": round(self._timeout_s * 1000),
            }
        )
        self.is_open = False

    def initialise(self) -> None:
        """Fence every earlier life of this transactional id, and abort what it left open."""
        self._again("init_transactions", lambda s: self._client.init_transactions(max(s, 10.0)))

    def warm(self, topics: Iterable[str]) -> None:
        """Learn the metadata of the topics that will be written."""
        for topic in topics:
            known = self._client.list_topics(topic, timeout=10)
            error = known.topics[topic].error
            if error is not None:
                raise refused(error) or BrokerRefused(f"topic {topic} cannot be written: {error.str()}")

    def begin(self) -> None:
        """Open a transaction, if none is open."""
        if not self.is_open:
            self._guarded("begin_transaction", self._client.begin_transaction)
            self.is_open = True

    def produce(self, topic: str, key: Any, value: Any, headers: list[tuple[str, Any]] | None = None) -> None:
        """Put one record into the open transaction; waits while the client's buffer is full."""
        while True:
            try:
                if headers is None:
                    self._client.produce(topic, value, key)
                else:
                    self._client.produce(topic, value, key, headers=headers)
                return
            except BufferError:
                self._client.poll(0.01)
            except ck.KafkaException as failure:
                raise in_our_words("produce", failure.args[0], self._timeout_s) from failure

    def writer(self, topic: str) -> Callable[[Any, bytes], None]:
        """Return the short way of the commonest case: one value for one topic, again and again."""
        produce = self._client.produce

        def write(key: Any, value: bytes) -> None:
            if not self.is_open:
                self.begin()
            try:
                produce(topic, value, key)
            except (BufferError, ck.KafkaException):
                self.produce(topic, key, value)  # waits, or says what is wrong

        return write

    def poll(self) -> None:
        """Serve the client's callbacks."""
        self._client.poll(0)

    def commit(self, offsets: Mapping[TopicPartition, tuple[int, int | None, str]], group_metadata: Any) -> None:
        """Commit the open transaction with (offset, leader epoch, metadata) of each partition.

        Raises
        ------
        TransactionAborted
            If it must be aborted; whoever calls does that and runs the records again.
        WorkerFenced
            If this life is over.
        """
        rows = [
            ck.TopicPartition(tp.topic, tp.partition, offset, note, epoch)
            if epoch is not None
            else ck.TopicPartition(tp.topic, tp.partition, offset, note)
            for tp, (offset, epoch, note) in offsets.items()
        ]
        self.begin()
        if rows:
            send = self._client.send_offsets_to_transaction
            self._again("send_offsets_to_transaction", lambda s: send(rows, group_metadata, s))
        self._again("commit_transaction", self._client.commit_transaction)
        self.is_open = False

    def abort(self) -> None:
        """Abort the open transaction, if one is open."""
        if self.is_open:
            self._again("abort_transaction", self._client.abort_transaction)
            self.is_open = False

    def close(self) -> None:
        """Abort what is open as far as that goes; the broker would do it later anyway."""
        with contextlib.suppress(ck.KafkaException, WorkerFenced, TransactionAborted):
            self.abort()

    def _again(self, what: str, call: Callable[[float], Any]) -> None:
        again(what, call, transaction_timeout_s=self._timeout_s)

    def _guarded(self, what: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except ck.KafkaException as failure:
            raise in_our_words(what, failure.args[0], self._timeout_s) from failure
