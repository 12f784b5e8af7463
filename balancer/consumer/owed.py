"""Releases that the store has not been told of yet."""

from __future__ import annotations

import logging

from balancer.consumer.keeper import LeaseKeeper
from balancer.leases.base import Lease, LeaseRefused, LeaseStore, LeaseStoreError
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.consumer")


class Owed:
    """What a worker has given up; told to the store again and again while that is silent."""

    def __init__(self, store: LeaseStore, keeper: LeaseKeeper) -> None:
        self._store = store
        self._keeper = keeper
        self._rows: dict[TopicPartition, tuple[int, int | None, int | None]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, tp: object) -> bool:
        return tp in self._rows

    def add(self, lease: Lease, offset: int | None = None, leader_epoch: int | None = None) -> None:
        """Owe a release; the offset goes along, so that the next owner saves a read."""
        self._rows[lease.partition] = (lease.epoch, offset, leader_epoch)

    def pay(self) -> None:
        """Tell the store all that is owed, until it is silent."""
        for tp, (epoch, offset, leader_epoch) in list(self._rows.items()):
            self._keeper.mark += 1
            try:
                self._store.release(self._keeper.owner, tp, epoch, offset, leader_epoch)
            except LeaseRefused as refusal:
                log.info("release of %s: %s", tp, refusal)
            except LeaseStoreError:
                return
            del self._rows[tp]
