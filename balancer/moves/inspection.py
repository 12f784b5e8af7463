"""Reads from a cluster what planned groups lean on: internal topics, retention of offsets, rights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as _admin
from confluent_kafka.admin import AdminClient

from balancer.moves.bulk_client import listed_ids
from balancer.moves.promises import BrokerFacts, InternalTopic

_named: Any = _admin  # names that it brings from its parts without saying so
AclOperation, ConfigResource, ResourceType = _named.AclOperation, _named.ConfigResource, _named.ResourceType

PASSING = (
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError._TIMED_OUT,
)
"""Errors that pass by themselves, whatever the client calls retriable."""
INTERNAL = ("__transaction_state", "__consumer_offsets")
DEFAULTS = {
    "__transaction_state": ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
    "__consumer_offsets": ("offsets.topic.replication.factor", "min.insync.replicas"),
}
"""Broker settings that a topic will be made with, if it is not there yet."""


def inspect(properties: Mapping[str, Any], group: str, topics: Iterable[str], timeout_s: float = 10.0) -> BrokerFacts:
    """Return the facts; a question that the broker does not answer is a missing right, with what it said.

    Parameters
    ----------
    properties
        Client properties by their librdkafka names.
    group, topics
        Whose fences and offsets are at stake. One transactional id of the group, ``headway.<group>.doctor``, is
        initialised: that is the only sure way to learn whether fences are allowed.
    """
    admin = AdminClient({**properties, "log_level": 0})
    missing: dict[str, str] = {}

    def ask(need: str, question: Callable[[], Any]) -> Any:
        try:
            return answer(question, timeout_s)
        except ck.KafkaException as failure:
            if failure.args[0].code() == ck.KafkaError.GROUP_ID_NOT_FOUND:  # a group that nobody has used yet
                return None
            missing[need] = f"{failure.args[0].str()} ({failure.args[0].name()})"
            return None

    cluster = admin.list_topics(timeout=timeout_s)
    brokers = sorted(cluster.brokers)
    own = ask("DescribeConfigs on the cluster", lambda: _configs(admin, ResourceType.BROKER, str(brokers[0])))
    internal = tuple(_internal(admin, name, cluster, own or {}, ask) for name in INTERNAL)
    minutes = (own or {}).get("offsets.retention.minutes")
    _rights(admin, properties, group, tuple(topics), ask, missing, timeout_s)
    retention = timedelta(minutes=int(minutes)) if minutes is not None else None
    unlisted = None
    try:
        listed_ids(properties, brokers, timedelta(seconds=timeout_s))
    except Exception as failure:  # whatever this client says, a group cannot be founded while it does
        unlisted = str(failure) or type(failure).__name__
    return BrokerFacts(len(brokers), internal, retention, missing, unlisted)


def answer(question: Callable[[], Any], timeout_s: float) -> Any:
    """Ask until there is an answer: a coordinator that still loads, on a cluster just started, is no missing right."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return question()
        except ck.KafkaException as failure:
            error = failure.args[0]
            if not (error.retriable() or error.code() in PASSING) or time.monotonic() > end:
                raise
            time.sleep(0.1)


def _configs(admin: AdminClient, kind: Any, name: str) -> dict[str, str]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)], request_timeout=10).values()
    return {key: entry.value for key, entry in future.result().items()}


def _internal(admin: AdminClient, name: str, cluster: Any, own: Mapping[str, str], ask: Any) -> InternalTopic:
    def number(text: str | None) -> int | None:
        return int(text) if text is not None else None

    unclean = own.get("unclean.leader.election.enable")
    if name not in cluster.topics:
        copies, in_sync = (number(own.get(key)) for key in DEFAULTS[name])
        return InternalTopic(name, copies, in_sync, None if unclean is None else unclean == "true")
    copies = min((len(p.replicas) for p in cluster.topics[name].partitions.values()), default=None)
    held = ask(f"DescribeConfigs on topic {name}", lambda: _configs(admin, ResourceType.TOPIC, name)) or {}
    unclean = held.get("unclean.leader.election.enable", unclean)
    in_sync = number(held.get("min.insync.replicas"))
    return InternalTopic(name, copies, in_sync, None if unclean is None else unclean == "true")


def _rights(
    admin: AdminClient,
    properties: Mapping[str, Any],
    group: str,
    topics: tuple[str, ...],
    ask: Any,
    missing: dict[str, str],
    timeout_s: float,
) -> None:
    """Note which rights are missing: on topics, on the group, and on the group's transactional ids."""
    options = {"include_authorized_operations": True, "request_timeout": timeout_s}

    def of_topic(name: str) -> Any:
        return admin.describe_topics(ck.TopicCollection([name]), **options)[name].result()

    for topic in topics:
        facts = ask(f"Describe on topic {topic}", lambda name=topic: of_topic(name))
        if facts is not None and facts.authorized_operations is not None:
            _allowed(facts.authorized_operations, AclOperation.READ, f"Read on topic {topic}", missing)
    facts = ask(
        f"Describe on group {group}", lambda: admin.describe_consumer_groups([group], **options)[group].result()
    )
    if facts is not None and facts.authorized_operations is not None:
        _allowed(facts.authorized_operations, AclOperation.READ, f"Read on group {group}", missing)
    trial = f"headway.{group}.doctor"
    producer = ck.Producer({**properties, "log_level": 0, "transactional.id": trial, "retry.backoff.ms": 10})
    need = f"Write and Describe on transactional ids headway.{group}.*"
    ask(need, lambda: producer.init_transactions(timeout_s))


def _allowed(operations: Iterable[Any], wanted: Any, need: str, missing: dict[str, str]) -> None:
    if wanted not in operations and AclOperation.ALL not in operations:
        missing[need] = "not allowed"
