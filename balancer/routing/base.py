"""The ports of routing: the log that decides, and the store that caches, registers and wakes.

The commit point of a slot table is its record in a compacted Kafka topic (:class:`TableLog`). The store
(:class:`RouteStore`) holds a cache that is replaced only by a higher epoch, the registrations of producers with their
deadlines, what groups say of their gates, and requests by hand. Losing the store loses nothing that decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from balancer.routing.table import SlotTable

ROUTE_PREFIX = "headway.route."
"""Transactional ids of routed producers begin so; a name follows."""

TABLE_TOPIC = "headway.tables"
"""Default name of the compacted topic that holds the slot tables, key = topic."""


def leader_id(topic: str) -> str:
    """Return the transactional id of a topic's leader; whoever initialises it fences the one before.

    Examples
    --------
    >>> leader_id("orders")
    'headway.table.orders'
    """
    return f"headway.table.{topic}"


@dataclass(frozen=True, slots=True)
class Registration:
    """A producer that routes: its name, one life of it, and how it can be fenced.

    ``transactional_id`` is None for plain producers: nobody can fence those, they stop by themselves at their deadline.
    """

    name: str
    nonce: str
    topics: tuple[str, ...]
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One registered producer as the store sees it.

    ``acks`` names, topic by topic, the epoch that it has answered: it routes by that table or a newer one, and nothing
    older of it is outstanding.
    """

    registration: Registration
    live: bool
    acks: Mapping[str, int] = field(default_factory=dict)
    sample: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topic → a few keys of late (hexadecimal), drawn evenly over its records."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Topic → records/s."""


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """Somebody wants a partition split into ``lanes``, or merged back; ``state`` and ``detail`` say how that ended.

    ``slots`` names the slots to move, target by target, when a planner has chosen them; else they are spread evenly.
    """

    id: str
    topic: str
    partition: int
    kind: str
    lanes: int = 2
    placement: tuple[tuple[int, ...], ...] = ()
    numbers: tuple[int, ...] = ()
    """Transitions that carry it out."""
    state: str = "requested"
    detail: str = ""
    seconds: float | None = None
    epoch: int | None = None
    ended_at: float | None = None
    """Unix seconds at which it ended: what keeps the dwell over a restart."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("done", "refused", "aborted", "failed")


class TableLog(Protocol):
    """Where slot tables are committed, one key a topic.

    Raises :class:`balancer.routing.errors.TableLogUnavailable` when the broker does not answer.
    """

    def read(self, topic: str) -> SlotTable | None:
        """Return the last committed table of a topic, reading up to the log's present end; None without one.

        Raises
        ------
        TableRefused
            If the last record is damaged or from a newer version.
        """
        ...

    def take(self, topic: str) -> SlotTable | None:
        """Become the topic's writer: whatever an earlier one leaves open is void. Then read to the end."""
        ...

    def append(self, table: SlotTable) -> None:
        """Commit a table.

        Raises
        ------
        LeaderSuperseded
            If a later writer has taken the topic.
        """
        ...

    def close(self) -> None:
        """Give up connections."""
        ...


class RouteStore(Protocol):
    """Cache, registrations, gates and requests of one Kafka cluster's routed topics.

    Every method raises :class:`balancer.errors.RouteStoreUnavailable` when nobody answers.
    """

    # -- producers ----------------------------------------------------------------------------------------------
    def register(self, who: Registration, ttl: timedelta) -> None:
        """Announce a producer; an earlier life of the same name is superseded."""
        ...

    def renew(
        self,
        who: Registration,
        ttl: timedelta,
        acks: Mapping[str, int],
        sample: Mapping[str, Sequence[str]],
        rates: Mapping[str, float],
    ) -> dict[str, int]:
        """Put the deadline off, say what was acknowledged and seen; return the cached epoch of each of its topics.

        A registration that the store has lost is made again.

        Raises
        ------
        RegistrationRefused
            If another life of that name has registered since.
        """
        ...

    def leave(self, who: Registration) -> None:
        """End a registration, if it is still that life's."""
        ...

    def table(self, topic: str) -> bytes | None:
        """Return the cached table, encoded."""
        ...

    def wait(self, name: str, timeout: timedelta) -> bool:
        """Wait until something changed for ``producers`` or ``planner``; False at the timeout."""
        ...

    # -- the topic's leader -------------------------------------------------------------------------------------
    def lead(self, topic: str, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lead of a topic. What really fences is the transactional id; this keeps the peace."""
        ...

    def resign(self, topic: str, holder: str) -> None:
        """Give the lead back."""
        ...

    def publish(self, table: SlotTable) -> bool:
        """Replace the cache by a higher epoch, or by the table of another topic id; wake producers and planners."""
        ...

    def producers(self) -> tuple[ProducerState, ...]:
        """Return every registration, expired ones too."""
        ...

    def forget(self, who: Registration) -> None:
        """Drop a registration that was fenced, unless a later life has taken its name."""
        ...

    # -- groups -------------------------------------------------------------------------------------------------
    def close_gates(self, topic: str, group: str, epoch: int) -> None:
        """Say that a group withholds every lane that the table of that epoch gates."""
        ...

    def gates(self, topic: str) -> dict[str, int]:
        """Return group → the highest epoch whose gates are closed."""
        ...

    # -- people -------------------------------------------------------------------------------------------------
    def request(self, request: SplitRequest) -> None:
        """Ask whoever leads the topic for a split or a merge."""
        ...

    def requests(self, topic: str) -> tuple[SplitRequest, ...]:
        """Return what was asked for, with how it stands."""
        ...

    def settle(self, request: SplitRequest) -> None:
        """Record how a request stands or ended."""
        ...

    def drop(self, request: SplitRequest) -> None:
        """Forget a request that has ended."""
        ...

    def close(self) -> None:
        """Give up connections; everything kept stays."""
        ...
