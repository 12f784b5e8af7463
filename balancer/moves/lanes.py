"""Which partitions become lanes, and which slots they take when nobody has chosen: pure."""

from __future__ import annotations

from balancer.routing.base import SplitRequest
from balancer.routing.errors import SplitRefused
from balancer.routing.table import SlotTable


def free_lanes(table: SlotTable, partitions: int) -> list[int]:
    """Return partitions above the first ones that serve no slots and are in no transition.

    Examples
    --------
    >>> free_lanes(SlotTable("orders", "id-1", 1, "murmur2", 2), 4)
    [2, 3]
    """
    busy = set(table.moved.values()) | {p for t in table.transitions for p in (t.source, t.target)}
    return [p for p in range(table.partitions, partitions) if p not in busy]


def chosen_moves(
    table: SlotTable, request: SplitRequest, partitions: int, max_partitions: int | None
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (source, target, slots) of a split: to free lanes first, then to partitions that will be made.

    Parameters
    ----------
    table
        As committed.
    request
        Slots by its placement, else spread evenly over its lanes.
    partitions
        How many the topic has.
    max_partitions
        How many it may have; None: no more than it has.

    Raises
    ------
    SplitRefused
        If the partition has too few slots, or the limit is reached.

    Examples
    --------
    >>> table = SlotTable("orders", "id-1", 1, "murmur2", 2)
    >>> moves = chosen_moves(table, SplitRequest("r", "orders", 0, "split", lanes=2), 2, 3)
    >>> [(source, target, len(slots)) for source, target, slots in moves]
    [(0, 2, 1024)]
    >>> chosen_moves(table, SplitRequest("r", "orders", 0, "split", lanes=3), 2, 3)
    Traceback (most recent call last):
    balancer.routing.errors.SplitRefused: 3 lanes of orders:0 need 4 partitions, and max_partitions is 3
    """
    source = request.partition
    have = table.slots_of(source)
    if not have:
        raise SplitRefused(f"{table.topic}:{source} serves no slots; there is nothing to split")
    placement = request.placement or tuple(have[i :: request.lanes] for i in range(1, request.lanes))
    if any(not part for part in placement) or sum(map(len, placement)) > len(have):
        raise SplitRefused(f"{table.topic}:{source} has {len(have)} slots, too few for {request.lanes} lanes")
    if wrong := sorted({s for part in placement for s in part} - set(have)):
        raise SplitRefused(f"slot {wrong[0]} is not at {table.topic}:{source}; plan the split again")
    free = free_lanes(table, partitions)
    new = max(0, len(placement) - len(free))
    most = partitions if max_partitions is None else max_partitions
    if partitions + new > most:
        limit = "the topic may not grow: set max_partitions" if max_partitions is None else f"max_partitions is {most}"
        raise SplitRefused(
            f"{request.lanes} lanes of {table.topic}:{source} need {partitions + new} partitions, and {limit}"
        )
    targets = [*free, *range(partitions, partitions + new)]
    return [(source, target, tuple(part)) for target, part in zip(targets, placement, strict=False)]


def merge_order(table: SlotTable, parent: int) -> list[int]:
    """Return the lanes of a parent, those with fewest slots first: a merge returns them one after the other.

    Examples
    --------
    >>> table = SlotTable("orders", "id-1", 3, "murmur2", 2, moved={0: 2, 2: 2, 4: 3})
    >>> merge_order(table, 0)
    [3, 2]
    """
    return sorted(table.lanes_of(parent), key=lambda lane: (len(table.slots_of(lane)), lane))
