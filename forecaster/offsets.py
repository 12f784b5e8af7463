"""Offsets → facts: counters read now and then become records per aligned step, and lag.

Log end offsets and committed offsets are counters. A *look* is one reading of them for every partition of one topic.
Between two looks at the same log (same topic id, same leader epoch, not backwards) the difference is the exact number
of offsets written; across anything else nothing is said. A boundary between steps is fixed by the look within
``tolerance`` of it, or between two looks that are at most ``max_gap`` apart, in proportion; the sum over steps is
therefore always a difference of two real readings. What no pair of looks covers stays missing.

Differences of end offsets count transaction markers and aborted records too: they are exact for plain topics, and an
upper bound for transactional or compacted ones (see :func:`forecaster.ingest.sampler.record_share`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.uint8]

NO_EPOCH = -1
"""Leader epoch of a source that does not tell; only ever compared."""


class Why(IntEnum):
    """Why a number is not known."""

    KNOWN = 0
    NOT_READ = 1
    FIRST_LOOK = 2
    TOPIC_RECREATED = 3
    LEADER_CHANGED = 4
    WENT_BACKWARDS = 5
    CLOCK_WENT_BACKWARDS = 6
    LOOKS_TOO_FAR_APART = 7
    NEVER_COMMITTED = 8
    TRIMMED_BEFORE_READ = 9

    @property
    def text(self) -> str:
        """Plain words for people."""
        return _TEXTS[self]


_TEXTS = {
    Why.KNOWN: "known",
    Why.NOT_READ: "the source gave no offset",
    Why.FIRST_LOOK: "first look; a rate needs two",
    Why.TOPIC_RECREATED: "the topic was deleted and made again",
    Why.LEADER_CHANGED: "the leader changed; the log may have been cut",
    Why.WENT_BACKWARDS: "the offset went backwards",
    Why.CLOCK_WENT_BACKWARDS: "the clock went backwards",
    Why.LOOKS_TOO_FAR_APART: "nobody looked for too long",
    Why.NEVER_COMMITTED: "the group never committed, and what its consumers do then is not configured",
    Why.TRIMMED_BEFORE_READ: "retention removed records before the group read them",
}


class Reset(IntEnum):
    """What consumers of a group without a commit do (``auto.offset.reset``); one explicit rule each."""

    UNKNOWN = 0
    """Lag is not known, except on an empty partition, where it is 0."""
    EARLIEST = 1
    """Everything kept is still to be read."""
    LATEST = 2
    """Nothing that is there now will be read: lag 0."""


@dataclass(frozen=True, slots=True)
class CountingPolicy:
    """How looks are turned into steps.

    Raises
    ------
    ValueError
        If the step is not positive, or a time negative, or the tolerance half a step or more.
    """

    step_s: int = 60
    """Length of a step, s."""

    tolerance_s: float = 1.0
    """A look this close to a boundary stands for it: reads take time, and timers are not exact."""

    max_gap_s: float = 90.0
    """Between two looks further apart nothing is interpolated; 0 interpolates nothing at all."""

    def __post_init__(self) -> None:
        if self.step_s <= 0:
            raise ValueError(f"step_s={self.step_s} must be positive")
        if not 0 <= self.tolerance_s < self.step_s / 2:
            raise ValueError(f"tolerance_s={self.tolerance_s} must be within [0, half a step)")
        if self.max_gap_s < 0:
            raise ValueError(f"max_gap_s={self.max_gap_s} must not be negative")

    @classmethod
    def for_step(cls, step_s: int) -> CountingPolicy:
        """Return the usual policy of a step: a tenth of it (at most 1 s) tolerated, gaps of one and a half bridged."""
        return cls(step_s, min(1.0, step_s / 10), 1.5 * step_s)


@dataclass(frozen=True, slots=True, eq=False)
class TopicLook:
    """One look at all partitions of one topic; arrays of shape (partitions,).

    Parameters
    ----------
    at_s
        When each end offset was read, seconds since 1970.
    start, end
        Log start and log end offsets.
    known
        Which partitions answered.
    epoch
        Leader epochs, :data:`NO_EPOCH` where not told.
    topic_id
        Identity of the topic, None where not told.
    committed
        Group → (offsets, known); read *before* the end offsets, so that a commit can never be ahead of the log.
    """

    at_s: Floats
    start: Ints
    end: Ints
    known: Mask
    epoch: Ints
    topic_id: str | None = None
    committed: Mapping[str, tuple[Ints, Mask]] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.end)

    def lag(self, group: str, reset: Reset = Reset.UNKNOWN) -> tuple[Ints, Mask, Codes]:
        """Return a group's lag in records, where it is known, and why not elsewhere.

        ``end - max(committed, start)``, never negative: what retention removed cannot be lagging, and a partition
        without records lags by nothing, commit or none.
        """
        offsets, committed = self.committed.get(group) or (np.zeros_like(self.end), np.zeros_like(self.known))
        behind = np.where(committed, self.end - np.maximum(offsets, self.start), self.end - self.start)
        if reset is Reset.LATEST:
            behind = np.where(committed, behind, 0)
        told = committed | (self.end == self.start) | (reset is not Reset.UNKNOWN)
        known = self.known & told
        why = np.where(self.known, Why.NEVER_COMMITTED, Why.NOT_READ)
        return np.where(known, np.maximum(behind, 0), 0), known, np.where(known, Why.KNOWN, why).astype(np.uint8)

    def ahead(self, group: str) -> Mask:
        """Return where the group's commit lies beyond the log's end: the log was cut or made anew under it."""
        offsets, committed = self.committed.get(group) or (np.zeros_like(self.end), np.zeros_like(self.known))
        return self.known & committed & (offsets > self.end)


@dataclass(frozen=True, slots=True, eq=False)
class StepCounts:
    """Counts of one step: records per partition, which are known, and why not (:class:`Why`)."""

    index: int
    values: Ints
    known: Mask
    why: Codes


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """What is remembered of a counter between looks; arrays of shape (partitions,).

    ``at_s``, ``value``, ``epoch``: the last look that answered. ``boundary`` is the last boundary (number of the step
    that begins there) with a ``boundary_value`` from the same log, where ``bounded``.
    """

    at_s: Floats
    value: Ints
    epoch: Ints
    seen: Mask
    boundary: Ints
    boundary_value: Ints
    bounded: Mask
    why: Codes
    topic_id: str | None = None

    @classmethod
    def fresh(cls, partitions: int, topic_id: str | None = None) -> Counter:
        """Return a counter that has seen nothing."""
        zeros = np.zeros(partitions, dtype=np.int64)
        no = np.zeros(partitions, dtype=np.bool_)
        why = np.full(partitions, Why.FIRST_LOOK, dtype=np.uint8)
        return cls(np.zeros(partitions), zeros, zeros - 1, no, zeros, zeros, no, why, topic_id)

    def grown(self, partitions: int, born_s: float | None = None) -> Counter:
        """Return the counter with room for more partitions.

        A partition added to a topic that is already watched begins at offset 0: with ``born_s``, the last instant at
        which it did not exist, everything in it counts as having arrived since.
        """
        more = partitions - len(self.value)
        if more <= 0:
            return self
        new = Counter.fresh(more, self.topic_id)
        if born_s is not None:
            edge = int(self.boundary[self.bounded].max()) if self.bounded.any() else None
            new = replace(
                new,
                at_s=np.full(more, born_s),
                seen=np.ones(more, dtype=np.bool_),
                boundary=np.full(more, edge or 0),
                bounded=np.full(more, edge is not None),
            )
        return Counter(
            at_s=np.concatenate([self.at_s, new.at_s]),
            value=np.concatenate([self.value, new.value]),
            epoch=np.concatenate([self.epoch, new.epoch]),
            seen=np.concatenate([self.seen, new.seen]),
            boundary=np.concatenate([self.boundary, new.boundary]),
            boundary_value=np.concatenate([self.boundary_value, new.boundary_value]),
            bounded=np.concatenate([self.bounded, new.bounded]),
            why=np.concatenate([self.why, new.why]),
            topic_id=self.topic_id,
        )


def advance(
    counter: Counter | None,
    at_s: Floats,
    value: Ints,
    known: Mask,
    policy: CountingPolicy,
    *,
    epoch: Ints | None = None,
    topic_id: str | None = None,
    cut: Mask | None = None,
) -> tuple[Counter, list[StepCounts]]:
    """Take one look at a counter; return what is remembered now, and the steps that it completed.

    Parameters
    ----------
    counter
        What was remembered, None at first.
    at_s, value, known
        Seconds since 1970, the counter, and whether it was read; shape (partitions,).
    policy
        Step, tolerance and gaps.
    epoch, topic_id
        Identity of the log, where told.
    cut
        Where the counter says nothing about records since the last look, for reasons outside of it.

    Returns
    -------
    tuple of Counter and list of StepCounts
        A step may be returned again with further partitions known, when some of them answered late; what was known
        before is not repeated.
    """
    if counter is None or (counter.topic_id and topic_id and counter.topic_id != topic_id):
        fresh = Counter.fresh(len(value), topic_id)
        if counter is not None:
            fresh.why[:] = Why.TOPIC_RECREATED
        counter = fresh
    counter = counter.grown(len(value))
    if len(counter.value) > len(value):  # fewer partitions than before, and no topic id that would say why
        pad = len(counter.value) - len(value)
        at_s, value, known = np.pad(at_s, (0, pad)), np.pad(value, (0, pad)), np.pad(known, (0, pad))
        epoch = None if epoch is None else np.pad(epoch, (0, pad), constant_values=NO_EPOCH)
        cut = None if cut is None else np.pad(cut, (0, pad))
    epoch = np.full(len(value), NO_EPOCH, dtype=np.int64) if epoch is None else epoch
    known = known & ~(counter.seen & (at_s == counter.at_s))  # the same look again says nothing new

    why = np.full(len(value), Why.KNOWN, dtype=np.uint8)
    why[counter.seen & (value < counter.value)] = Why.WENT_BACKWARDS
    why[counter.seen & (epoch != counter.epoch) & (epoch != NO_EPOCH) & (counter.epoch != NO_EPOCH)] = (
        Why.LEADER_CHANGED
    )
    if cut is not None:
        why[counter.seen & cut] = Why.TRIMMED_BEFORE_READ
    why[counter.seen & (at_s < counter.at_s)] = Why.CLOCK_WENT_BACKWARDS
    why = np.where(counter.seen, why, counter.why).astype(np.uint8)
    why[~known] = Why.NOT_READ
    goes_on = why == Why.KNOWN

    bounded = counter.bounded & (goes_on | ~known)
    boundary, boundary_value = counter.boundary.copy(), counter.boundary_value.copy()
    steps: list[StepCounts] = []
    for b in _boundaries(counter, at_s, known, goes_on, policy):
        at_b = float(b * policy.step_s)
        done = bounded & (boundary >= b)
        snapped = known & (np.abs(at_s - at_b) <= policy.tolerance_s)
        elapsed = np.where(goes_on, at_s - counter.at_s, 1.0)
        between = goes_on & (counter.at_s < at_b) & (at_b < at_s) & (elapsed <= policy.max_gap_s)
        share = np.clip((at_b - counter.at_s) / elapsed, 0.0, 1.0)
        part = np.floor(np.where(between, (value - counter.value) * share, 0.0)).astype(np.int64)
        now = np.where(snapped, value, counter.value + part)
        fixed = (snapped | between) & ~done
        counted = fixed & bounded & (boundary == b - 1)
        counts = np.where(counted, now - boundary_value, 0)
        apart = np.where(goes_on, np.uint8(Why.LOOKS_TOO_FAR_APART), why)
        steps.append(StepCounts(int(b) - 1, counts, counted, np.where(counted, np.uint8(Why.KNOWN), apart)))
        boundary, boundary_value = np.where(fixed, b, boundary), np.where(fixed, now, boundary_value)
        bounded = bounded | fixed
    after = Counter(
        at_s=np.where(known, at_s, counter.at_s),
        value=np.where(known, value, counter.value),
        epoch=np.where(known, epoch, counter.epoch),
        seen=counter.seen | known,
        boundary=boundary,
        boundary_value=boundary_value,
        bounded=bounded,
        why=np.where(known, np.uint8(Why.KNOWN), counter.why),
        topic_id=topic_id or counter.topic_id,
    )
    return after, steps


def _boundaries(counter: Counter, at_s: Floats, known: Mask, goes_on: Mask, policy: CountingPolicy) -> range:
    """Return the boundaries that this look may fix: those near it, and those since the last look within the gap."""
    if not known.any():
        return range(0)
    step, tolerance = policy.step_s, policy.tolerance_s
    last = int((at_s[known].max() + tolerance) // step)
    reach = at_s[known].min() - tolerance
    near = goes_on & (at_s - counter.at_s <= policy.max_gap_s)
    if near.any():
        reach = min(reach, float(counter.at_s[near].min()))
    first = int(-(-reach // step))
    return range(min(first, last), last + 1)


def total(values: Ints, known: Mask) -> tuple[int | None, float]:
    """Return the sum over the known, and the share of partitions that it covers; None when nothing is known.

    Examples
    --------
    >>> total(np.array([3, 0, 9]), np.array([True, True, False]))
    (3, 0.6666666666666666)
    """
    if not known.any():
        return None, 0.0
    return int(values[known].sum()), float(known.mean())


def counts_over(
    times_s: Floats, values: Ints, first_index: int, steps: int, policy: CountingPolicy
) -> tuple[Ints, Mask]:
    """Return the counts of many steps from many looks at one partition: :func:`advance` over a whole history at once.

    Parameters
    ----------
    times_s, values
        Looks, times rising; a value below the one before it is another log.
    first_index, steps
        Which steps are asked for.
    policy
        Step, tolerance and gaps.

    Returns
    -------
    tuple of arrays
        Records per step and which are known, shape (steps,).

    Examples
    --------
    >>> counts, known = counts_over(np.array([0.0, 60.0, 120.0]), np.array([5, 9, 2]), 0, 2, CountingPolicy(60, 1.0))
    >>> counts.tolist(), known.tolist()
    ([4, 0], [True, False])
    """
    if not len(times_s):
        return np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.bool_)
    log = np.concatenate([[0], np.cumsum(np.diff(values) < 0)])
    log_begin = np.searchsorted(log, np.arange(log[-1] + 1))
    at = np.arange(first_index, first_index + steps + 1, dtype=np.int64) * float(policy.step_s)
    first_near = np.searchsorted(times_s, at - policy.tolerance_s, side="left")
    last_near = np.searchsorted(times_s, at + policy.tolerance_s, side="right") - 1
    near = last_near >= first_near
    before = np.clip(np.searchsorted(times_s, at, side="left") - 1, 0, len(times_s) - 1)
    after = np.minimum(before + 1, len(times_s) - 1)
    elapsed = times_s[after] - times_s[before]
    between = (times_s[before] < at) & (at < times_s[after]) & (log[before] == log[after])
    between &= (elapsed <= policy.max_gap_s) & ~near
    share = np.clip((at - times_s[before]) / np.where(elapsed > 0, elapsed, 1.0), 0.0, 1.0)
    part = values[before] + np.floor((values[after] - values[before]) * share).astype(np.int64)

    # A boundary closes the step before it by the first look near it, and opens the next by the first of the last log.
    closing = np.minimum(first_near, len(times_s) - 1)
    opening = np.maximum(closing, log_begin[log[np.clip(last_near, 0, len(times_s) - 1)]])
    closes, opens = (np.where(near, values[i], part) for i in (closing, opening))
    closes_log, opens_log = (np.where(near, log[i], log[before]) for i in (closing, opening))
    fixed = near | between
    known: Mask = fixed[:-1] & fixed[1:] & (opens_log[:-1] == closes_log[1:])
    return np.where(known, closes[1:] - opens[:-1], 0), known
