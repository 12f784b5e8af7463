"""When a change may happen: dwell, cooldown and rebalance budget, as pure functions of history and now.

Flapping is impossible by construction: a size is given up only after nothing higher was wanted all through the dwell,
and no fall comes within the dwell of the last change, up or down. A wish for less is answered by the highest wish
within the dwell, in one step. So there are at most time / dwell falls, and no more climbs that are not urgent than the
budget allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from balancer.policy import ScalingPolicy

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)

LONGEST_GAP = timedelta(minutes=2)
"""Between two wishes; a longer one, unless it is within half of the dwell, is an outage of the planner: it vouches for
nothing that happened meanwhile."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How many members were wanted at an instant, before any stabilization."""

    at: datetime
    replicas: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the requested size."""

    at: datetime
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ScalingHistory:
    """What stabilization remembers of a group, oldest first. Frozen: every tick makes a new one.

    Parameters
    ----------
    wishes
        Within the dwell, and the last one before it, which vouches for the dwell's beginning.
    changes
        Within the last day.
    moves
        Instant and number of partitions that changed owner, within the last hour.
    """

    wishes: tuple[Wish, ...] = ()
    changes: tuple[Change, ...] = ()
    moves: tuple[tuple[datetime, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what a plan store keeps between ticks and leaders."""
        return {
            "wishes": [[w.at.isoformat(), w.replicas] for w in self.wishes],
            "changes": [[c.at.isoformat(), c.before, c.after] for c in self.changes],
            "moves": [[at.isoformat(), count] for at, count in self.moves],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> ScalingHistory:
        """Read what :meth:`to_json` wrote; None is an empty history, which forbids every fall until a dwell is known.

        Examples
        --------
        >>> ScalingHistory.from_json(None) == ScalingHistory.from_json(ScalingHistory().to_json()) == ScalingHistory()
        True
        """
        value = value or {}
        return cls(
            tuple(Wish(datetime.fromisoformat(at), int(n)) for at, n in value.get("wishes", ())),
            tuple(Change(datetime.fromisoformat(at), int(b), int(a)) for at, b, a in value.get("changes", ())),
            tuple((datetime.fromisoformat(at), int(n)) for at, n in value.get("moves", ())),
        )


@dataclass(frozen=True, slots=True)
class Stabilized:
    """What may be requested now, why, and what to remember.

    Parameters
    ----------
    replicas
        The size to request; the current one to hold.
    reasons
        Why it differs from what was wanted; empty when it does not.
    history
        With this tick's wish in it. A change that is really requested is added by :func:`changed`.
    """

    replicas: int
    reasons: tuple[str, ...]
    history: ScalingHistory


def stabilize(
    wanted: int,
    current: int,
    now: datetime,
    history: ScalingHistory,
    policy: ScalingPolicy,
    *,
    urgent: bool = False,
    backlog_falls: bool = False,
) -> Stabilized:
    """Decide how much of a wish may be requested now.

    Parameters
    ----------
    wanted
        Members that demand asks for.
    current
        What the target is set to.
    now
        Aware UTC.
    history
        Of earlier ticks.
    policy
        Limits, dwell, cooldown, budget.
    urgent
        Without the climb records would be late. An urgent climb waits for nothing.
    backlog_falls
        A backlog is being worked off: no fall meanwhile.

    Examples
    --------
    >>> from datetime import UTC
    >>> start = datetime(2026, 1, 5, 9, tzinfo=UTC)
    >>> policy = ScalingPolicy(scale_down_dwell=timedelta(minutes=2))
    >>> history = ScalingHistory()
    >>> for minute, wanted in enumerate([6, 4, 3, 3]):
    ...     answer = stabilize(wanted, 6, start + timedelta(minutes=minute), history, policy)
    ...     history = answer.history
    ...     print(answer.replicas, *answer.reasons)
    6
    6 2 members less wait: fewer than 6 must be wanted for 120 s
    6 3 members less wait: fewer than 6 must be wanted for 120 s
    4 4 members stay: so many were wanted within the last 120 s
    """
    low, high = policy.min_replicas, policy.max_replicas
    clipped = min(max(wanted, low), high)
    remembered = _remember(history, Wish(now, clipped), policy.scale_down_dwell)

    def answer(replicas: int, *reasons: str) -> Stabilized:
        return Stabilized(replicas, reasons, remembered)

    if current > high:
        return answer(high, f"within max_replicas={high}")
    if current < low:
        return answer(clipped, f"within min_replicas={low}")
    if clipped == current:
        return answer(current)
    left = policy.rescales_per_day - len(remembered.changes)
    last = remembered.changes[-1].at if remembered.changes else None
    cooling = last is not None and now < last + policy.cooldown
    if clipped > current:
        if urgent and left <= 0:
            return answer(clipped, _over_budget(policy, "climbs all the same: records are late"))
        if urgent:
            return answer(clipped)
        if cooling:
            return answer(current, f"no second change within the cooldown of {_seconds(policy.cooldown)}")
        if left <= 0:
            return answer(current, _over_budget(policy, "a climb that is not urgent waits"))
        return answer(clipped)
    dwell = policy.scale_down_dwell
    target = _highest_wish(remembered, now, dwell)
    if target is None or target >= current:
        wait = f"fewer than {current} must be wanted for {_seconds(dwell)}"
        return answer(current, f"{current - clipped} members less wait: {wait}")
    if last is not None and now < last + dwell:
        return answer(current, f"{current - target} members less wait: {_seconds(dwell)} from the last change")
    if backlog_falls:
        return answer(current, f"{current - target} members less wait until the backlog is worked off")
    if cooling:
        return answer(current, f"no second change within the cooldown of {_seconds(policy.cooldown)}")
    if left <= 1:  # a fall is followed by a climb: keep one for it
        return answer(current, _over_budget(policy, "a fall waits"))
    if target > clipped:
        return answer(target, f"{target} members stay: so many were wanted within the last {_seconds(dwell)}")
    return answer(target)


def changed(history: ScalingHistory, at: datetime, before: int, after: int) -> ScalingHistory:
    """Remember a change that was really requested; nothing when it is none.

    Examples
    --------
    >>> from datetime import UTC
    >>> changed(ScalingHistory(), datetime(2026, 1, 5, tzinfo=UTC), 3, 3) == ScalingHistory()
    True
    """
    if before == after:
        return history
    kept = tuple(c for c in history.changes if c.at > at - DAY)
    return ScalingHistory(history.wishes, (*kept, Change(at, before, after)), history.moves)


def moved(history: ScalingHistory, at: datetime, partitions: int) -> ScalingHistory:
    """Remember that partitions changed their owner."""
    kept = tuple(m for m in history.moves if m[0] > at - HOUR)
    return ScalingHistory(history.wishes, history.changes, (*kept, (at, partitions)) if partitions else kept)


def moves_left(history: ScalingHistory, now: datetime, policy: ScalingPolicy) -> int:
    """How many partitions may still move within this hour without being forced.

    Examples
    --------
    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 5, tzinfo=UTC)
    >>> moves_left(moved(ScalingHistory(), now, 100), now + timedelta(minutes=59), ScalingPolicy())
    20
    >>> moves_left(moved(ScalingHistory(), now, 100), now + timedelta(minutes=60), ScalingPolicy())
    120
    """
    return max(policy.moves_per_hour - sum(n for at, n in history.moves if at > now - HOUR), 0)


def in_grace(history: ScalingHistory, now: datetime, grace: timedelta) -> bool:
    """Whether a change is so young that rates measured meanwhile say little about demand or capacity.

    A group that rebalances consumes nothing for a while, which looks like low throughput; it is not.

    Examples
    --------
    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 5, tzinfo=UTC)
    >>> in_grace(changed(ScalingHistory(), now, 2, 3), now + timedelta(seconds=30), timedelta(seconds=60))
    True
    """
    return any(now < c.at + grace for c in history.changes)


def _remember(history: ScalingHistory, wish: Wish, dwell: timedelta) -> ScalingHistory:
    edge = wish.at - dwell
    wishes = history.wishes
    if wishes and wish.at <= wishes[-1].at:  # a clock that went back: what is not yet past vouches for nothing
        wishes = tuple(w for w in wishes if w.at < wish.at)
    first = 0
    while first + 1 < len(wishes) and wishes[first + 1].at <= edge:
        first += 1
    changes = tuple(c for c in history.changes if c.at > wish.at - DAY)
    return ScalingHistory((*wishes[first:], wish), changes, history.moves)


def _highest_wish(history: ScalingHistory, now: datetime, dwell: timedelta) -> int | None:
    """Return the highest wish within the dwell; None while it is not covered, or hidden by an outage of the planner."""
    wishes = history.wishes
    if not dwell:
        return wishes[-1].replicas
    if wishes[0].at > now - dwell:
        return None
    longest = max(dwell / 2, LONGEST_GAP)
    if any(b.at - a.at > longest for a, b in pairwise(wishes)):
        return None
    return max(w.replicas for w in wishes)


def _over_budget(policy: ScalingPolicy, what: str) -> str:
    return f"{policy.rescales_per_day} changes a day are used up; {what}"


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
