"""The difference of two assignments, and what it costs to carry out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from balancer.group import Assignment
from balancer.plan import Move
from forecaster.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class MovementPrice:
    """What a movement costs.

    Parameters
    ----------
    stops
        Partitions that some member must stop for.
    rscore
        Load that stops over the capacity of one member (Landau et al., arXiv 2402.06085); None without a capacity.
    records_held
        Records that pile up while the moved partitions stand still.
    """

    stops: int
    rscore: float | None
    records_held: float


def difference(before: Assignment, after: Assignment) -> tuple[Move, ...]:
    """Return what changes its owner, in the order of the partitions.

    A partition that nobody owned has ``source`` None: its first assignment stops nobody. A partition that ``after``
    does not name is not moved.

    Examples
    --------
    >>> a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
    >>> difference({"m1": (a, b)}, {"m1": (a,), "m2": (b,)})
    (Move(partition=TopicPartition(topic='orders', partition=1), source='m1', target='m2'),)
    """
    owners = {p: member for member, partitions in before.items() for p in partitions}
    changed = [
        Move(p, owners.get(p), member)
        for member, partitions in after.items()
        for p in partitions
        if owners.get(p) != member
    ]
    return tuple(sorted(changed, key=lambda move: move.partition))


def price(
    moves: Iterable[Move], loads: Mapping[TopicPartition, float], capacity: float | None, pause: timedelta
) -> MovementPrice:
    """Price a movement: what stops, for how long, and how much piles up meanwhile.

    Parameters
    ----------
    moves
        As :func:`difference` gives them; first assignments are free.
    loads
        Records/s of each partition; a partition without a known load counts 0 here.
    capacity
        Records/s of one member, None if unknown.
    pause
        How long a moved partition stands still.

    Examples
    --------
    >>> p = TopicPartition("orders", 0)
    >>> price([Move(p, "m1", "m2")], {p: 50.0}, 100.0, timedelta(seconds=2))
    MovementPrice(stops=1, rscore=0.5, records_held=100.0)
    """
    stopped = [loads.get(move.partition, 0.0) for move in moves if move.source is not None]
    load = sum(stopped)
    rscore = load / capacity if capacity else None
    return MovementPrice(len(stopped), rscore, load * pause.total_seconds())


def worth_moving(
    members_saved: float,
    until_next_change: timedelta,
    stops: int,
    price_per_move_hours: float,
    price_of_change_hours: float = 0.0,
) -> bool:
    """Whether a movement pays: the member-hours that it saves exceed the priced stops and the change itself.

    Parameters
    ----------
    members_saved
        Members that it frees.
    until_next_change
        For how long they stay free, by the plan.
    stops
        Partitions that must stop.
    price_per_move_hours, price_of_change_hours
        Member-hours that one stopped partition, and one change of the group, is worth avoiding for.

    Examples
    --------
    >>> worth_moving(1, timedelta(minutes=10), stops=12, price_per_move_hours=0.02)
    False
    >>> worth_moving(1, timedelta(hours=3), stops=12, price_per_move_hours=0.02)
    True
    """
    saved = members_saved * (until_next_change / timedelta(hours=1))
    return saved > stops * price_per_move_hours + price_of_change_hours
