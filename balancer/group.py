"""What is seen of a consumer group at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from forecaster.topics import GroupId, TopicPartition

Assignment = Mapping[str, tuple[TopicPartition, ...]]
"""Member id → partitions that it owns, sorted."""


class GroupProtocol(StrEnum):
    """How the group's members share partitions."""

    PLANNED = "planned"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848."""
    SHARE = "share"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group.

    Parameters
    ----------
    id
        Member id; stable while the member lives. For planned consumers ``<instance>#<incarnation>``.
    partitions
        What it owns now.
    capacity
        Records/s that it sustains, where that is known for itself; None takes the group's.
    rack
        Where it runs, if it says so.
    ready
        False while it starts or warms up.
    draining
        True when it has been told to hand over and stop.
    pod
        Name of the pod, or host, that it runs in, if it says so.
    """

    id: str
    partitions: tuple[TopicPartition, ...] = ()
    capacity: float | None = None
    rack: str | None = None
    ready: bool = True
    draining: bool = False
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as the group sees it. None is "not known", with the reason in ``why``.

    ``lag`` in records; ``arrival_rate`` and ``consumption_rate`` in records/s over the last complete steps.
    """

    lag: int | None
    arrival_rate: float | None
    consumption_rate: float | None = None
    why: str | None = None
    is_stuck: bool = False
    """Its commit stands still while the group works elsewhere: no number of members works its lag off."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one instant: members, partitions, and what the scale target is set to.

    Parameters
    ----------
    at
        When it was observed, aware UTC.
    replicas
        What the scale target is set to (requested); None if that is not known.
    members
        Members that live, ready or not.
    partitions
        State of every partition of the group's topics.
    protocol
        How partitions are shared.
    generation
        Generation or epoch of the group, None where there is none.
    racks
        Rack of each partition's leader, where brokers and a member say where they are.
    """

    group: GroupId
    at: datetime
    replicas: int | None
    members: tuple[Member, ...]
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    protocol: GroupProtocol = GroupProtocol.UNKNOWN
    generation: int | None = None
    racks: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def assignment(self) -> Assignment:
        """Member id → partitions owned now."""
        return {m.id: m.partitions for m in self.members}

    @property
    def working(self) -> int:
        """Members that are ready."""
        return sum(m.ready for m in self.members)

    @property
    def lag(self) -> tuple[int, float]:
        """Sum of the known lags (records), and the share of partitions that it covers."""
        known = [p.lag for p in self.partitions.values() if p.lag is not None]
        return sum(known), len(known) / len(self.partitions) if self.partitions else 0.0

    @property
    def backlog(self) -> int:
        """Sum of the known lags (records) that members can work off: without those of stuck partitions."""
        return sum(p.lag for p in self.partitions.values() if p.lag is not None and not p.is_stuck)

    @property
    def arrival_rate(self) -> tuple[float, float]:
        """Sum of the known arrival rates (records/s), and the share of partitions that it covers."""
        known = [p.arrival_rate for p in self.partitions.values() if p.arrival_rate is not None]
        return sum(known), len(known) / len(self.partitions) if self.partitions else 0.0
