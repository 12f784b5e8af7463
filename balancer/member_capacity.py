"""Records/s that a member sustains, learned only while it had more to do than it could.

A member that keeps up shows how much arrives, not what it can do: low traffic must never read as low capacity. So an
interval teaches only if records waited for the member at both of its ends, enough to keep it busy all the time, and
nothing was moved meanwhile. Every other stable interval still says that the capacity is *at least* its rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from balancer.group import Assignment
from forecaster.topics import TopicPartition

PRIOR_WEIGHT = 3.0
"""The group's median counts like so many intervals of a member's own: a new member is taken for an average one."""
FULL_CONFIDENCE_SAMPLES = 10.0
"""So many intervals of the same rate make a confidence of one half of what is left."""

SPARE_S = 2.0
"""So many seconds of a member's own work must wait at both ends of an interval for it to count as busy."""
NEEDED_BUSY = 3
"""Fewer busy intervals are not planned with: one may be a hiccup."""
KEPT = 200
"""The latest so many busy intervals count, so that a new version of the consumer is believed after a while."""


@dataclass(frozen=True, slots=True)
class MemberInterval:
    """What one member did between two looks.

    Parameters
    ----------
    member
        Its id.
    at
        End of the interval, aware UTC.
    seconds
        Its length.
    consumed
        Records by which its partitions' commits advanced.
    lag_before, lag_after
        Records that waited in its partitions at both ends; None where not known.
    stable
        Whether it owned the same partitions all the time, was ready, and no rebalance happened.
    """

    member: str
    at: datetime
    seconds: float
    consumed: int
    lag_before: int | None
    lag_after: int | None
    stable: bool = True

    @property
    def rate(self) -> float:
        """Records/s."""
        return self.consumed / self.seconds

    def is_busy(self, spare_s: float = SPARE_S) -> bool:
        """Tell whether the member had work all the time: at both ends, ``spare_s`` seconds of it were waiting."""
        if not self.stable or self.lag_before is None or self.lag_after is None or self.consumed <= 0:
            return False
        return min(self.lag_before, self.lag_after) >= self.rate * spare_s

    def to_json(self) -> list[Any]:
        """Return what :meth:`from_json` takes; only stable intervals are worth keeping."""
        return [self.member, self.at.isoformat(), self.seconds, self.consumed, self.lag_before, self.lag_after]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> MemberInterval:
        """Return a stable interval as it was kept."""
        return cls(kept[0], datetime.fromisoformat(kept[1]), *kept[2:])


@dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """What is known of capacity; None with the reason in ``why`` until somebody was busy.

    Parameters
    ----------
    capacity
        Records/s that an average member sustains.
    confidence
        0 (nothing) to 1: grows with busy intervals, falls with their spread.
    members
        The same for each member that was seen.
    busy
        How many busy intervals taught.
    at_least
        Best rate that any member kept up in a stable interval, busy or not.
    """

    capacity: float | None
    confidence: float
    members: Mapping[str, float] = field(default_factory=dict)
    busy: int = 0
    at_least: float | None = None
    why: str | None = None

    @property
    def usable(self) -> float | None:
        """Capacity to plan with, to three digits; None while too few intervals taught."""
        return None if self.capacity is None or self.busy < NEEDED_BUSY else float(f"{self.capacity:.3g}")

    @property
    def unlock(self) -> str | None:
        """Why there is none to plan with, and what would change that; None where there is one."""
        if self.usable is not None:
            return None
        why = self.why or f"{self.busy} of {NEEDED_BUSY} busy intervals were seen"
        least = "" if self.at_least is None else f" (it is at least {self.at_least:.3g} records/s)"
        return (
            f"capacity of a member is not known yet{least}: {why}; it is learned from {NEEDED_BUSY} steps in which "
            "records wait for a member all the time, or set capacity_per_member"
        )


def learn_capacity(intervals: Sequence[MemberInterval], spare_s: float = SPARE_S, kept: int = KEPT) -> CapacityEstimate:
    """Learn capacity from the latest intervals of a group's members.

    Parameters
    ----------
    intervals
        In any order; intervals without length are left out.
    spare_s
        See :meth:`MemberInterval.is_busy`.
    kept
        The latest so many busy intervals count, so that a new version of the consumer is believed after a while.

    Examples
    --------
    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 5, tzinfo=UTC)
    >>> learn_capacity([MemberInterval("a", at, 60.0, 600, 0, 0)]).capacity is None  # kept up: nothing learned
    True
    >>> learn_capacity([MemberInterval("a", at, 60.0, 6000, 900, 800)] * 5).capacity
    100.0
    """
    usable = sorted((i for i in intervals if i.seconds > 0), key=lambda i: i.at)
    stable = [i.rate for i in usable if i.stable]
    at_least = max(stable, default=None)
    busy = [i for i in usable if i.is_busy(spare_s)][-kept:]
    if not busy:
        why = "no member was busy yet: all kept up with what arrived" if usable else "no member was seen yet"
        return CapacityEstimate(None, 0.0, at_least=at_least, why=why)
    rates: dict[str, list[float]] = {}
    for interval in busy:
        rates.setdefault(interval.member, []).append(interval.rate)
    own = {member: statistics.median(values) for member, values in rates.items()}
    middle = statistics.median(own.values())
    members = {
        member: (own[member] * len(values) + middle * PRIOR_WEIGHT) / (len(values) + PRIOR_WEIGHT)
        for member, values in rates.items()
    }
    spread = statistics.median(abs(i.rate - own[i.member]) / own[i.member] for i in busy)
    confidence = len(busy) / (len(busy) + FULL_CONFIDENCE_SAMPLES) * max(0.0, 1.0 - spread)
    return CapacityEstimate(middle, confidence, members, len(busy), at_least)


def member_intervals(
    looks: Sequence[tuple[datetime, Assignment]],
    begin: datetime,
    end: datetime,
    consumed: Mapping[TopicPartition, int],
    lag_before: Mapping[TopicPartition, int],
    lag_after: Mapping[TopicPartition, int],
) -> list[MemberInterval]:
    """Return what each member did in one recorded step; a member whose partitions are not all known is left out.

    Parameters
    ----------
    looks
        Instants at which the group was seen, rising, and what each ready member owned then.
    begin, end
        Of the step, aware UTC.
    consumed
        Records by which commits advanced in the step.
    lag_before, lag_after
        Records that waited at its begin and end.

    Notes
    -----
    A member is stable when it owned the same in all looks from the last one before the step on. A partition for which
    records waited and nothing was done makes its member unstable too: one bad record must not read as low capacity.

    Examples
    --------
    >>> from datetime import UTC, timedelta
    >>> p, begin = TopicPartition("orders", 0), datetime(2026, 1, 5, tzinfo=UTC)
    >>> end, owned = begin + timedelta(minutes=1), {"a": (p,)}
    >>> member_intervals([(begin, owned), (end, owned)], begin, end, {p: 600}, {p: 50}, {p: 90})[0].rate
    10.0
    """
    before = [at for at, _ in looks if at <= begin]
    if not before or looks[-1][0] < end:
        return []
    during = [owned for at, owned in looks if at >= before[-1]]
    found = []
    for member, partitions in during[-1].items():
        if not partitions or not all(tp in consumed and tp in lag_before and tp in lag_after for tp in partitions):
            continue
        same = all(owned.get(member) == partitions for owned in during)
        idle = any(not consumed[tp] and lag_before[tp] and lag_after[tp] for tp in partitions)
        found.append(
            MemberInterval(
                member,
                end,
                (end - begin).total_seconds(),
                sum(consumed[tp] for tp in partitions),
                sum(lag_before[tp] for tp in partitions),
                sum(lag_after[tp] for tp in partitions),
                same and not idle,
            )
        )
    return found
