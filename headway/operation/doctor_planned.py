"""What doctor says of planned groups, and what closes mode ``act`` to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from balancer.policy import AssignmentKind
from headway.configuration.settings import Settings
from headway.errors import one_line

if TYPE_CHECKING:
    from balancer.moves.promises import Doubt


def planned_groups(settings: Settings) -> tuple[str, ...]:
    """Return the configured groups whose assignment is planned."""
    return tuple(g for g in settings.named_groups if settings.policy(g).assignment is AssignmentKind.PLANNED)


def doubts_about(settings: Settings, group: str) -> list[Doubt]:
    """Return what does not hold of brokers, rights and store that a planned group leans on."""
    from balancer.moves.inspection import inspect
    from balancer.moves.promises import Doubt, doubts

    if settings.store_url() is None:
        return [Doubt("leases would die with the embedded store", "set store.url to a Redis or Valkey of its own")]
    own = settings.group(group)
    if not settings.kafka.bootstrap_servers or own is None:
        return [Doubt("no brokers are configured", "set kafka.bootstrap_servers")]
    return doubts(inspect(settings.kafka_properties(), group, own.topics))


def against_moving(settings: Settings, group: str) -> tuple[str, ...]:
    """Return what closes mode ``act`` to a planned group; empty for every other group."""
    if group not in planned_groups(settings):
        return ()
    return tuple(f"{d.what} ({d.remedy})" for d in doubts_about(settings, group) if d.closes)


def against_target(settings: Settings, group: str) -> tuple[str, ...]:
    """Return all that speaks against acting on a group's target and, where it is planned, against moving its work."""
    from headway.operation.targets import against_acting

    return (*against_acting(settings, group), *against_moving(settings, group))


def _routed(settings: Settings, topic: str) -> Iterator[tuple[str, bool, str, str]]:
    from balancer.errors import BalancerError
    from headway.consumers.routed_topics import PastFences
    from headway.consumers.routes import read_table

    name = f"routed {topic}"
    try:
        table = read_table(settings, topic)
    except BalancerError as error:
        yield name, False, one_line(error), "look at the brokers; producers go on by the table they have"
        return
    if table is None:
        yield name, True, "has no slot table yet: headway serve, or headway route, adopts it", ""
        return
    behind = PastFences(settings, topic)(table)
    for text in behind:
        yield name, False, text, "set its offsets there, if it must see every key in order"
    if not behind:
        lanes = len(set(table.moved.values()))
        yield name, True, f"table {table.epoch}: {table.partitions} partitions and {lanes} lanes in use", ""


def findings(settings: Settings) -> Iterator[tuple[str, bool, str, str]]:
    """Yield (name, ok, detail, remedy) for each planned group and each routed topic."""
    if settings.kafka.bootstrap_servers:
        for topic in settings.topics:
            yield from _routed(settings, topic)
    for group in planned_groups(settings):
        name = f"planned {group}"
        found = doubts_about(settings, group)
        for doubt in found:
            yield name, not doubt.closes, doubt.what, doubt.remedy
        if not any(doubt.closes for doubt in found):
            yield name, True, "brokers keep its fences and offsets, and it may fence, read and commit", ""
