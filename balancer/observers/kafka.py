"""Members, assignment and protocol of a group, from a real cluster; lag and rates from whoever records them.

librdkafka describes both group protocols rightly (kafka-python shows a KIP-848 group as ``Dead`` without members).
A share group has no owners of partitions, and this client knows nothing of it: it is told apart by the kind that the
cluster lists, so that nobody takes it for an empty group. An unknown kind of group is ``unknown``.

An admin request that waits for a broker until its time is over ends the whole process once the broker comes back
(librdkafka 2.16.1): so a group is described only after a plain look at the metadata has been answered, and a client
whose request ran out of time is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from balancer.errors import ObserverUnavailable
from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.observers.brokers import Standing, standing
from forecaster.topics import GroupId, TopicPartition

Facts = Callable[[GroupId], Mapping[TopicPartition, PartitionState]]
"""Group → state of every partition of its topics, as recorded."""

_PROTOCOLS = {
    ConsumerGroupType.CLASSIC: GroupProtocol.CLASSIC,
    ConsumerGroupType.CONSUMER: GroupProtocol.CONSUMER,
}
_ATTEMPTS = 3
_ANY_TOPIC = "__consumer_offsets"
"""Every cluster has it; that it may not be described is an answer too."""


class KafkaGroupObserver:
    """The :class:`balancer.observers.base.GroupObserver` over a Kafka cluster.

    Parameters
    ----------
    properties
        Client properties by their librdkafka names; never logged.
    facts
        Lag and rates of a group's partitions; without it they are not known.
    replicas
        What the group's scale target is set to; without it that is not known.
    kind_of
        What kind of group the cluster lists it as (``share`` matters); without it share groups are unknown groups.
    timeout_s
        How long an answer may take.
    clock
        Now, aware UTC.
    """

    def __init__(
        self,
        properties: Mapping[str, str | int | float | bool],
        *,
        facts: Facts | None = None,
        replicas: Callable[[GroupId], int | None] | None = None,
        kind_of: Callable[[GroupId], str | None] | None = None,
        timeout_s: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._servers = str(properties.get("bootstrap.servers", "no bootstrap.servers"))
        self._settings: dict[str, Any] = {**properties, "log_level": 0}
        self._client: AdminClient | None = None
        self._connected()
        self._facts, self._replicas, self._kind_of = facts, replicas, kind_of
        self._timeout_s, self._clock = timeout_s, clock

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return what the group looks like now (:meth:`GroupObserver.observe`)."""
        described = self._describe(group)
        members = tuple(sorted((_member(m) for m in described.members), key=lambda m: m.id))
        protocol = _PROTOCOLS.get(described.type, GroupProtocol.UNKNOWN)
        if described.state is ConsumerGroupState.DEAD:  # not a group of consumers; perhaps of another kind
            share = self._kind_of is not None and self._kind_of(group) == "share"
            protocol = GroupProtocol.SHARE if share else GroupProtocol.UNKNOWN
        return GroupSnapshot(
            group=group,
            at=self._clock(),
            replicas=self._replicas(group) if self._replicas else None,
            members=members,
            partitions=self._facts(group) if self._facts else {},
            protocol=protocol,
        )

    def close(self) -> None:
        """Give up connections."""
        self._give_up()

    def _connected(self) -> AdminClient:
        if self._client is None:
            try:
                self._client = AdminClient(self._settings)
            except KafkaException as exc:
                raise ObserverUnavailable(f"Kafka at {self._servers}: {exc.args[0].str()}") from None
        return self._client

    def _give_up(self) -> None:
        """Let the client end beside us: one with a request under way may take for ever."""
        if self._client is not None:
            threading.Thread(target=[self._client].clear, name="headway-kafka-end", daemon=True).start()
        self._client = None

    def _describe(self, group: GroupId) -> Any:
        for attempt in range(_ATTEMPTS):
            try:
                client = self._connected()
                client.list_topics(_ANY_TOPIC, timeout=self._timeout_s)
                future = client.describe_consumer_groups([group], request_timeout=self._timeout_s)[group]
                return future.result(self._timeout_s + 1)
            except KafkaException as exc:
                error = exc.args[0]
                if error.code() == KafkaError._TIMED_OUT:
                    self._give_up()
                if standing(error) is not Standing.MOVING or attempt == _ATTEMPTS - 1:
                    raise ObserverUnavailable(
                        f"group {group} on {self._servers} cannot be seen ({error.str()}); what is there is held"
                    ) from None
            except TimeoutError:
                self._give_up()
                break
        raise ObserverUnavailable(f"group {group} on {self._servers}: no answer in {self._timeout_s} s")


def _member(described: Any) -> Member:
    owned = described.assignment.topic_partitions if described.assignment else []
    partitions = tuple(sorted(TopicPartition(tp.topic, tp.partition) for tp in owned))
    return Member(described.group_instance_id or described.member_id, partitions)
