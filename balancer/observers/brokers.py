"""What an error of the Kafka client says of the brokers: where their state is told from our faults. Pure.

Errors are known by their names, so that nothing here needs the client.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol


class ClientError(Protocol):
    """An error as the client gives it (``confluent_kafka.KafkaError``)."""

    def name(self) -> str:
        """Return its name, such as ``NOT_COORDINATOR``."""
        ...

    def str(self) -> str:
        """Return its text."""
        ...

    def retriable(self) -> bool:
        """Tell whether the client thinks that trying again may help."""
        ...


class Standing(StrEnum):
    """What an error says of the brokers."""

    MOVING = "moving"
    """A broker answers, and another one, or the same in a moment, will serve."""
    AWAY = "away"
    """No broker answers, or none in time."""
    GONE = "gone"
    """There is no such topic, partition or group."""
    REFUSES = "refuses"
    """A right or valid credentials are missing."""
    UNEXPECTED = "unexpected"
    """What we asked cannot be meant: a fault of ours."""


_MOVING = frozenset(
    [
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "TRANSACTION_COORDINATOR_FENCED",
        "STALE_CTRL_EPOCH",
        "STALE_BROKER_EPOCH",
        "REBOOTSTRAP_REQUIRED",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_CONTROLLER",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "OFFSET_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "CONCURRENT_TRANSACTIONS",
        "REBALANCE_IN_PROGRESS",
        "UNSTABLE_OFFSET_COMMIT",
        "THROTTLING_QUOTA_EXCEEDED",
        "_WAIT_COORD",
        "_WAIT_CACHE",
        "_IN_PROGRESS",
    ]
)
_AWAY = frozenset(
    [
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_NODE_UPDATE",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "_DESTROY_BROKER",
        "_RETRY",
        "_QUEUE_FULL",
    ]
)
_GONE = frozenset(
    [
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "GROUP_ID_NOT_FOUND",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_GROUP",
    ]
)
_REFUSES = {
    "TOPIC_AUTHORIZATION_FAILED": "grant Describe and Read on the topic",
    "GROUP_AUTHORIZATION_FAILED": "grant Describe and Read on the group",
    "CLUSTER_AUTHORIZATION_FAILED": "grant Describe on the cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant Describe and Write on the transactional ids headway.*",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "correct the credentials in headway.toml, [kafka]",
    "SASL_AUTHENTICATION_FAILED": "correct the credentials in headway.toml, [kafka]",
    "_AUTHENTICATION": "correct the credentials in headway.toml, [kafka]",
    "_SSL": "correct the certificates in headway.toml, [kafka]",
}


def standing(error: ClientError) -> Standing:
    """Return what a client's error says of the brokers.

    Examples
    --------
    >>> class Error:
    ...     name, str, retriable = lambda self: "NOT_COORDINATOR", lambda self: "", lambda self: False
    >>> standing(Error())
    <Standing.MOVING: 'moving'>
    """
    name = error.name()
    if name in _REFUSES:
        return Standing.REFUSES
    if name in _AWAY:
        return Standing.AWAY
    if name in _GONE:
        return Standing.GONE
    return Standing.MOVING if name in _MOVING or error.retriable() else Standing.UNEXPECTED


def brokers_say(failure: BaseException) -> str | None:
    """Return in one line what an exception says of the brokers; None if it is not the brokers' state.

    Parameters
    ----------
    failure
        What was raised: the client's exception, an answer that did not come in time, or anything else.
    """
    if isinstance(failure, TimeoutError) and not failure.strerror:
        return f"no answer in time ({str(failure) or 'a call timed out'}); what is there is held and asked for again"
    error: Any = failure.args[0] if failure.args else None
    if type(failure).__name__ not in ("KafkaException", "KafkaError") or not hasattr(error, "retriable"):
        return None
    said = f"{error.name()}: {error.str()}"
    where = standing(error)
    if where is Standing.REFUSES:
        return f"the brokers refuse ({said}); {_REFUSES[error.name()]}"
    if where is Standing.AWAY:
        return f"the brokers do not answer ({said}); what is there is held and asked for again"
    if where is Standing.GONE:
        return f"the brokers know nothing of it ({said}); create it, or correct its name in headway.toml"
    if where is Standing.MOVING:
        return f"a broker cannot serve at the moment ({said}); what is there is held and asked for again"
    return None
