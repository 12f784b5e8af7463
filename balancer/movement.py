"""The difference of two assignments, and what it costs to carry out."""

from __future__ import annotations

from datetime import timedelta

from balancer.group import Assignment
from balancer.plan import Move


def difference(before: Assignment, after: Assignment) -> tuple[Move, ...]:
    """Return what changes its owner, in the order of the partitions.

    A partition that nobody owned has ``source`` None: its first assignment stops nobody. A partition that ``after``
    does not name is not moved.

    Examples
    --------
    >>> from forecaster.topics import TopicPartition
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
