"""What the user wants of a group: limits, targets and prices, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from balancer.errors import PolicyRefused
from balancer.leadtime import DEFAULT_LEAD_TIME


class AssignmentKind(StrEnum):
    """Who decides which member owns a partition."""

    PLANNED = "planned"
    SCALE_ONLY = "scale_only"


_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """One group's policy. Every field has a default that is safe on an unknown group.

    Raises
    ------
    PolicyRefused
        If a value is outside its bound; the message names field, value and bound.

    Examples
    --------
    >>> ScalingPolicy(min_replicas=3, max_replicas=2)
    Traceback (most recent call last):
    balancer.errors.PolicyRefused: max_replicas=2 must be at least min_replicas=3
    """

    capacity_per_member: float | None = None
    """Records/s that one member sustains; None is learned from busy intervals."""

    lead_time: timedelta | None = None
    """From decision to useful capacity; None is measured, and 120 s until it has been."""

    pause: timedelta = timedelta(seconds=6)
    """How long the group (or the moved partitions, see ``moves_stall_group``) stalls at a change."""

    moves_stall_group: bool = True
    """True for ordinary groups, where a rebalance stops everybody; False for planned consumers."""

    slo: timedelta = timedelta(seconds=60)
    """A record is late when its latency exceeds this."""

    late_target: float = 0.0001
    """Share of records that may be late."""

    min_replicas: int = 1
    """Never fewer; 0 lets a silent group sleep."""

    max_replicas: int = 64
    """Never more."""

    cap_at_partitions: bool = True
    """Members beyond the number of partitions would be idle; False for share groups and jobs."""

    rescales_per_day: int = 24
    """Rebalance budget: changes of the replica count per day."""

    moves_per_hour: int = 120
    """Movement budget: partitions that may change owner within an hour."""

    scale_down_dwell: timedelta = timedelta(minutes=10)
    """A lower size must have been wanted for this long; the highest wish within it is taken."""

    cooldown: timedelta = timedelta(0)
    """No second change within this time of the last, except upwards when records would be late."""

    target_utilization: float = 0.8
    """Share of capacity planned for when nothing has been learned yet."""

    hot_share: float = 0.8
    """A partition above this share of one member's capacity is reported as hot."""

    skew_limit: float = 1.25
    """Busiest member's demand over the mean that is tolerated before anything moves for balance alone."""

    assignment: AssignmentKind = AssignmentKind.SCALE_ONLY
    """Whether the plan also says who owns what."""

    assignor: str = "range"
    """For scale-only groups: the assignor of their clients (range, roundrobin, sticky, cooperative-sticky, uniform)."""

    snapshot_max_age: timedelta = timedelta(seconds=90)
    """An older snapshot is not decided on; the group holds."""

    price_per_member_hour: float | None = None
    """Money per member-hour, for reports only."""

    @property
    def expected_lead_time(self) -> timedelta:
        """The lead time that plans count on: the one that is known, else the default."""
        return self.lead_time if self.lead_time is not None else DEFAULT_LEAD_TIME

    def __post_init__(self) -> None:
        def refuse(field: str, bound: str) -> None:
            raise PolicyRefused(f"{field}={getattr(self, field)} must be {bound}")

        if self.capacity_per_member is not None and not 0 < self.capacity_per_member < float("inf"):
            refuse("capacity_per_member", "a positive number of records/s")
        if self.min_replicas < 0:
            refuse("min_replicas", "0 or more")
        if self.max_replicas < max(self.min_replicas, 1):
            refuse("max_replicas", f"at least min_replicas={self.min_replicas}" if self.min_replicas else "1 or more")
        if not 0 < self.late_target < 1:
            refuse("late_target", "a share within (0, 1)")
        if not 0 < self.target_utilization <= 1:
            refuse("target_utilization", "a share within (0, 1]")
        if not 0 < self.hot_share <= 1:
            refuse("hot_share", "a share within (0, 1]")
        if self.skew_limit < 1:
            refuse("skew_limit", "1 or more")
        if self.slo <= timedelta(0):
            refuse("slo", "longer than zero")
        for field in ("pause", "scale_down_dwell", "cooldown"):
            if getattr(self, field) < timedelta(0):
                refuse(field, "zero or longer")
        if self.lead_time is not None and self.lead_time < timedelta(0):
            refuse("lead_time", "zero or longer")
        if self.assignor not in _ASSIGNORS:
            refuse("assignor", f"one of {', '.join(_ASSIGNORS)}")
        for field in ("rescales_per_day", "moves_per_hour"):
            if getattr(self, field) < 1:
                refuse(field, "1 or more")
