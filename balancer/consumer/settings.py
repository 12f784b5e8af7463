"""Settings of a planned consumer, checked at construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from balancer.consumer.errors import SettingsRefused
from balancer.consumer.failures import FailurePolicy, GiveUp

KEPT = frozenset(
    {
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "transactional.id",
        "metadata.recovery.strategy",
        "partition.assignment.strategy",
        "group.protocol",
    }
)
"""Client properties on which the promises rest; users cannot set them."""


class Mode(StrEnum):
    """How effects and offsets go together."""

    TRANSACTIONAL = "transactional"
    """What the handler returns and the offsets are one Kafka transaction: exactly once."""
    SINK = "sink"
    """The handler's results go to an external sink under the lease epoch; the sink's offset decides."""
    AT_LEAST_ONCE = "at_least_once"
    """The handler has effects of its own; a crash repeats a batch at most (see ``idempotence_key``)."""
    MEMBERSHIP = "membership"
    """No transactions: a group membership fences. At least once."""


class StartAt(StrEnum):
    """Where to start a partition that is as old as the group and has no committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker's settings; durations are ``timedelta``.

    Raises
    ------
    SettingsRefused
        If a value is outside its bound; the message names field, value and bound.

    Examples
    --------
    >>> where = {"group": "orders", "topics": ("orders",), "bootstrap_servers": "127.0.0.1:9092"}
    >>> WorkerSettings(**where, commit_interval=timedelta(0))
    Traceback (most recent call last):
    balancer.consumer.errors.SettingsRefused: commit_interval=0:00:00 must be longer than zero
    """

    group: str
    """The group whose offsets are committed."""

    topics: tuple[str, ...]
    """What to consume. The planner decides on the partitions."""

    bootstrap_servers: str
    """Brokers, as ``host:port`` separated by commas."""

    store_url: str = "redis://127.0.0.1:6379/0"
    """Where leases are kept."""

    cluster: str = "main"
    """Name of the Kafka cluster; part of every key."""

    output_topic: str | None = None
    """Where results go in transactional mode; None if the handler returns nothing."""

    mode: Mode = Mode.TRANSACTIONAL
    """How effects and offsets go together."""

    instance: int | None = None
    """Numbered place; None takes the lowest that is free."""

    pod: str = ""
    """Shown to people; the host name is a good choice."""

    start_at: StartAt = StartAt.EARLIEST
    """Where to start without a committed offset. New partitions of a known topic start at log start regardless."""

    stop_on_gap: bool = False
    """Whether to end when records were deleted before they were read; else the gap is reported and passed."""

    lease_ttl: timedelta = timedelta(seconds=2)
    """How long a worker may be silent before it is fenced; renewed every third of it."""

    lease_margin: timedelta = timedelta(milliseconds=400)
    """Membership mode stops by itself this long before its deadline."""

    commit_interval: timedelta = timedelta(milliseconds=100)
    """Between commits; lengthens by itself when a commit takes longer than a fifth of it."""

    longest_commit_interval: timedelta = timedelta(seconds=5)
    """It lengthens no further than this."""

    recommit_every: timedelta = timedelta(days=1)
    """Held offsets are committed again this often without traffic, since brokers forget them (7 days by default)."""

    transaction_timeout: timedelta = timedelta(seconds=60)
    """The broker aborts a transaction that stays open for longer, and fences its owner."""

    handler_timeout: timedelta = timedelta(seconds=30)
    """One handler call that takes longer ends the process."""

    commit_timeout: timedelta = timedelta(seconds=45)
    """A commit that takes longer ends the process: it is known to hang for ever in rare cases (librdkafka#5511)."""

    drain_timeout: timedelta = timedelta(seconds=10)
    """After ``stop()``: how long to wait for the planner to move partitions before giving them up unasked."""

    poll_records: int = 500
    """Most records that one poll brings: a batch. In the modes that may repeat records, at_least_once and membership,
    no more than that are ever handled and not committed; what is handled faster than that waits for commits."""

    failures: FailurePolicy = field(default_factory=FailurePolicy)
    """Retries and the end of them."""

    dead_letter_topic: str | None = None
    """Where records go that are given up, with the reason in headers."""

    membership_topic: str | None = None
    """Membership mode: a topic with exactly one partition to which all workers subscribe."""

    properties: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Further client properties (security, say) for all clients."""

    def __post_init__(self) -> None:
        def refuse(name: str, bound: str) -> None:
            raise SettingsRefused(f"{name}={getattr(self, name)} must be {bound}")

        for name in ("group", "bootstrap_servers"):
            if not getattr(self, name):
                refuse(name, "given")
        if not self.topics or any(not t for t in self.topics):
            refuse("topics", "at least one topic name")
        for name in ("lease_ttl", "commit_interval", "handler_timeout", "commit_timeout", "recommit_every"):
            if getattr(self, name) <= timedelta(0):
                refuse(name, "longer than zero")
        if self.lease_margin * 2 > self.lease_ttl:
            refuse("lease_margin", f"at most half of lease_ttl={self.lease_ttl}")
        if self.transaction_timeout <= self.handler_timeout:
            refuse("transaction_timeout", f"longer than handler_timeout={self.handler_timeout}")
        if self.longest_commit_interval < self.commit_interval:
            refuse("longest_commit_interval", f"at least commit_interval={self.commit_interval}")
        if self.instance is not None and self.instance < 1:
            refuse("instance", "1 or more")
        if self.poll_records < 1:
            refuse("poll_records", "1 or more")
        if self.failures.give_up is GiveUp.DEAD_LETTER and not self.dead_letter_topic:
            refuse("dead_letter_topic", "given when failed records go to a dead-letter topic")
        if self.mode is Mode.MEMBERSHIP and not self.membership_topic:
            refuse("membership_topic", "given in membership mode: a topic with exactly one partition")
        for name in sorted(KEPT & set(self.properties)):
            raise SettingsRefused(f"properties.{name} must be left out: what is promised rests on it")
