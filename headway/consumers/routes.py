"""What everybody who has to do with a routed topic opens: brokers, the route store, the slot table, a group's gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balancer.routing.base import RouteStore
from headway.configuration.settings import Settings
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from balancer.moves.mover import Mover
    from balancer.routing.table import SlotTable


def brokers_of(settings: Settings) -> tuple[dict[str, str | int | float | bool], str]:
    """Return the client properties, and the addresses taken out of them.

    Raises
    ------
    HeadwayError
        If no brokers are configured.
    """
    properties = settings.kafka_properties()
    servers = properties.pop("bootstrap.servers", None)
    if not servers:
        raise HeadwayError("no brokers: set [kafka] bootstrap_servers, or HEADWAY_KAFKA__BOOTSTRAP_SERVERS")
    return properties, str(servers)


def open_routes(settings: Settings) -> RouteStore:
    """Open the store that announces slot tables.

    Raises
    ------
    HeadwayError
        If no store is configured: producers must reach it, and it must outlive this process.
    """
    from balancer.routing.redis import RedisRouteStore

    url = settings.store_url()
    if url is None:
        raise HeadwayError("routed topics need a store that producers reach: set [store] url = redis://...")
    return RedisRouteStore(url, settings.cluster)


def read_table(settings: Settings, topic: str) -> SlotTable | None:
    """Return a topic's slot table as committed; None if it has none yet.

    Raises
    ------
    TableLogUnavailable, TableRefused
        If it cannot be read.
    """
    from balancer.routing.kafka import KafkaTableLog

    properties, servers = brokers_of(settings)
    log = KafkaTableLog(servers, properties)
    try:
        return log.read(topic)
    finally:
        log.close()


def gate_lanes(settings: Settings, group: str, topics: tuple[str, ...], mover: Mover) -> None:
    """Have a group's mover withhold the lanes of its routed topics until they are opened."""
    routed = [t for t in topics if t in settings.topics and group in settings.topics[t].groups]
    if not routed or settings.store_url() is None:
        return
    from balancer.moves.gates import LaneGates
    from balancer.routing.kafka import KafkaTableLog

    properties, servers = brokers_of(settings)
    gates = LaneGates(group, routed, mover.store, open_routes(settings), KafkaTableLog(servers, properties), mover.wake)
    mover.withheld, mover.close_gates = gates, gates.tick
    gates.listen()
