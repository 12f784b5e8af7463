"""A topic of keys in the simulator: Zipf over keys, a hottest key that drifts, and lanes as the planner decides them.

The real planning (`balancer.splits`) and the real table steps run at each look; the switch itself is taken as done
within the minute, as it is on real brokers. What comes out is an arrival trace with one queue a partition, in which
lanes begin and end to receive at the instants decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from balancer.routing import protocol
from balancer.routing.hashing import crc32
from balancer.routing.table import Fence, Kind, SlotTable
from balancer.simulator.arrivals import ArrivalTrace
from balancer.splits import PlannedSplit, SplitPolicy, due, plan_splits

LOOK = timedelta(minutes=15)
AHEAD_STEPS = 12
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class KeyedTopic:
    """Which keys the records of a topic have.

    Parameters
    ----------
    partitions
        Of the topic at adoption.
    keys
        How many there are.
    exponent
        Of Zipf's law over them.
    drift
        After so long another key is the hottest, and the ranks behind it have moved on alike; in between they fade.
    seed
        Which key has which rank.

    Examples
    --------
    >>> topic = KeyedTopic(4, keys=100)
    >>> shares = topic.slot_shares(0.0)
    >>> round(float(shares.sum()), 6), bool(shares.max() > 0.15)
    (1.0, True)
    """

    partitions: int
    keys: int = 2000
    exponent: float = 1.1
    drift: timedelta = timedelta(hours=6)
    seed: int = 0

    def table(self) -> SlotTable:
        """Return the first table."""
        return protocol.adopt("simulated", "simulated", self.partitions, "crc32", ["simulated"])

    def slot_shares(self, seconds: float) -> NDArray[np.float64]:
        """Return each slot's share of the records, ``seconds`` after the start of the trace."""
        turn, faded = divmod(seconds / self.drift.total_seconds(), 1.0)
        return (1 - faded) * _ranked(self, int(turn)) + faded * _ranked(self, int(turn) + 1)


@lru_cache(maxsize=8)
def _slots_by_rank(topic: KeyedTopic) -> NDArray[np.int64]:
    order = np.random.default_rng(topic.seed).permutation(topic.keys)
    slots = topic.table().slots
    return np.array([crc32(b"key-%d" % key) % slots for key in order], dtype=np.int64)


@lru_cache(maxsize=64)
def _ranked(topic: KeyedTopic, turn: int) -> NDArray[np.float64]:
    weights = 1.0 / np.arange(1, topic.keys + 1, dtype=float) ** topic.exponent
    slots = np.roll(_slots_by_rank(topic), -turn)
    return np.bincount(slots, weights=weights / weights.sum(), minlength=topic.table().slots).astype(np.float64)


@dataclass(frozen=True, slots=True)
class LaneChange:
    """A split or merge in the simulation."""

    at: datetime
    kind: str
    partition: int
    lanes: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRun:
    """The arrivals of a keyed topic without and with splitting, and what was done or refused."""

    unsplit: ArrivalTrace
    split: ArrivalTrace
    changes: tuple[LaneChange, ...]
    refused: tuple[str, ...]


def run_keyed(
    total: ArrivalTrace,
    topic: KeyedTopic,
    capacity: float,
    policy: SplitPolicy,
    start: datetime,
    end: datetime,
) -> KeyedRun:
    """Spread a topic's arrivals over its partitions by key, splitting and merging from ``start`` to ``end``.

    Parameters
    ----------
    total
        One queue: the topic's arrivals.
    topic
        Its keys.
    capacity
        Records/s of one member.
    policy
        When to split and merge; ``max_partitions`` bounds the queues.
    start, end
        Only in between lanes are decided; each look knows what lies before it.

    Raises
    ------
    ValueError
        If the trace has more than one queue.
    """
    if total.queues != 1:
        raise ValueError(f"the trace has {total.queues} partitions; --keys spreads a single series")
    counts, step_s = total.counts[0], total.step_s
    per_look = max(1, round(LOOK.total_seconds() / step_s))
    table = topic.table()
    most = max(topic.partitions, policy.max_partitions or topic.partitions)
    split, unsplit = np.zeros((most, counts.size)), np.zeros((topic.partitions, counts.size))
    there = topic.partitions
    home = _homes(table)
    changes: list[LaneChange] = []
    refused: dict[str, None] = {}
    changed: dict[int, datetime] = {}
    now_map = home
    for first in range(0, counts.size, per_look):
        now = total.start + timedelta(seconds=first * step_s)
        if start <= now < end and first:
            rates = _ahead(counts, step_s, first, per_look)
            shares = topic.slot_shares(max(0.0, (first - per_look) * step_s))  # what was sampled lately
            loads = np.array([[shares[now_map == p].sum()] for p in range(there)]) * rates[None, :]
            planned = plan_splits(table, loads, now, LOOK, capacity, policy, now, shares=shares, changed=changed)
            refused.update(dict.fromkeys(f"{s.reason}: {s.refused}" for s in planned if s.refused))
            for one in due(planned, now):
                table, there = _apply(table, one, there)
                changed[one.partition % topic.partitions] = now
                changes.append(LaneChange(now, one.kind, one.partition, one.lanes, one.reason))
                now_map = _homes(table)
        shares = topic.slot_shares((first + per_look / 2) * step_s)
        part = slice(first, first + per_look)
        unsplit[:, part] = np.bincount(home, weights=shares, minlength=topic.partitions)[:, None] * counts[part]
        split[:, part] = np.bincount(now_map, weights=shares, minlength=most)[:, None] * counts[part]
    used = max(there, topic.partitions)
    made = replace(total, counts=unsplit, partitioned=True)
    return KeyedRun(made, replace(total, counts=split[:used], partitioned=True), tuple(changes), tuple(refused))


def alone_p99_s(trace: ArrivalTrace, capacity: float, start: datetime, end: datetime) -> float:
    """Return the p99 latency if every partition had a member alone: what no assignment can better.

    Each partition is one fluid queue served at ``capacity``; latency is what an arrival finds before it.

    Examples
    --------
    >>> from datetime import UTC
    >>> begin = datetime(2026, 1, 5, tzinfo=UTC)
    >>> trace = ArrivalTrace(begin, 60, np.array([[6000.0] * 10]), True)
    >>> alone_p99_s(trace, 100.0, begin, trace.end), alone_p99_s(trace, 50.0, begin, trace.end)
    (0.0, 600.0)
    """
    first, last = (int((at - trace.start).total_seconds() / trace.step_s) for at in (start, end))
    backlog = np.zeros(trace.queues)
    waits, weights = [], []
    for step in range(first, min(last, trace.counts.shape[1])):
        backlog = np.maximum(0.0, backlog + trace.counts[:, step] - capacity * trace.step_s)
        waits.append(backlog / capacity)
        weights.append(trace.counts[:, step])
    wait, weight = np.concatenate(waits), np.concatenate(weights)
    order = np.argsort(wait)
    share = np.cumsum(weight[order])
    return float(wait[order][np.searchsorted(share, 0.99 * share[-1])]) if share[-1] > 0 else 0.0


def _homes(table: SlotTable) -> NDArray[np.int64]:
    return np.array([table.partition_of_slot(slot) for slot in range(table.slots)], dtype=np.int64)


def _ahead(counts: NDArray[np.float64], step_s: float, first: int, per_look: int) -> NDArray[np.float64]:
    """Return the topic's rate for the next looks: a day ago at that hour, at today's level; else the last rate."""
    day = round(DAY.total_seconds() / step_s)
    last = counts[max(0, first - per_look) : first].sum() / (per_look * step_s)
    if first < day + per_look:
        return np.full(AHEAD_STEPS, last)
    before = counts[first - day - per_look : first - day].sum() / (per_look * step_s)
    level = min(2.0, max(0.5, last / before)) if before > 0 else 1.0
    rows = counts[first - day : first - day + AHEAD_STEPS * per_look]
    whole = rows[: rows.size // per_look * per_look].reshape(-1, per_look).sum(axis=1) / (per_look * step_s)
    ahead = np.full(AHEAD_STEPS, last)
    ahead[: whole.size] = np.maximum(whole * level, 0.0)
    return ahead


def _apply(table: SlotTable, planned: PlannedSplit, there: int) -> tuple[SlotTable, int]:
    """Carry a plan out at once, by the real steps of the protocol; return the table and the number of partitions."""
    if planned.kind == "merge":
        for lane in table.lanes_of(planned.partition):
            table = _through(table, Kind.MERGE, table.slots_of(lane), lane, planned.partition)
        return table, there
    in_use = set(table.moved.values())
    free = [p for p in range(table.partitions, there) if p not in in_use]
    targets: Sequence[int] = [*free, *range(there, there + max(0, len(planned.placement) - len(free)))]
    for slots, target in zip(planned.placement, targets, strict=False):
        table = _through(table, Kind.SPLIT, slots, planned.partition, target)
    return table, max(there, 1 + max(targets[: len(planned.placement)]))


def _through(table: SlotTable, kind: Kind, slots: Sequence[int], source: int, target: int) -> SlotTable:
    table = protocol.prepare(table, kind, slots, source, target)
    number, group = table.epoch, table.groups[0]
    table = protocol.fence(protocol.stop(table, number), number, Fence(0, 0, 0, 0))
    if kind is Kind.MERGE:
        table = protocol.start(protocol.drained(table, number, group), number)
    else:
        table = protocol.drained(protocol.start(table, number), number, group)
        table = protocol.open_(table, number, group)
    return replace(protocol.done(table, number), kept=())
