"""When more members no longer bring more throughput: stop the climb, step back, and say that downstream is the bound.

Only throughput under a backlog says what members can do: a group that has caught up consumes what arrives, however
many members it has. So levels are compared over saturated samples alone, and the gain that is expected of a step
follows from the members that really worked, not from those that were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from balancer.group import GroupSnapshot

LEAST_GAIN = 0.25
"""A step that brings less than this share of the throughput it should have brought is in vain."""

LEAST_SAMPLES = 4
"""Saturated samples of a level before it is compared."""

LEAST_BEFORE = 1
"""The same before a step: an urgent climb waits for no sample, but its lead time shows what was before it."""

FIRST_RETRY = timedelta(minutes=30)
"""A limit is tried again after this time, then after twice as long, and so on."""

LONGEST_RETRY = timedelta(hours=6)

SPARE_S = 10.0
"""At least so many seconds of work must wait at both ends of a minute for its throughput to be what members can do."""

NEARLY_ALL = 0.95
"""A partition that takes this share of one member's capacity is as fast as it can be."""


@dataclass(frozen=True, slots=True)
class ThroughputSample:
    """What a group achieved over one interval.

    Parameters
    ----------
    at
        End of the interval, aware.
    working
        Members that worked all through it.
    rate
        Records/s by which committed offsets advanced.
    saturated
        A backlog was there all through it, so that the rate is what the members can do.
    settled
        No start, stop or rebalance within it.
    partition_bound
        The busiest partition is at one member's capacity: more members could not have helped anyhow.
    """

    at: datetime
    working: int
    rate: float
    saturated: bool
    settled: bool = True
    partition_bound: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """Mean saturated throughput with one number of members."""

    working: int
    rate: float
    samples: int


@dataclass(frozen=True, slots=True)
class DownstreamState:
    """What is known about the climb.

    Parameters
    ----------
    levels
        The level before the last step, and the present one.
    limit
        Members beyond which throughput did not grow; None while no limit is known.
    since
        When the limit was found.
    retry_at
        From when on the climb may be tried again.
    retry_after
        How long the next wait will be.
    """

    levels: tuple[Level, ...] = ()
    limit: int | None = None
    since: datetime | None = None
    retry_at: datetime | None = None
    retry_after: timedelta = FIRST_RETRY

    def to_json(self) -> dict[str, Any]:
        """Return what a plan store keeps."""
        return {
            "levels": [[level.working, level.rate, level.samples] for level in self.levels],
            "limit": self.limit,
            "since": self.since.isoformat() if self.since else None,
            "retry_at": self.retry_at.isoformat() if self.retry_at else None,
            "retry_after_s": self.retry_after.total_seconds(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> DownstreamState:
        """Read what :meth:`to_json` wrote.

        Examples
        --------
        >>> DownstreamState.from_json(DownstreamState((Level(2, 9.5, 4),)).to_json()).levels
        (Level(working=2, rate=9.5, samples=4),)
        """
        if not value:
            return cls()
        since, retry_at = value.get("since"), value.get("retry_at")
        return cls(
            tuple(Level(int(n), float(rate), int(samples)) for n, rate, samples in value.get("levels", ())),
            value.get("limit"),
            datetime.fromisoformat(since) if since else None,
            datetime.fromisoformat(retry_at) if retry_at else None,
            timedelta(seconds=float(value.get("retry_after_s", FIRST_RETRY.total_seconds()))),
        )


def sample_of(
    snapshot: GroupSnapshot,
    lag_before: int | None,
    working_before: int | None,
    capacity: float,
    *,
    backlog_s: float,
    is_settled: bool,
) -> ThroughputSample | None:
    """Return what a group achieved in its last minute, as its snapshot shows it; None where that is not known.

    Parameters
    ----------
    snapshot
        With the rates of the last complete minute.
    lag_before
        Records that waited at the minute's beginning; None if unknown.
    working_before
        Members that worked then; None if unknown. Those that are requested and do not work yet do not count.
    capacity
        Records/s of one member: a partition that takes nearly all of it is the bound by itself.
    backlog_s
        Seconds of work that a backlog is. What is in flight between two commits waits as well, however idle the
        members are (a client that commits every five seconds, a job with its checkpoints): taken for a backlog, it
        makes each step up look vain, since the group consumes what arrives.
    is_settled
        No change was requested for long enough; what counts where members cannot be seen.
    """
    states = snapshot.partitions.values()
    rates = [p.consumption_rate for p in states if p.consumption_rate is not None]
    _, covered = snapshot.lag
    if lag_before is None or not rates or len(rates) < len(states) or covered < 1:
        return None
    working = snapshot.working if snapshot.members else snapshot.replicas or 0
    rate = sum(rates)
    busiest = max(p.consumption_rate or 0.0 for p in states)
    return ThroughputSample(
        at=snapshot.at,
        working=working,
        rate=rate,
        saturated=min(snapshot.backlog, lag_before) >= max(rate * max(SPARE_S, backlog_s), 1.0),
        settled=working == working_before if snapshot.members else is_settled,
        partition_bound=len(states) > 1 and busiest >= NEARLY_ALL * capacity,
    )


def observe(state: DownstreamState, sample: ThroughputSample) -> DownstreamState:
    """Take one sample in; find the limit when the last step up was in vain, and forget it when it no longer holds.

    Parameters
    ----------
    state
        Of earlier samples.
    sample
        The newest one.

    Examples
    --------
    Four members instead of two, and no record more:

    >>> from datetime import UTC
    >>> at, state = datetime(2026, 1, 5, tzinfo=UTC), DownstreamState()
    >>> for minute in range(8):
    ...     members = 2 if minute < 4 else 4
    ...     state = observe(state, ThroughputSample(at + timedelta(minutes=minute), members, 100.0, saturated=True))
    >>> state.limit
    2
    """
    if not sample.settled or sample.working < 1:
        return state
    if not sample.saturated:
        return _caught_up(state, sample)
    if sample.partition_bound:
        return replace(state, levels=())
    levels = _take(state.levels, sample)
    state = replace(state, levels=levels)
    if len(levels) < 2:
        return state
    before, now = levels
    if before.samples < LEAST_BEFORE or now.samples < LEAST_SAMPLES:
        return state
    if now.working <= before.working:
        return state
    gained = gain(before, now)
    if gained >= LEAST_GAIN:
        if state.limit is not None and now.working > state.limit:  # the retry has paid: downstream is faster now
            return DownstreamState(levels)
        return state
    return DownstreamState(
        (before,),
        before.working,
        sample.at,
        sample.at + state.retry_after,
        min(2 * state.retry_after, LONGEST_RETRY),
    )


def gain(before: Level, after: Level) -> float:
    """Throughput that a step brought, over what it should have brought.

    Examples
    --------
    >>> gain(Level(2, 100.0, 4), Level(4, 150.0, 4))
    0.5
    """
    expected = before.rate * (after.working / before.working - 1)
    return (after.rate - before.rate) / expected if expected > 0 else 1.0


def ceiling(state: DownstreamState, now: datetime) -> int | None:
    """How many members make sense at most; None when nothing is known against more.

    Examples
    --------
    >>> ceiling(DownstreamState(), datetime.max) is None
    True
    """
    if state.limit is None or state.retry_at is None or now >= state.retry_at:
        return None
    return state.limit


def reason(state: DownstreamState) -> str | None:
    """Say why the climb has stopped, in a line."""
    if state.limit is None or state.since is None:
        return None
    return (
        f"more than {state.limit} members brought no more throughput at {state.since:%H:%M} UTC: "
        "downstream is the bound, look at what the handler writes to or calls"
    )


def _take(levels: tuple[Level, ...], sample: ThroughputSample) -> tuple[Level, ...]:
    if levels and levels[-1].working == sample.working:
        last = levels[-1]
        weight = min(last.samples + 1, 10)  # the recent past counts: capacity drifts
        mean = last.rate + (sample.rate - last.rate) / weight
        return (*levels[:-1], Level(last.working, mean, last.samples + 1))
    kept = levels[-1:] if levels and levels[-1].samples >= LEAST_BEFORE else levels[:1]
    return (*kept, Level(sample.working, sample.rate, 1))


def _caught_up(state: DownstreamState, sample: ThroughputSample) -> DownstreamState:
    """A group that has caught up with more members than the limit, or long after it, is not bound any more."""
    if state.limit is not None and state.retry_at is not None and sample.at >= state.retry_at + state.retry_after:
        return DownstreamState()
    return state
