"""What a routed topic may do: its bounds, and what is refused before anything is held, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from balancer.moves.routed_topic import TopicWorld
from balancer.routing.base import ProducerState, SplitRequest
from balancer.routing.errors import SplitRefused
from balancer.routing.table import SlotTable


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """Bounds of a routed topic's transitions.

    Parameters
    ----------
    prepare
        For every group to close its gate.
    stop
        For a live producer to end its transaction and answer (``stop_limit``).
    hold
        For a merge's lane to be drained while its slots are held (``hold_limit``).
    merge_lag
        A merge stops its slots only when the lane has fewer unread records than this in every group.
    max_partitions
        Of the topic; None: it never grows.
    accept_unregistered
        Whether groups that are not registered may see order broken.
    """

    prepare: timedelta = timedelta(seconds=20)
    stop: timedelta = timedelta(seconds=5)
    hold: timedelta = timedelta(seconds=2)
    merge_lag: int = 500
    max_partitions: int | None = None
    accept_unregistered: bool = False


def must_be_placed(table: SlotTable, world: TopicWorld) -> None:
    """Refuse a first table that does not place keys as the topic's producers do.

    Raises
    ------
    SplitRefused
        With the partition where it shows, and the other hash.
    """
    for partition in range(min(table.partitions, 16)):
        why = world.misplaced(table, partition)
        if why is not None:
            other = "crc32" if table.hash == "murmur2" else "murmur2"
            raise SplitRefused(f"{why}; the topic is not adopted. If they use {other}, set hash = {other!r}")


def must_be_splittable(
    table: SlotTable,
    request: SplitRequest,
    world: TopicWorld,
    producers: Iterable[ProducerState],
    limits: SplitLimits,
) -> None:
    """Refuse a split that would break order.

    Raises
    ------
    SplitRefused
        No registered group, a producer that is not routed or has another partitioner, a group that is not registered.
    """
    topic = table.topic
    if not table.groups:
        raise SplitRefused(f"{topic} has no registered group: name them in [topics.{topic}] groups")
    if request.lanes < 2:
        raise SplitRefused(f"lanes={request.lanes} must be 2 or more")
    plain = sum(
        p.live and p.registration.transactional_id is None and topic in p.registration.topics for p in producers
    )
    strangers = world.strangers(request.partition, plain)
    if strangers:
        raise SplitRefused(
            f"{topic} is not splittable: {', '.join(strangers[:3])} wrote to partition {request.partition} "
            "without routing. Route that producer, or put a relay before the topic"
        )
    why = world.misplaced(table, request.partition)
    if why is not None:
        raise SplitRefused(f"{topic} is not splittable: {why}")
    if not limits.accept_unregistered:
        others = sorted(world.readers() - set(table.groups))
        if others:
            raise SplitRefused(
                f"group {others[0]} reads {topic} and is not registered: it might see order broken. Add it to "
                f"[topics.{topic}] groups, or set accept_unregistered = true"
            )
