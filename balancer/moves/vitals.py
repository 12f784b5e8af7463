"""Broker vital signs and room for partitions, read from the cluster's metadata: what may veto a split."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from balancer.routing.kafka import client_properties
from balancer.splits import Brokers

log = logging.getLogger("headway.splitting")

PER_BROKER = 4000
"""Replicas that a broker should carry at most (Apache Kafka's own advice, J. Rao, 2018)."""

PER_CLUSTER = 200_000
"""The same for a cluster."""


def brokers_of(metadata: Any, per_broker: int = PER_BROKER, per_cluster: int = PER_CLUSTER) -> Brokers:
    """Return budget and vital signs of a cluster's metadata.

    Parameters
    ----------
    metadata
        A ``confluent_kafka`` ClusterMetadata of all topics.
    per_broker, per_cluster
        Most replicas of a broker; most partitions of the cluster.
    """
    partitions = [p for topic in metadata.topics.values() if topic.error is None for p in topic.partitions.values()]
    replicas = sum(len(p.replicas) for p in partitions)
    copies = max(1, round(replicas / len(partitions))) if partitions else 1
    room = min((per_broker * len(metadata.brokers) - replicas) // copies, per_cluster - len(partitions))
    return Brokers(
        partitions_left=max(0, room),
        under_replicated=sum(len(p.isrs) < len(p.replicas) for p in partitions if p.leader >= 0),
        offline=sum(p.leader < 0 for p in partitions),
    )


class BrokerVitals:
    """Reads the metadata at most every ``every_s``; "not readable" when the brokers do not answer.

    Parameters
    ----------
    bootstrap_servers, properties
        Where.
    every_s
        How old an answer may be.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, Any] | None = None,
        every_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._properties = client_properties(bootstrap_servers, properties)
        self._every_s, self._clock = every_s, clock
        self._admin: Any = None
        self._known: tuple[float, Brokers] | None = None

    def __call__(self) -> Brokers:
        """Return what is known now."""
        now = self._clock()
        if self._known is None or now - self._known[0] > self._every_s:
            try:
                self._admin = self._admin or AdminClient(self._properties)
                self._known = (now, brokers_of(self._admin.list_topics(timeout=5)))
            except ck.KafkaException as failure:
                log.warning("broker vital signs cannot be read: %s", failure.args[0].name())
                self._known = (now, Brokers())
        return self._known[1]
