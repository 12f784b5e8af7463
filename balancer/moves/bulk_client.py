"""The second Kafka client of moves: kafka-python lists transactions and producers, which librdkafka cannot.

It has to log in as the first client does. Properties that only tune librdkafka are left out; one of access that it has
no word for is an error, because what it cannot list may be alive.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from kafka.admin import KafkaAdminClient

from balancer.errors import BalancerError

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs whole configurations; errors reach us as exceptions

_WORDS = {
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
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
}
_IGNORED = ("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list")
"""What narrows a handshake and lets nobody in: the brokers choose among what the client offers without it."""
_ACCESS = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class NoWord(BalancerError):
    """A client property of access that kafka-python has no word for."""


def bulk_options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's properties in kafka-python's words.

    Raises
    ------
    NoWord
        If it cannot log in as they say.

    Examples
    --------
    >>> bulk_options({"bootstrap.servers": "a:1,b:2", "ssl.key.location": "k.pem", "linger.ms": 5})
    {'bootstrap_servers': ['a:1', 'b:2'], 'ssl_keyfile': 'k.pem'}
    >>> bulk_options({"bootstrap.servers": "a:1", "sasl.mechanisms": "OAUTHBEARER"})
    Traceback (most recent call last):
    balancer.moves.bulk_client.NoWord: sasl.mechanisms = OAUTHBEARER: kafka-python, which lists transactions, knows ...
    """
    options: dict[str, Any] = {"bootstrap_servers": str(properties["bootstrap.servers"]).split(",")}
    for name, value in properties.items():
        word = _WORDS.get(name)
        if word == "sasl_mechanism" and value not in _MECHANISMS:
            raise NoWord(
                f"{name} = {value}: kafka-python, which lists transactions, knows {', '.join(_MECHANISMS)} and TLS "
                f"client certificates"
            )
        if word is not None:
            options[word] = value
        elif name in _IGNORED or (name == "enable.ssl.certificate.verification" and str(value).lower() == "true"):
            continue
        elif name.startswith(_ACCESS):
            raise NoWord(
                f"{name}: kafka-python, which lists transactions, has no word for it; it knows {', '.join(_WORDS)}"
            )
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = str(options["ssl_check_hostname"]).lower() == "https"
    if "security_protocol" in options:
        options["security_protocol"] = str(options["security_protocol"]).upper()
    return options


def bulk_client(properties: Mapping[str, Any], patience: timedelta) -> KafkaAdminClient:
    """Return a client that has reached a broker; after ``patience`` an unanswered request has failed.

    Raises
    ------
    NoWord
        If it cannot log in as the properties say.
    """
    wait_ms = round(patience.total_seconds() * 1000)
    return KafkaAdminClient(**bulk_options(properties), request_timeout_ms=wait_ms, bootstrap_timeout_ms=wait_ms)


@contextlib.contextmanager
def _opened(properties: Mapping[str, Any], patience: timedelta) -> Iterator[KafkaAdminClient]:
    client = bulk_client(properties, patience)
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close()


def listed_ids(properties: Mapping[str, Any], brokers: Iterable[int], patience: timedelta) -> list[str]:
    """Return the transactional ids that these brokers know; any failure is raised, since what is unknown may be alive.

    Raises
    ------
    NoWord
        If the client cannot log in as the properties say.
    """
    with _opened(properties, patience) as client:
        found = client.list_transactions(broker_ids=sorted(brokers))
    return [str(one.transactional_id) for part in found.values() for one in part]


def busy_places(properties: Mapping[str, Any], topic: str, patience: timedelta) -> set[int]:
    """Return the partitions of a topic that transactions under way have written to; any failure is raised.

    Raises
    ------
    NoWord
        If the client cannot log in as the properties say.
    """
    with _opened(properties, patience) as client:
        listed = [one for part in client.list_transactions().values() for one in part]
        under_way = [str(one.transactional_id) for one in listed if not str(one.state.value).startswith(_ENDED)]
        told = client.describe_transactions(under_way) if under_way else {}
    return {tp.partition for one in told.values() for tp in one.topic_partitions if tp.topic == topic}


_ENDED = ("Empty", "Complete", "Dead")
"""States of a transactional id whose transaction is over, markers and all."""


def coordinator_partition(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that keeps a group, as brokers choose it.

    Examples
    --------
    >>> coordinator_partition("orders", 50), coordinator_partition("payments", 50)
    (31, 13)
    """
    hashed = 0
    data = group.encode("utf-16-be")
    for i in range(0, len(data), 2):
        hashed = (31 * hashed + int.from_bytes(data[i : i + 2], "big")) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return abs(signed) % partitions  # as Java's: the sign is dropped, not its bit
