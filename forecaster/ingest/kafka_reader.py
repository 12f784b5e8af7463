"""What a bulk reader of a Kafka cluster answers, whichever client it speaks with, and how it says what is wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.topics import GroupId, TopicPartition

Properties = Mapping[str, str | int | float | bool]
"""Client properties by their librdkafka names, ``bootstrap.servers`` among them."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a topic's metadata say: its id, and the leader epoch of each partition, or why it has no leader."""

    topic_id: str | None
    epochs: Mapping[int, int | None]
    without_leader: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Offsets of the partitions that answered, why the others did not, and leader epochs where they are told."""

    offsets: Mapping[TopicPartition, int | None]
    failures: Mapping[TopicPartition, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


class BulkReader(Protocol):
    """The four reads that a source needs, by one client library.

    Every method raises :class:`SourceUnavailable` when nobody answers, and :class:`SourceRefused` when the cluster
    refuses us as a whole.
    """

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicInfo | str]:
        """Return metadata of the topics, or why there are none."""
        ...

    def committed(
        self, groups: Sequence[GroupId], partitions: Sequence[TopicPartition]
    ) -> Mapping[GroupId, Mapping[TopicPartition, int | None] | str]:
        """Return what each group committed (None: nothing), or why that cannot be said."""
        ...

    def ends(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log end offsets (high watermarks)."""
        ...

    def starts(self, partitions: Sequence[TopicPartition]) -> Answer:
        """Return log start offsets."""
        ...

    def kinds(self) -> Mapping[GroupId, str]:
        """Return the cluster's groups with their kind: classic, consumer, share."""
        ...

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return the topics on which a group has committed."""
        ...

    def close(self) -> None:
        """Give up connections."""
        ...


def hidden(properties: Properties) -> dict[str, Any]:
    """Return properties as they may be shown: whatever could be a secret is replaced.

    Examples
    --------
    >>> hidden({"bootstrap.servers": "kafka:9092", "sasl.password": "hunter2"})
    {'bootstrap.servers': 'kafka:9092', 'sasl.password': '***'}
    """
    return {name: "***" if is_secret(name) else value for name, value in properties.items()}


def is_secret(name: str) -> bool:
    """Tell whether a property of this name could be a secret.

    Examples
    --------
    >>> [is_secret(f"sasl.oauthbearer.{name}") for name in ("client.secret", "token.endpoint.url")]
    [True, False]
    """
    words = ("password", "passphrase", "secret", "token", "jaas", "key.pem", "sasl.oauthbearer.config")
    return any(word in name for word in words) and not name.endswith(".url")


def names(properties: Properties) -> str:
    """Return the bootstrap servers, for messages."""
    return str(properties.get("bootstrap.servers", "no bootstrap.servers"))


def closing(client: Any) -> None:
    """Close a client that may be broken already."""
    with contextlib.suppress(Exception):
        client.close()


def unavailable(properties: Properties, what: object) -> SourceUnavailable:
    """Return the error for a cluster that does not answer."""
    return SourceUnavailable(
        f"Kafka at {names(properties)} does not answer ({what}); check that it runs and that this host may reach it"
    )


def refused(properties: Properties, what: object) -> SourceRefused:
    """Return the error for a cluster that refuses us."""
    user = properties.get("sasl.username")
    who = f" as {user}" if user else ""
    return SourceRefused(
        f"Kafka at {names(properties)} refuses us{who} ({what}); check user, password_file and the ACLs "
        f"(DESCRIBE on topics and groups)"
    )
