"""What a decision is: a time-phased plan with its reasons and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from balancer.group import Assignment
from forecaster.topics import GroupId, TopicPartition


class BoundKind(StrEnum):
    """What keeps a plan from doing better."""

    NONE = "none"
    PARTITION = "partition"
    KEY = "key"
    DOWNSTREAM = "downstream"
    MAX_REPLICAS = "max_replicas"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Bound:
    """What bounds the plan: its kind, which one, and from when on."""

    kind: BoundKind = BoundKind.NONE
    id: str | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One partition changes its owner; ``source`` None is a first assignment, which stops nobody."""

    partition: TopicPartition
    source: str | None
    target: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """From ``start`` on: so many members, because of this demand.

    ``start`` is when the change is *requested* (need time minus lead time). ``demand`` in records/s, at the highest
    instant that the step covers. ``assignment`` and ``moves`` only for groups whose assignment is planned.
    """

    start: datetime
    replicas: int
    demand: float
    assignment: Assignment | None = None
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that a person (or mode ``act``) may do beyond scaling: split, merge, isolate, faster member."""

    kind: str
    subject: str
    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A size that could have been requested now, and what it would cost over the plan's horizon.

    Parameters
    ----------
    choice
        ``hold``, ``one_less``, ``one_more`` or ``chosen``.
    replicas
        Its size.
    paid_hours
        Member-hours of the cheapest path that begins with it.
    rescales
        Changes on that path, the one now included.
    rescale_hours
        What they are reckoned to cost, in member-hours.
    late_records
        Records expected beyond what so many members serve, before a later decision can take effect.
    """

    choice: str
    replicas: int
    paid_hours: float
    rescales: int
    rescale_hours: float
    late_records: float


@dataclass(frozen=True, slots=True)
class WindowShare:
    """A pre-scaling window or event that touches a plan's horizon, and its share in the plan.

    Parameters
    ----------
    text
        The rule, in a line.
    start, end
        The window.
    replicas, without
        The most members that the plan asks for within it, and would ask for if this window alone were not there.
    """

    text: str
    start: datetime
    end: datetime
    replicas: int
    without: int

    def in_words(self, now: datetime) -> str:
        """Return it as a plan's reason.

        Examples
        --------
        >>> from datetime import UTC, timedelta
        >>> eight = datetime(2026, 1, 5, 8, tzinfo=UTC)
        >>> WindowShare("sale: at least 9", eight, eight + timedelta(hours=1), 9, 4).in_words(eight)
        'sale: at least 9 acts now: 9 members, 4 without it'
        """
        acts = " acts now" if self.start <= now < self.end else ""
        return f"{self.text}{acts}: {self.replicas} members, {self.without} without it"


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """One tick's answer. ``steps[0]`` is now; every later step begins when its request is due.

    ``hold`` is true when something is wrong or unknown and the plan therefore keeps what is there; the reasons say
    what. ``lower_bound`` is the fewest members that could carry the demand now (L2, Martello and Toth).
    """

    group: GroupId
    made_at: datetime
    steps: tuple[PlannedStep, ...]
    bound_by: Bound
    reasons: tuple[str, ...]
    lower_bound: int | None = None
    hold: bool = False
    proposals: tuple[Proposal, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    windows: tuple[WindowShare, ...] = ()

    @property
    def replicas(self) -> int:
        """What the target should be set to now."""
        return self.steps[0].replicas
