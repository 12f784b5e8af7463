"""Bulk reads by librdkafka: knows every client property, and answers partition by partition.

Commits are read by a plain consumer of each group that joins nothing. The admin client's own call for them
(``list_consumer_group_offsets``) ends the process with a segmentation fault while a group's coordinator loads, as it
does after every restart of a broker. And an admin request that waits for a broker until its time is over ends the
process too, once the broker comes back: so nothing is asked of the admin client before a plain look at the metadata has
been answered, and a client whose request ran out of time is given up (both librdkafka 2.16.1).
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Wire
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from forecaster.errors import SourceError, SourceRefused
from forecaster.ingest.kafka_reader import Answer, Properties, TopicInfo, refused, unavailable
from forecaster.topics import GroupId, TopicPartition

_REFUSALS = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._SSL,
)
_OF_ONE_THING = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""Errors of the client itself (their codes are negative) that concern one topic; all others mean: nobody answered."""
_COORDINATOR_AWAY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
_ASK_AGAIN_S = 0.2
_ANY_TOPIC = "__consumer_offsets"
"""Every cluster has it; that it may not be described is an answer too."""


class FullReader:
    """The :class:`forecaster.ingest.kafka_reader.BulkReader` of confluent-kafka; connects at the first read."""

    def __init__(self, properties: Properties, timeout_s: float) -> None:
        self._properties, self._timeout_s = properties, timeout_s
        self._made: AdminClient | None = None
        self._readers: dict[GroupId, Consumer] = {}
        self._complaint: KafkaError | None = None

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo | str]:
        """Return metadata of the topics, or why there are none."""
        if not topics:
            return {}
        answers = self._ask(lambda c: c.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout_s))
        out: dict[str, TopicInfo | str] = {}
        for topic, future in answers.items():
            try:
                found = self._wait(future)
            except KafkaException as exc:
                out[topic] = told(exc.args[0], f"topic {topic}")
                continue
            leaderless = {p.id: "the partition has no leader now" for p in found.partitions if p.leader is None}
            out[topic] = TopicInfo(_uuid(str(found.topic_id)), {p.id: None for p in found.partitions}, leaderless)
        return out

    def committed(
        self, groups: Sequence[GroupId], partitions: Sequence[TopicPartition]
    ) -> Mapping[GroupId, Mapping[TopicPartition, int | None] | str]:
        """Return what each group committed, or why that cannot be said."""
        deadline = time.monotonic() + self._timeout_s
        return {group: self._committed(group, partitions, deadline) for group in groups}

    def ends(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log end offsets."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def starts(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log start offsets."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def kinds(self) -> Mapping[GroupId, str]:
        """Return the cluster's groups with their kind; this client lists no share groups."""
        listed = self._wait(self._ask(lambda c: c.list_consumer_groups(request_timeout=self._timeout_s)))
        return {GroupId(found.group_id): found.type.name.lower() for found in listed.valid}

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return no topics: the one call of this client that would tell is not safe; the settings name them."""
        return ()

    def close(self) -> None:
        """Give up connections."""
        self._give_up()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def probe(self) -> None:
        """Ask the cluster for its name.

        Raises
        ------
        SourceUnavailable, SourceRefused
            With the client's own reason, which a plain timeout does not tell.
        """
        self._wait(self._ask(lambda c: c.describe_cluster(request_timeout=self._timeout_s)))

    def _committed(
        self, group: GroupId, partitions: Sequence[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, int | None] | str:
        """Return what one group committed, or why that cannot be said; a coordinator that loads is asked again."""
        asked = [Wire(tp.topic, tp.partition) for tp in partitions]
        while True:
            left_s = max(deadline - time.monotonic(), 0.1)
            try:
                found = self._reader_of(group).committed(asked, timeout=left_s)
            except KafkaException as exc:
                error = exc.args[0]
                if error.code() not in _COORDINATOR_AWAY:
                    return told(error, f"group {group}")
                if left_s <= 2 * _ASK_AGAIN_S:
                    return f"group {group}: its coordinator does not answer ({error.name()})"
                time.sleep(_ASK_AGAIN_S)
                continue
            return {
                TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None
                for tp in found
                if tp.error is None
            }

    def _reader_of(self, group: GroupId) -> Consumer:
        """Return a consumer that knows the group's coordinator; it never subscribes, commits or polls."""
        reader = self._readers.get(group)
        if reader is None:
            settings = {
                **self._properties,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
            reader = self._readers[group] = Consumer(settings)
        return reader

    def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> Answer:
        if not partitions:
            return Answer({})
        wanted = {Wire(tp.topic, tp.partition): spec for tp in partitions}
        answers = self._ask(lambda c: c.list_offsets(wanted, request_timeout=self._timeout_s))
        offsets: dict[TopicPartition, int | None] = {}
        epochs: dict[TopicPartition, int] = {}
        failures: dict[TopicPartition, str] = {}
        for tp, future in answers.items():
            ours = TopicPartition(tp.topic, tp.partition)
            try:
                found = self._wait(future)
                offsets[ours] = found.offset
                if found.leader_epoch is not None and found.leader_epoch >= 0:
                    epochs[ours] = found.leader_epoch
            except KafkaException as exc:
                failures[ours] = told(exc.args[0], f"partition {ours}")
        return Answer(offsets, failures, epochs)

    def _client(self) -> AdminClient:
        if self._made is None:
            settings: dict[str, Any] = {**self._properties, "log_level": 0, "error_cb": self._complain}
            try:
                self._made = AdminClient(settings)
            except KafkaException as exc:
                what = exc.args[0].str()
                raise SourceRefused(f"client properties cannot be used ({what}); correct them in [kafka]") from None
        return self._made

    def _complain(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS or self._complaint is None:
            self._complaint = error

    def _ask(self, call: Callable[[AdminClient], Any]) -> Any:
        self._complaint = None
        try:
            client = self._client()
            self._look(client)
            return call(client)
        except (KafkaException, ValueError) as exc:
            raise refused(self._properties, exc) from None

    def _look(self, client: AdminClient) -> None:
        """Make sure that somebody answers at all."""
        try:
            client.list_topics(_ANY_TOPIC, timeout=self._timeout_s)
        except KafkaException as exc:
            raise self._away(exc.args[0].str()) from None

    def _give_up(self) -> None:
        """Let a client end beside us: one with a request under way may take for ever."""
        if self._made is not None:
            threading.Thread(target=[self._made].clear, name="headway-kafka-end", daemon=True).start()
        self._made = None

    def _wait(self, future: Future[Any]) -> Any:
        """Return an answer; errors of the whole cluster become ours, those of one thing stay the client's."""
        try:
            return future.result(self._timeout_s + 1)
        except TimeoutError:
            error = self._away("no answer in time")
            self._give_up()
            raise error from None
        except KafkaException as exc:
            code = exc.args[0].code()
            if code in _REFUSALS:
                raise refused(self._properties, exc.args[0].str()) from None
            if code < 0 and code not in _OF_ONE_THING:
                error = self._away(exc.args[0].str())
                self._give_up()
                raise error from None
            raise

    def _away(self, what: str) -> SourceError:
        self._made_poll()
        complaint = self._complaint
        if complaint is not None and complaint.code() in _REFUSALS:
            return refused(self._properties, complaint.str())
        return unavailable(self._properties, complaint.str() if complaint is not None else what)

    def _made_poll(self) -> None:
        if self._made is not None:
            self._made.poll(0)


def _uuid(text: str) -> str:
    """Return Kafka's base64 of a topic id as the other client writes it."""
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def told(error: KafkaError, what: str) -> str:
    """Return one thing's error in plain words, with the remedy where there is one."""
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return f"{what} does not exist; create it, or correct its name in the settings"
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return f"{what}: we may not describe it; grant DESCRIBE"
    return f"{what}: {error.name()}"
