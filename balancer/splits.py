"""When a partition is split or merged, into how many lanes, and which slots move: (table, loads, policy, now) → plan.

Pure. A split is planned only for what no assignment can cure (a partition hotter than a member), ahead of the hour at
which it saturates, with the fewest slot moves that bring every lane under the limit. What must not be split is refused
with the reason and with what would help.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.errors import PolicyRefused
from balancer.hotspots import when
from balancer.plan import Proposal
from balancer.routing.table import SlotTable
from balancer.slot_loads import place_slots, slot_loads


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """How eagerly partitions are split and merged; shares are of one member's capacity."""

    limit: float = 0.8
    """A lane is planned to take no more than this share: the rest is for what the forecast does not see."""
    merge_below: float = 0.5
    """A parent and its lanes together must stay below this share for a merge: well below ``limit``, so that a small
    wave does not split again."""
    merge_ahead: timedelta = timedelta(hours=2)
    """For so long the forecast must stay low before a merge."""
    dwell: timedelta = timedelta(minutes=30)
    """Between changes of the same parent."""
    lead: timedelta = timedelta(minutes=15)
    """A split is done this long before the load passes ``limit``: it must drain before it counts."""
    max_partitions: int | None = None
    """Of the topic; None: it never grows."""

    def __post_init__(self) -> None:
        if not 0 < self.merge_below < self.limit <= 1:
            raise PolicyRefused(
                f"merge_below={self.merge_below} and limit={self.limit} must be 0 < merge_below < limit <= 1"
            )


@dataclass(frozen=True, slots=True)
class Brokers:
    """What is known of the brokers; None is "not readable", which vetoes nothing."""

    partitions_left: int | None = None
    """How many more partitions the cluster may carry, by its own limits and the operator's."""
    under_replicated: int | None = None
    offline: int | None = None

    def veto(self) -> str | None:
        """Return why no partition should be made now."""
        if self.offline:
            return f"{self.offline} partitions of the cluster are offline"
        if self.under_replicated:
            return f"{self.under_replicated} partitions of the cluster are under-replicated"
        return None


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One split or merge: where, when, which slots to which lane, at which price, and why.

    ``placement`` has one tuple of slots for each new lane. ``price`` and what else would do, with its price, are in
    member-hours over the horizon.
    """

    kind: str
    partition: int
    at: datetime | None
    reason: str
    placement: tuple[tuple[int, ...], ...] = ()
    refused: str | None = None
    price: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """Partitions that the parent becomes, itself included."""
        return 1 + len(self.placement)


def plan_splits(
    table: SlotTable,
    rates: NDArray[np.float64],
    origin: datetime,
    step: timedelta,
    capacity: float,
    policy: SplitPolicy,
    now: datetime,
    *,
    shares: NDArray[np.float64] | None = None,
    samples: float | None = None,
    hot_keys: Mapping[int, tuple[str, float]] | None = None,
    changed: Mapping[int, datetime] | None = None,
    brokers: Brokers | None = None,
    busy: Mapping[int, float] | None = None,
    cpu_limit: float | None = None,
    idle_cpu: float = 0.0,
    arriving: Mapping[int, float] | None = None,
    faster_capacity: float | None = None,
    timezone: str = "UTC",
) -> tuple[PlannedSplit, ...]:
    """Plan the splits and merges of one topic, the most urgent first.

    Parameters
    ----------
    table
        The topic's slot table.
    rates
        Shape (partitions, steps): forecast records/s, at the quantile that is planned by; one row a partition.
    origin, step
        Begin of the first step, aware; length of a step.
    capacity
        Records/s of one member.
    policy
        Limits.
    now
        Aware.
    shares
        Each slot's share of the topic's records (see :class:`balancer.key_sketch.KeySketch`); None: not sampled.
    samples
        How many records those shares rest on; None: many.
    hot_keys
        Slot → (key, records/s at the peak) of the heaviest key in it.
    changed
        Parent → when it was last split or merged.
    brokers
        Budget and vital signs.
    busy, cpu_limit
        Partition → share of a core that its owner uses, and the limit: an owner above the limit counts as saturated
        now, whatever the forecast says.
    idle_cpu
        Share of a core that a worker without work uses: it is no reason to keep lanes apart.
    arriving
        Partition → records/s that arrive now; above ``policy.limit`` of a member, and above what the forecast says of
        now, a split is needed at once: the forecast missed it.
    faster_capacity
        Records/s of a faster kind of member, if there is one; one that is not faster is none.
    timezone
        Zone in which reasons name hours.

    Raises
    ------
    ValueError
        If the capacity is not positive.
    """
    if not 0 < capacity < np.inf:
        raise ValueError(f"capacity={capacity} must be a positive number of records/s")
    shares = np.zeros(table.slots) if shares is None else shares
    here = _Outlook(table, rates, origin, step, capacity, policy, now, changed or {})
    hot = _Hot(shares, samples, hot_keys or {}, busy or {}, cpu_limit, idle_cpu, arriving or {})
    found = [*_splits(here, hot, brokers or Brokers(), faster_capacity, timezone), *_merges(here, hot)]
    return tuple(sorted(found, key=lambda s: (s.at or now, s.partition)))


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What a plan is made from; see :func:`plan_splits`."""

    table: SlotTable
    rates: NDArray[np.float64]
    origin: datetime
    step: timedelta
    capacity: float
    policy: SplitPolicy
    now: datetime
    changed: Mapping[int, datetime]

    def rests(self, parent: int) -> bool:
        """Whether the last change of a parent is too recent."""
        since = self.changed.get(parent)
        return since is not None and self.now - since < self.policy.dwell


@dataclass(frozen=True, slots=True)
class _Hot:
    """What is hot beside the forecast."""

    shares: NDArray[np.float64]
    samples: float | None
    keys: Mapping[int, tuple[str, float]]
    busy: Mapping[int, float]
    cpu_limit: float | None
    idle_cpu: float
    arriving: Mapping[int, float]

    def together(self, partitions: Iterable[int]) -> float:
        """Return the share of a core that the work of several partitions takes, as far as their owners tell."""
        return sum(max(0.0, self.busy[p] - self.idle_cpu) for p in partitions if p in self.busy)


def _splits(
    here: _Outlook, hot: _Hot, brokers: Brokers, faster_capacity: float | None, timezone: str
) -> list[PlannedSplit]:
    table, rates, capacity, policy, now = here.table, here.rates, here.capacity, here.policy, here.now
    room = policy.limit * capacity
    left = None if policy.max_partitions is None else policy.max_partitions - rates.shape[0]
    in_use = set(table.moved.values())
    spare = sum(p >= table.partitions and p not in in_use for p in range(rates.shape[0]))
    found = []
    hours = rates.shape[1] * here.step.total_seconds() / 3600
    for partition in range(rates.shape[0]):
        peak = float(rates[partition].max(initial=0.0))
        over = rates[partition] > capacity
        trigger = _trigger(here, hot, partition, over, timezone)
        if trigger is None:
            continue
        needed_at, what, least = trigger
        peak = max(peak, least)
        slots = table.slots_of(partition)
        if not slots:
            continue
        loads = slot_loads(table, partition, peak, hot.shares, hot.samples)
        placement, too_hot = place_slots(slots, loads, room)
        others = _others(peak, capacity, hours, faster_capacity)
        start = needed_at - policy.lead
        refused = None
        if too_hot is not None:
            key, rate = hot.keys.get(too_hot, (None, float(loads[slots.index(too_hot)])))
            who = f"key {key}" if key is not None else f"slot {too_hot}"
            refused = (
                f"{who} alone takes {rate / capacity:.0%} of a member; a split cannot divide a key. Produce "
                "with the finer key that order is needed by (customer and account, say), or compute in parallel and "
                "apply its effects in sequence by one owner"
            )
        elif not placement:
            continue
        else:
            refused = _forbidden(here, partition, len(placement), spare, left, brokers)
        if refused is None and left is not None:
            new = max(0, len(placement) - spare)
            spare, left = spare - (len(placement) - new), left - new
        cores = math.ceil(peak / room) - 1
        reason = f"{what} (peak {peak / capacity:.0%}): split into {1 + len(placement)} lanes, {_count(placement)} move"
        found.append(
            PlannedSplit(
                "split", partition, max(start, now), reason if refused is None else what, placement, refused,
                price=round(cores * float(over.mean() or 1 / max(over.size, 1)) * hours, 3), others=others,
            )
        )  # fmt: skip
    return found


def _trigger(
    here: _Outlook, hot: _Hot, partition: int, over: NDArray[np.bool_], timezone: str
) -> tuple[datetime, str, float] | None:
    """Return from when on a split is needed, why, and records/s to plan for at least; None if nothing asks for one.

    By the forecast it is needed when the load passes ``limit`` on its way beyond a member: the peak itself comes later.
    What is measured counts as soon as it passes ``limit`` and the forecast did not say so.
    """
    capacity, limit, now = here.capacity, here.policy.limit, here.now
    name, rates = f"{here.table.topic}:{partition}", here.rates[partition]
    if over.any():
        full = int(over.argmax())
        calm = np.flatnonzero(rates[:full] <= limit * capacity)
        first = int(calm[-1]) + 1 if calm.size else 0
        at = here.origin + here.step * full
        return here.origin + here.step * first, f"{name} passes one member's capacity {when(at, now, timezone)}", 0.0
    cpu = hot.busy.get(partition, 0.0)
    if hot.cpu_limit is not None and cpu > hot.cpu_limit:
        what = f"the owner of {name} uses {cpu:.0%} of a core (limit {hot.cpu_limit:.0%})"
        return now, what, capacity * cpu / (hot.cpu_limit or 1.0)
    arrives = hot.arriving.get(partition, 0.0)
    step = int((now - here.origin) / here.step) if now >= here.origin else 0
    said = float(rates[min(step, rates.size - 1)]) if rates.size else 0.0
    if arrives > limit * capacity and arrives > said:
        what = (
            f"{name} takes {arrives / capacity:.0%} of a member (limit {limit:.0%}), "
            f"more than the forecast's {said / capacity:.0%}"
        )
        return now, what, arrives
    return None


def _forbidden(
    here: _Outlook, partition: int, lanes: int, spare: int, left: int | None, brokers: Brokers
) -> str | None:
    table, policy = here.table, here.policy
    parent = partition if partition < table.partitions else table.slots_of(partition)[0] % table.partitions
    if here.rests(parent):
        ago = (here.now - here.changed[parent]).total_seconds() / 60
        return f"it was changed {ago:.0f} min ago; the dwell is {policy.dwell}"
    if any(partition in (t.source, t.target) for t in table.transitions):
        return "a transition of it is under way"
    new = max(0, lanes - spare)
    if not new:
        return None
    if left is None:
        return "the topic may not grow: set max_partitions"
    if new > left:
        return f"max_partitions={policy.max_partitions} leaves {max(left, 0)} new partitions, {new} are needed"
    if brokers.partitions_left is not None and new > brokers.partitions_left:
        return f"the cluster has room for {brokers.partitions_left} more partitions, {new} are needed"
    return brokers.veto()


def _others(peak: float, capacity: float, hours: float, faster_capacity: float | None) -> dict[str, float]:
    """Return what else would do, with its price in member-hours: a member that is fast enough, all the time."""
    others: dict[str, float] = {}
    if peak <= capacity:
        others["isolate"] = round(hours, 3)
    if faster_capacity is not None and faster_capacity > capacity and faster_capacity >= peak:
        others["faster_member"] = round((faster_capacity / capacity - 1) * hours, 3)
    return others


def _merges(here: _Outlook, hot: _Hot) -> list[PlannedSplit]:
    """Return the parents whose lanes are needed no more: all together low for as long as the policy looks ahead.

    What CPU has split stays split while the work of all of it is more than one owner should do.
    """
    table, rates, capacity, policy = here.table, here.rates, here.capacity, here.policy
    found = []
    steps = max(1, math.ceil(policy.merge_ahead / here.step))
    first = max(0, int((here.now - here.origin) / here.step))
    for parent in range(table.partitions):
        lanes = table.lanes_of(parent)
        if not lanes or any(lane >= rates.shape[0] for lane in lanes):
            continue
        ahead = rates[[parent, *lanes], first : first + steps].sum(axis=0)
        if ahead.size < steps or ahead.max() > policy.merge_below * capacity:
            continue
        if here.rests(parent):
            continue
        used = hot.together((parent, *lanes))
        if hot.cpu_limit is not None and used > hot.cpu_limit * policy.merge_below / policy.limit:
            continue
        if any({t.source, t.target} & {parent, *lanes} for t in table.transitions):
            continue
        reason = (
            f"{table.topic}:{parent} and its {len(lanes)} lanes together take at most {ahead.max() / capacity:.0%} "
            f"of a member for the next {policy.merge_ahead}: merge"
        )
        found.append(PlannedSplit("merge", parent, here.now, reason))
    return found


def proposals_of(topic: str, planned: Sequence[PlannedSplit], *, by_hand: bool = False) -> tuple[Proposal, ...]:
    """Return what people are shown: what would be done, or why it is not, with what else would help.

    ``by_hand``: nobody does it by itself, so the command that does is named.

    Examples
    --------
    >>> refused = PlannedSplit("split", 3, None, "orders:3 is hot", refused="the topic may not grow")
    >>> proposals_of("orders", [refused])[0].text
    'orders:3 is hot; not split: the topic may not grow'
    >>> proposals_of("orders", [PlannedSplit("merge", 3, None, "orders:3 is calm: merge")], by_hand=True)[0].text
    'orders:3 is calm: merge; to accept: headway merge --topic orders --partition 3'
    """
    rows = []
    for s in planned:
        text = s.reason if s.refused is None else f"{s.reason}; not {s.kind}: {s.refused}"
        if s.others:
            text += "".join(f"; {kind} would cost {price:g} member-hours" for kind, price in s.others.items())
            text += f", the split {s.price:g}" if s.refused is None else ""
        if by_hand and s.refused is None:
            lanes = f" --lanes {s.lanes}" if s.kind == "split" else ""
            text += f"; to accept: headway {s.kind} --topic {topic} --partition {s.partition}{lanes}"
        rows.append(Proposal("key" if s.refused and not s.placement else s.kind, f"{topic}:{s.partition}", text, s.at))
    return tuple(rows)


def due(planned: Sequence[PlannedSplit], now: datetime) -> tuple[PlannedSplit, ...]:
    """Return what is to be done now: not refused, its hour come, and cheaper than whatever else would do."""
    return tuple(
        s
        for s in planned
        if s.refused is None and (s.at is None or s.at <= now) and all(s.price <= p for p in s.others.values())
    )


def _count(placement: Sequence[Sequence[int]]) -> str:
    moved = sum(map(len, placement))
    return f"{moved} slot{'s' if moved != 1 else ''}"
