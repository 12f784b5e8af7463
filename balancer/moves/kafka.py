"""The Kafka edge of moves: fences, what fences must reach, topics, commits and members of a group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from balancer.errors import BalancerError
from balancer.leases.base import WorkerState, transactional_id
from balancer.leases.notes import CommitNote, read_commit_metadata
from balancer.moves.bulk_client import busy_places, coordinator_partition, listed_ids
from balancer.moves.inspection import PASSING
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")

OFFSETS = "__consumer_offsets"


class BrokersSilent(BalancerError):
    """Brokers have not answered in time; ask again later."""


class FenceFailed(BalancerError):
    """A fence has not returned; the lease stays FENCING, and it is tried again."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of an ordinary group protocol."""

    id: str
    client_id: str
    host: str
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """What is committed for one partition: next offset, and what our metadata says, if it is ours."""

    offset: int
    note: CommitNote | None
    metadata: str


class PlannedGroup:
    """One group seen and fenced through Kafka.

    Parameters
    ----------
    bootstrap_servers, group, topics
        Where, and what.
    properties
        Further client properties in librdkafka's names (security, say).
    patience
        After how long an unanswered request counts as silence (:class:`BrokersSilent`), fences apart.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        topics: Iterable[str],
        properties: Mapping[str, Any] | None = None,
        *,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        self.group = group
        self._patience_s = patience.total_seconds()
        self.topics = tuple(topics)
        self.stable_s = 20.0
        """How long offsets that a transaction holds back are waited for."""
        self._properties = {
            "bootstrap.servers": bootstrap_servers,
            "metadata.recovery.strategy": "none",
            "log_level": 2,
            **(properties or {}),
        }
        self._admin = AdminClient(self._properties)
        self._reader: ck.Consumer | None = None

    # -- fences -------------------------------------------------------------------------------------------------
    def fence(self, worker: WorkerState) -> None:
        """Return once the worker's life can commit no more.

        Raises
        ------
        FenceFailed
            If that is not certain yet.
        """
        if worker.profile.mode == "membership":
            self._wait_for_membership_end(worker)
        else:
            self.fence_id(transactional_id(self.group, worker.owner.instance))

    def fence_id(self, transactional: str, timeout_s: float = 30.0) -> None:
        """Raise a transactional id's producer epoch: its open transaction is aborted, its owner commits no more.

        Over an open transaction the broker's first answer is "not yet", and the client asks again only after 500 ms,
        whatever its settings; by then the abort has long been done. So each try is a new client, the first ones brief.
        """
        end, wait_s = time.monotonic() + timeout_s, 0.15
        while True:
            producer = ck.Producer({**self._properties, "transactional.id": transactional, "retry.backoff.ms": 10})
            try:
                producer.init_transactions(wait_s)
                return
            except ck.KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > end:
                    raise FenceFailed(f"fence of {transactional}: {error.name()}") from failure
            wait_s = min(2 * wait_s, 5.0)

    def _wait_for_membership_end(self, worker: WorkerState, timeout_s: float = 30.0) -> None:
        client_id = f"headway.{self.group}.{worker.owner}"
        end = time.monotonic() + timeout_s
        while any(m.client_id == client_id for m in self.members()):
            if time.monotonic() > end:
                raise FenceFailed(f"{worker.owner} is still a member of {self.group}")
            time.sleep(0.1)

    def transactional_ids(self) -> dict[str, int]:
        """Return every id of this group's workers that any broker knows, with its instance.

        Raises
        ------
        FenceFailed
            If a broker does not answer: what it knows may be alive.
        """
        prefix = f"headway.{self.group}."
        try:
            known = self._admin.list_topics(timeout=self._patience_s).brokers
            found = listed_ids(self._properties, known, timedelta(seconds=self._patience_s))
        except Exception as error:
            raise FenceFailed(f"not every broker says which transactional ids it knows: {error}") from error
        ids = {}
        for listed in found:
            rest = listed.removeprefix(prefix)
            if rest != listed and rest.isdecimal():
                ids[listed] = int(rest)
        return ids

    # -- topics and commits -------------------------------------------------------------------------------------
    def partitions(self) -> dict[str, tuple[str | None, int]]:
        """Return topic → (topic id, partitions) of the group's topics that exist."""
        wanted = ck.TopicCollection(list(self.topics))
        found: dict[str, tuple[str | None, int]] = {}
        for topic, future in self._admin.describe_topics(wanted, request_timeout=self._patience_s).items():
            try:
                facts = self._answer(future)
            except ck.KafkaException as failure:
                if failure.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            found[topic] = (str(facts.topic_id) if facts.topic_id else None, len(facts.partitions))
        return found

    def racks(self) -> dict[TopicPartition, str]:
        """Return the rack of each partition's leader, where brokers say theirs (``broker.rack``)."""
        wanted = ck.TopicCollection(list(self.topics))
        found: dict[TopicPartition, str] = {}
        for topic, future in self._admin.describe_topics(wanted, request_timeout=self._patience_s).items():
            try:
                parts = self._answer(future).partitions
            except ck.KafkaException as failure:
                if failure.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            found |= {TopicPartition(topic, p.id): str(p.leader.rack) for p in parts if p.leader and p.leader.rack}
        return found

    def commits(self) -> dict[TopicPartition, GroupCommit]:
        """Return what is committed under the group, partition by partition; none is left out as -1001 (K17).

        A consumer's call, not the admin client's: that one was seen to crash the process when the coordinator moved
        (librdkafka 2.16, ``rd_kafka_handle_OffsetFetch`` without a consumer group).
        """
        if self._reader is None:
            self._reader = ck.Consumer({**self._properties, "group.id": self.group, "enable.auto.commit": False})
        there = self.partitions().items()
        wanted = [ck.TopicPartition(topic, i) for topic, (_, count) in there for i in range(count)]
        end = time.monotonic() + self.stable_s
        while True:
            try:
                rows = self._reader.committed(wanted, timeout=5) if wanted else []
                break
            except ck.KafkaException as failure:
                error = failure.args[0]
                if not (error.retriable() or error.code() in PASSING):
                    raise
                if time.monotonic() > end:
                    if error.code() != ck.KafkaError._TIMED_OUT or self._somebody_commits():
                        raise
                    rows = self._read_past(wanted)
                    break
                time.sleep(0.1)
        return {
            TopicPartition(row.topic, row.partition): GroupCommit(
                row.offset, read_commit_metadata(row.metadata), row.metadata or ""
            )
            for row in rows
            if row.offset >= 0
        }

    def _somebody_commits(self) -> bool:
        """Tell whether a transaction is under way that may hold this group's offsets; also if that cannot be told.

        Offsets that were sent too late to be in any transaction stay pending for ever (seen with brokers 4.3, from a
        worker that was frozen): if none is under way, nothing will ever become of them.
        """
        try:
            topic = self._admin.list_topics(OFFSETS, timeout=self._patience_s).topics[OFFSETS]
            place = coordinator_partition(self.group, len(topic.partitions))
            return place in busy_places(self._properties, OFFSETS, timedelta(seconds=self._patience_s))
        except Exception as silence:
            log.info("whether a transaction holds offsets of %s is not known: %s", self.group, silence)
            return True

    def _read_past(self, wanted: list[Any]) -> list[Any]:
        log.warning("offsets of %s are held back by a transaction that nobody ends; read as committed", self.group)
        more = {"group.id": self.group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        reader = ck.Consumer({**self._properties, **more})
        try:
            return list(reader.committed(wanted, timeout=10))
        finally:
            reader.close()

    def members(self) -> tuple[GroupMember, ...]:
        """Return the members of the group's ordinary protocol (K46: described with confluent-kafka)."""
        try:
            # An admin request that waits for a broker in vain ends the process when one comes back (librdkafka 2.16.1).
            self._admin.list_topics("__consumer_offsets", timeout=self._patience_s)
            described = self._admin.describe_consumer_groups([self.group], request_timeout=self._patience_s)
            facts = self._answer(described[self.group])
        except ck.KafkaException as failure:
            if failure.args[0].code() == ck.KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise
        return tuple(
            GroupMember(
                m.member_id,
                m.client_id,
                m.host,
                frozenset(tp.topic for tp in (m.assignment.topic_partitions if m.assignment else ())),
            )
            for m in facts.members
        )

    def _answer(self, future: Future[Any]) -> Any:
        """Wait for the admin client, but not for ever: it was seen to forget a request whose broker went away."""
        try:
            return future.result(self._patience_s + 5)
        except TimeoutError as silence:
            raise BrokersSilent(f"brokers did not answer for {self._patience_s:g} s about {self.group}") from silence

    def close(self) -> None:
        """Give up connections."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
