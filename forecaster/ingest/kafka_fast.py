"""Bulk reads by kafka-python: thousands of partitions in one request each, at a fraction of librdkafka's CPU.

It raises at the first partition that has an error; what it cannot say as a whole is then asked of the other reader,
which answers partition by partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as Wire
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError

from forecaster.ingest.kafka_reader import Answer, BulkReader, Properties, TopicInfo, closing
from forecaster.topics import GroupId, TopicPartition

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs whole configurations; errors reach us as exceptions

T = TypeVar("T")
_UNKNOWN_TOPIC = 3
_FORBIDDEN = 29

_WORDS = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
_IGNORED = ("socket.timeout.ms", "request.timeout.ms", "socket.keepalive.enable", "metadata.max.age.ms", "debug")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def translated(properties: Properties) -> dict[str, Any] | None:
    """Return librdkafka properties in kafka-python's words; None if it has no word for one of them.

    Examples
    --------
    >>> translated({"bootstrap.servers": "a:1,b:2", "ssl.endpoint.identification.algorithm": "none"})
    {'bootstrap_servers': ['a:1', 'b:2'], 'ssl_check_hostname': False}
    >>> translated({"bootstrap.servers": "a:1", "sasl.mechanism": "OAUTHBEARER"}) is None
    True
    """
    words: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _IGNORED:
            continue
        if name == "ssl.endpoint.identification.algorithm":
            words["ssl_check_hostname"] = str(value).lower() == "https"
        elif name in ("sasl.mechanism", "sasl.mechanisms") and value not in _MECHANISMS:
            return None
        elif name in _WORDS:
            words[_WORDS[name]] = value
        else:
            return None
    words["bootstrap_servers"] = str(words.get("bootstrap_servers", "")).split(",")
    if "security_protocol" in words:
        words["security_protocol"] = str(words["security_protocol"]).upper()
    return words


class _Client(KafkaAdminClient):
    """Reads metadata once a tick: offset reads would otherwise fetch them again, half of the whole work.

    The override is of a private method; in a version without it nothing breaks, it is only slower.
    """

    described: Any = None
    """Metadata of the last description, for the next offset read alone (after an error they are fetched anew)."""

    async def _get_cluster_metadata(self, topics: Any) -> Any:
        held, self.described = self.described, None
        if held is not None and topics is not None and set(topics) <= {t["name"] for t in held["topics"]}:
            return held
        self.described = await super()._get_cluster_metadata(topics)
        return self.described


class FastReader:
    """The :class:`forecaster.ingest.kafka_reader.BulkReader` of kafka-python.

    Parameters
    ----------
    words
        Its configuration, from :func:`translated`.
    other
        Asked when this one fails: it knows why, and answers partition by partition.
    timeout_s
        How long one read may take.
    """

    def __init__(self, words: Mapping[str, Any], other: BulkReader, timeout_s: float) -> None:
        self._words, self._other, self._timeout_s = dict(words), other, timeout_s
        self._made: _Client | None = None
        self._reachable = False
        """Whether the other reader got an answer since this one failed: it tells why not, and leaks no socket."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo | str]:
        """Return metadata of the topics, or why there are none."""
        if not topics:
            return {}
        found = self._ask(lambda c: _described(c, topics))
        if found is None:
            answered = self._other.describe(topics)
            self._reachable = True
            return answered
        return {topic["name"]: _info(topic) for topic in found}

    def committed(
        self, groups: Sequence[GroupId], partitions: Sequence[TopicPartition]
    ) -> Mapping[GroupId, Mapping[TopicPartition, int | None] | str]:
        """Return what each group committed, or why that cannot be said."""
        # All that a group has committed is a smaller question than thousands of partitions by name.
        found = self._ask(lambda c: c.list_group_offsets(dict.fromkeys(groups)))
        if found is None:  # not asked of the other client: it crashes where a new cluster's coordinator still loads
            return dict.fromkeys(groups, "the groups' coordinator does not answer; asked again at the next look")
        asked = {Wire(tp.topic, tp.partition): tp for tp in partitions}
        return {
            GroupId(group): {
                asked[tp]: kept.offset if kept.offset >= 0 else None for tp, kept in offsets.items() if tp in asked
            }
            for group, offsets in found.items()
        }

    def ends(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log end offsets."""
        return self._offsets(partitions, OffsetSpec.LATEST) or self._other.ends(partitions)

    def starts(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log start offsets."""
        return self._offsets(partitions, OffsetSpec.EARLIEST) or self._other.starts(partitions)

    def kinds(self) -> Mapping[GroupId, str]:
        """Return the cluster's groups with their kind: classic, consumer, share."""
        if self._made is None:
            self.describe(["__consumer_offsets"])  # whether anybody answers at all
        found = self._ask(lambda c: c.list_groups())
        if found is None:
            return self._other.kinds()
        return {GroupId(group["group_id"]): group.get("group_type") or "classic" for group in found}

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return the topics on which a group has committed, sorted."""
        found = self._ask(lambda c: c.list_group_offsets({group: None}))
        return sorted({tp.topic for offsets in (found or {}).values() for tp in offsets})

    def close(self) -> None:
        """Give up connections."""
        self._forget()
        self._other.close()

    def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> Answer | None:
        wanted = {Wire(tp.topic, tp.partition): tp for tp in partitions}
        specs = dict.fromkeys(wanted, spec)
        found = self._ask(lambda c: c.list_partition_offsets(specs, timeout_ms=int(self._timeout_s * 1000)))
        if found is None:
            return None
        epochs = {wanted[tp]: at.leader_epoch for tp, at in found.items() if at.leader_epoch is not None}
        return Answer({wanted[tp]: at.offset for tp, at in found.items()}, {}, epochs)

    def _ask(self, call: Callable[[_Client], T]) -> T | None:
        """Return an answer, or None when the other reader has to be asked."""
        try:
            if self._made is None:
                if not self._reachable:
                    return None
                ms = int(self._timeout_s * 1000)
                self._made = _Client(**self._words, request_timeout_ms=ms, bootstrap_timeout_ms=min(ms, 3000))
            return call(self._made)
        except (KafkaError, OSError, ValueError, AssertionError):
            self._forget()  # it does not always find its way back; a new one takes milliseconds
            return None

    def _forget(self) -> None:
        if self._made is not None:
            closing(self._made)
        self._made, self._reachable = None, False


def _described(client: _Client, topics: Sequence[str]) -> Any:
    client.described = None
    return client.describe_topics(list(topics))


def _info(topic: Mapping[str, Any]) -> TopicInfo | str:
    name, code = topic["name"], topic["error_code"]
    if code == _UNKNOWN_TOPIC:
        return f"topic {name} does not exist; create it, or correct its name in the settings"
    if code == _FORBIDDEN:
        return f"topic {name}: we may not describe it; grant DESCRIBE"
    if code:
        return f"topic {name}: error {code}"
    epochs, leaderless = {}, {}
    for p in topic["partitions"]:
        number = p["partition_index"]
        epochs[number] = p["leader_epoch"] if p["leader_epoch"] >= 0 else None
        if p["leader_id"] < 0:
            leaderless[number] = "the partition has no leader now"
    topic_id = topic["topic_id"]
    return TopicInfo(None if topic_id is None else str(topic_id), epochs, leaderless)
