"""Settings of a routed producer, checked at construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from balancer.routing.base import ROUTE_PREFIX, TABLE_TOPIC
from balancer.routing.errors import RouteSettingsRefused

KEPT = frozenset(
    {"transactional.id", "partitioner", "enable.idempotence", "metadata.recovery.strategy", "message.timeout.ms"}
)
"""Client properties on which the promises rest; users cannot set them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """One routed producer's settings; durations are ``timedelta``.

    Raises
    ------
    RouteSettingsRefused
        If a value is outside its bound; the message names field, value and bound.

    Examples
    --------
    >>> RouteSettings(name="checkout-1", topics=("orders",), bootstrap_servers="127.0.0.1:9092").ttl.seconds
    2
    >>> RouteSettings(name="checkout-1", topics=(), bootstrap_servers="127.0.0.1:9092")
    Traceback (most recent call last):
    balancer.routing.errors.RouteSettingsRefused: topics=() must be at least one topic name
    """

    name: str
    """Unique among the producers of the cluster, and the same after a restart: a pod's ordinal, say."""

    topics: tuple[str, ...]
    """Routed topics; records for any other topic pass through as they are."""

    bootstrap_servers: str
    """Brokers, as ``host:port`` separated by commas."""

    store_url: str = "redis://127.0.0.1:6379/0"
    """Where changes are announced and acknowledged."""

    cluster: str = "main"
    """Name of the Kafka cluster; part of every key."""

    transactional: bool = True
    """With transactions a switch keeps order whatever happens. Without, a producer that wakes late may reorder."""

    lease_ttl: timedelta | None = None
    """How long a producer may be silent; renewed every third of it. Default 2 s, without transactions 10 s."""

    message_timeout: timedelta = timedelta(seconds=5)
    """Plain mode: a record is given up after this long, so that nothing lands after the lease has ended."""

    longest_pause: timedelta = timedelta(seconds=2)
    """Plain mode: longest stop of the process that is survived in order (garbage collection, throttling)."""

    transaction_timeout: timedelta = timedelta(seconds=60)
    """The broker aborts a transaction that stays open for longer, and fences its owner."""

    held_records: int = 100_000
    """Most records that wait for held slots; then ``BufferError``, as with a full queue."""

    sample_every: int = 64
    """One record in so many lends its key to the sample that finds hot keys."""

    table_topic: str = TABLE_TOPIC
    """The compacted topic of the slot tables."""

    properties: Mapping[str, Any] = field(default_factory=dict)
    """Further client properties."""

    def __post_init__(self) -> None:
        def refuse(name: str, bound: str) -> None:
            raise RouteSettingsRefused(f"{name}={getattr(self, name)} must be {bound}")

        for name in ("name", "bootstrap_servers"):
            if not getattr(self, name):
                refuse(name, "given")
        if not self.topics or any(not t for t in self.topics):
            refuse("topics", "at least one topic name")
        if self.held_records < 1:
            refuse("held_records", "1 or more")
        if self.sample_every < 1:
            refuse("sample_every", "1 or more")
        if self.ttl <= timedelta(milliseconds=200):
            refuse("lease_ttl", "longer than 200 ms")
        if not self.transactional and self.message_timeout + self.longest_pause >= self.ttl:
            refuse("message_timeout", f"shorter than lease_ttl={self.ttl} less longest_pause={self.longest_pause}")
        for name in sorted(KEPT & set(self.properties)):
            if name != "partitioner":
                raise RouteSettingsRefused(f"properties.{name} must be left out: what is promised rests on it")

    @property
    def ttl(self) -> timedelta:
        """How long the producer may be silent."""
        return self.lease_ttl or timedelta(seconds=2 if self.transactional else 10)

    @property
    def transactional_id(self) -> str | None:
        """The id by which a leader can fence it."""
        return ROUTE_PREFIX + self.name if self.transactional else None
