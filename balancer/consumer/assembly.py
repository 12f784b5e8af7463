"""What a worker is made of, from its settings; clients are imported only when they are used."""

from __future__ import annotations

from balancer.consumer.effects import Effects
from balancer.consumer.settings import Mode, WorkerSettings
from balancer.leases.base import LeaseStore, transactional_id
from forecaster.topics import GroupId


def open_leases(settings: WorkerSettings) -> LeaseStore:
    """Return the store that the settings name."""
    from balancer.leases.redis import RedisLeaseStore

    return RedisLeaseStore(settings.store_url, settings.cluster, GroupId(settings.group))


def open_effects(settings: WorkerSettings, instance: int, client_id: str) -> Effects:
    """Return what makes results and offsets last together in the mode chosen."""
    if settings.mode is Mode.MEMBERSHIP:
        from balancer.consumer.membership import MembershipEffects

        return MembershipEffects(settings, client_id)
    from balancer.consumer.kafka import TransactionalProducer

    return TransactionalProducer(settings, transactional_id(settings.group, instance), client_id)
