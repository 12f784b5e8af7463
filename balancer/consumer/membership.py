"""Membership mode: no transactions; one handle is a member that commits, another fetches what the plan says.

The member subscribes to a topic with exactly one partition, under ``cooperative-sticky``: joins then revoke nothing.
Commits are validated against member and generation, never against ownership, so the member may commit partitions
that it was not assigned. A refused commit is never repeated blindly: the client would rejoin by itself, and the
repetition would be accepted (K44). So a commit that brokers did not answer is repeated only as the member that began.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka as ck

from balancer.consumer.errors import BrokerRefused, OffsetsNotCommitted, TransactionAborted, WorkerFenced
from balancer.consumer.kafka import common_properties, in_our_words, may_pass, refused
from balancer.consumer.settings import WorkerSettings
from forecaster.topics import TopicPartition


class MembershipEffects:
    """Commits as a member of the group, and writes results with a plain idempotent producer first."""

    def __init__(self, settings: WorkerSettings, client_id: str) -> None:
        self._settings = settings
        common = common_properties(settings, client_id)
        self._member = ck.Consumer(
            {
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 2000,
                "socket.timeout.ms": 10_000,  # a commit that a broker never answers ends before the watchdog ends us
                **common,
                "group.id": settings.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
            }
        )
        self._producer = ck.Producer(
            {"linger.ms": 5, "partitioner": "murmur2_random", **common, "enable.idempotence": True}
        )
        self._failed: list[str] = []
        self._lost = False
        self._id = ""
        self.is_open = False

    def initialise(self) -> None:
        """Join the group; an earlier life is waited out by the planner before it grants."""
        topic = self._settings.membership_topic or ""
        known = self._member.list_topics(topic, timeout=10).topics[topic]
        if known.error is not None or len(known.partitions) != 1:
            raise BrokerRefused(f"membership_topic={topic} must exist with exactly one partition")
        self._member.subscribe([topic], on_lost=self._on_lost)
        end = time.monotonic() + 30
        while not self._member.memberid():
            if time.monotonic() > end:
                raise BrokerRefused(f"could not join group {self._settings.group} within 30 s")
            self._member.poll(0.05)
        settle = time.monotonic() + 0.3
        while time.monotonic() < settle:
            self._member.poll(0.05)
        self._id = self._member.memberid()

    def _on_lost(self, _consumer: Any, _partitions: Any) -> None:
        self._lost = True

    def warm(self, topics: Iterable[str]) -> None:
        """Learn the metadata of the topics that will be written."""
        for topic in topics:
            error = self._producer.list_topics(topic, timeout=10).topics[topic].error
            if error is not None:
                raise refused(error) or BrokerRefused(f"topic {topic} cannot be written: {error.str()}")

    def begin(self) -> None:
        """There is no transaction; what is written is written."""
        self.is_open = True

    def produce(self, topic: str, key: Any, value: Any, headers: list[tuple[str, Any]] | None = None) -> None:
        """Write one record; repeats after a crash are possible."""
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers or [], on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.01)

    def writer(self, topic: str) -> Callable[[Any, bytes], None]:
        """Return a function of key and value that writes to one topic."""

        def write(key: Any, value: bytes) -> None:
            self.is_open = True
            self.produce(topic, key, value)

        return write

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error.name())

    def poll(self) -> None:
        """Serve callbacks, and the membership."""
        self._producer.poll(0)
        self._keep_membership()

    def _keep_membership(self) -> None:
        message = self._member.poll(0)
        error = message.error() if message is not None else None
        if error is not None and error.fatal():
            raise in_our_words("membership", error, 0)
        if self._lost:
            raise WorkerFenced("the group has dropped this member; everything is given up")

    def commit(self, offsets: Mapping[TopicPartition, tuple[int, int | None, str]], group_metadata: Any) -> None:
        """Make results last, then the offsets.

        The client waits for a coordinator for one session timeout: 6 s, unless ``properties`` say otherwise.

        Raises
        ------
        TransactionAborted
            If results were not written; as :class:`OffsetsNotCommitted`, if they were, and brokers did not answer.
        WorkerFenced
            If the group has removed this member, even if the client has joined again by itself.
        """
        waiting = self._producer.flush(30)
        if self._failed or waiting:
            failed, self._failed = self._failed, []
            why = failed[0] if failed else "no answer within 30 s"
            raise TransactionAborted(f"{len(failed) + waiting} results were not written ({why})")
        self._keep_membership()
        if self._member.memberid() != self._id:
            raise WorkerFenced("the group has dropped this member, and the client joined anew; everything is given up")
        rows = [ck.TopicPartition(tp.topic, tp.partition, offset, note) for tp, (offset, _, note) in offsets.items()]
        if rows:
            try:
                for row in self._member.commit(offsets=rows, asynchronous=False):
                    if row.error is not None:
                        raise _said(f"commit of {row.topic}:{row.partition}", row.error)
            except ck.KafkaException as failure:
                raise _said("commit", failure.args[0]) from failure
        self.is_open = False

    def abort(self) -> None:
        """Nothing can be undone; records since the last commit are run again."""
        self._producer.flush(30)
        self._failed.clear()
        self.is_open = False

    def close(self) -> None:
        """Leave the group at once: without partitions a member sends no LeaveGroup on close alone (K48)."""
        with contextlib.suppress(ck.KafkaException):
            self._member.unsubscribe()
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                self._member.poll(0.05)
        self._member.close()
        self._producer.flush(10)


def _said(what: str, error: Any) -> Exception:
    return OffsetsNotCommitted(f"{what}: {error.name()}") if may_pass(error) else in_our_words(what, error, 0)
