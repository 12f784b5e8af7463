"""How slots move, one durable step at a time: (table, event) → next table. Pure.

::

    split   PREPARE → STOP → FENCE → START → DRAIN per group → OPEN per group → DONE
    merge   PREPARE → STOP → FENCE → DRAIN per group → START → DONE

Each step takes the next epoch; a step that was already taken returns the table as it is, so another planner resumes by
saying it again. Before START a transition can be aborted (nothing of its slots went to the target); after it, only
forward. What a step *requires of the world* (acks, fences, drained positions) is checked by whoever calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from balancer.routing.table import Fence, Kept, Kind, Phase, SlotTable, TableRefused, Transition


def adopt(topic: str, topic_id: str, partitions: int, hash_name: str, groups: Iterable[str]) -> SlotTable:
    """Return the first table of a topic: every key stays where the default partitioner puts it."""
    return SlotTable(topic, topic_id, 1, hash_name, partitions, groups=tuple(sorted(set(groups))))


def prepare(table: SlotTable, kind: Kind, slots: Iterable[int], source: int, target: int) -> SlotTable:
    """Open a transition.

    Raises
    ------
    TableRefused
        If a slot is not at the source, a slot or the gate partition is in another open transition, source and target
        are one, a split's target serves other slots, or a merge does not take all slots of its lane. One partition may
        be split into several lanes at a time: each has its own gate.
    """
    moving = tuple(sorted(set(slots)))
    if not moving or source == target:
        raise TableRefused("a transition needs slots, and two different partitions")
    if wrong := [s for s in moving if table.partition_of_slot(s) != source]:
        raise TableRefused(f"slot {wrong[0]} is at partition {table.partition_of_slot(wrong[0])}, not {source}")
    for other in table.transitions:
        if set(other.slots) & set(moving):
            raise TableRefused(f"transition {other.number} already moves some of these slots")
        fans_out = kind is other.kind is Kind.SPLIT and source == other.source and target != other.target
        if not fans_out and {other.source, other.target} & {source, target}:
            raise TableRefused(f"transition {other.number} already works on partition {source} or {target}")
    if kind is Kind.SPLIT and table.slots_of(target):
        raise TableRefused(f"partition {target} serves other slots; a split needs a fresh lane")
    if kind is Kind.MERGE and moving != table.slots_of(source):
        raise TableRefused(f"a merge takes all slots of its lane; partition {source} has others")
    epoch = table.epoch + 1
    transition = Transition(epoch, kind, moving, source, target)
    return replace(table, epoch=epoch, transitions=(*table.transitions, transition))


def stop(table: SlotTable, number: int) -> SlotTable:
    """Tell producers to hold the slots, end their transactions and acknowledge this epoch."""
    return _advance(table, number, {Phase.PREPARED}, Phase.STOPPING)


def fence(table: SlotTable, number: int, ends: Fence) -> SlotTable:
    """Fix F and G, once every producer acknowledged STOP or was fenced. A second call keeps the first ends."""
    return _advance(table, number, {Phase.STOPPING}, Phase.FENCED, fence=ends)


def start(table: SlotTable, number: int) -> SlotTable:
    """Send the slots to the target from here on: the new map. A merge must be drained in every group before.

    Raises
    ------
    TableRefused
        If a merge's lane still holds records that a group has not processed.
    """
    transition = _find(table, number)
    missing = sorted(set(table.groups) - set(transition.drained)) if transition.kind is Kind.MERGE else []
    if missing and transition.phase is Phase.FENCED:
        raise TableRefused(f"group {missing[0]} has not drained partition {transition.source} yet")
    moved = dict(table.moved)
    for slot in transition.slots:
        moved[slot] = transition.target
    home = {s: p for s, p in moved.items() if p != s % table.partitions}
    return _advance(table, number, {Phase.FENCED}, Phase.STARTED, moved=home)


def drained(table: SlotTable, number: int, group: str) -> SlotTable:
    """Note that a group has processed and committed the source up to F.

    Raises
    ------
    TableRefused
        If the group is not registered, or the transition is not at the point where it drains.
    """
    transition = _find(table, number)
    if group not in table.groups:
        raise TableRefused(f"group {group} is not registered for topic {table.topic}")
    if group in transition.drained:
        return table
    draining = Phase.STARTED if transition.kind is Kind.SPLIT else Phase.FENCED
    if transition.phase is not draining:
        raise TableRefused(f"transition {number} is {transition.phase}; groups drain while it is {draining}")
    return _replace(table, replace(transition, drained=tuple(sorted({*transition.drained, group}))))


def open_(table: SlotTable, number: int, group: str) -> SlotTable:
    """Let a group that has drained the source read the lane (splits).

    Raises
    ------
    TableRefused
        If it has not drained yet: opening would run records out of order.
    """
    transition = _find(table, number)
    if transition.kind is not Kind.SPLIT or group not in transition.drained:
        raise TableRefused(f"group {group} has not drained partition {transition.source}; its lane stays closed")
    if group in transition.opened:
        return table
    return _replace(table, replace(transition, opened=tuple(sorted({*transition.opened, group}))))


def done(table: SlotTable, number: int) -> SlotTable:
    """Close a transition that every group has passed, and keep its F for late starters.

    Raises
    ------
    TableRefused
        If a group has not passed it, or it has not started.
    """
    transition = table.transition(number)
    if transition is None and number <= table.epoch:
        return table
    transition = _find(table, number)
    passed = set(transition.opened if transition.kind is Kind.SPLIT else transition.drained)
    if transition.phase is not Phase.STARTED or set(table.groups) - passed:
        raise TableRefused(f"transition {number} is {transition.phase}, passed by {len(passed)} of {len(table.groups)}")
    assert transition.fence is not None
    kept = Kept(
        transition.slots, transition.source, transition.fence.source_end, transition.target, transition.fence.target_end
    )
    rest = tuple(t for t in table.transitions if t.number != number)
    return replace(table, epoch=table.epoch + 1, transitions=rest, kept=(*table.kept, kept))


def abort(table: SlotTable, number: int) -> SlotTable:
    """Give a transition up before START: the old map again, as the next epoch.

    Raises
    ------
    TableRefused
        If it has started: then only forward.
    """
    transition = table.transition(number)
    if transition is None and number <= table.epoch:
        return table
    transition = _find(table, number)
    if transition.phase is Phase.STARTED:
        raise TableRefused(f"transition {number} has started; it can only go forward")
    rest = tuple(t for t in table.transitions if t.number != number)
    return replace(table, epoch=table.epoch + 1, transitions=rest)


def forget(table: SlotTable, log_starts: dict[int, int]) -> SlotTable:
    """Drop what retention has passed: kept transitions whose F lies at or below the source's log start."""
    rest = tuple(k for k in table.kept if log_starts.get(k.source, -1) < k.source_end)
    return table if rest == table.kept else replace(table, epoch=table.epoch + 1, kept=rest)


def register(table: SlotTable, group: str) -> SlotTable:
    """Add a group; only while nothing is under way, so that no drain is missed.

    Raises
    ------
    TableRefused
        If a transition is open.
    """
    return _regroup(table, {*table.groups, group})


def unregister(table: SlotTable, group: str) -> SlotTable:
    """Remove a group; only while nothing is under way."""
    return _regroup(table, set(table.groups) - {group})


def _regroup(table: SlotTable, groups: set[str]) -> SlotTable:
    if groups == set(table.groups):
        return table
    if table.transitions:
        raise TableRefused(f"transition {table.transitions[0].number} is open; groups register when it is done")
    return replace(table, epoch=table.epoch + 1, groups=tuple(sorted(groups)))


def _find(table: SlotTable, number: int) -> Transition:
    transition = table.transition(number)
    if transition is None:
        raise TableRefused(f"topic {table.topic} has no open transition {number}")
    return transition


_ORDER = [Phase.PREPARED, Phase.STOPPING, Phase.FENCED, Phase.STARTED]


def _advance(
    table: SlotTable,
    number: int,
    allowed: set[Phase],
    phase: Phase,
    *,
    fence: Fence | None = None,
    moved: dict[int, int] | None = None,
) -> SlotTable:
    transition = _find(table, number)
    if _ORDER.index(transition.phase) >= _ORDER.index(phase):
        return table
    if transition.phase not in allowed:
        raise TableRefused(f"transition {number} is {transition.phase}; it cannot become {phase}")
    changed = replace(transition, phase=phase, fence=fence or transition.fence)
    return _replace(table if moved is None else replace(table, moved=moved), changed)


def _replace(table: SlotTable, transition: Transition) -> SlotTable:
    transitions = tuple(transition if t.number == transition.number else t for t in table.transitions)
    return replace(table, epoch=table.epoch + 1, transitions=transitions)
