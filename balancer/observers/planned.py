"""A planned group as its lease store has it: its workers are no members of any group protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from balancer.errors import ObserverUnavailable
from balancer.group import GroupProtocol, GroupSnapshot
from balancer.leases.base import LeaseStore, LeaseStoreError, LeaseStoreLost
from balancer.moves.members import Roster
from balancer.observers.base import GroupObserver
from forecaster.topics import GroupId, TopicPartition

log = logging.getLogger("headway.observers")

RACKS_EVERY = timedelta(minutes=1)
"""How often brokers are asked where leaders are."""


class PlannedGroupObserver:
    """Takes members and assignment from the leases, everything else from another observer.

    Parameters
    ----------
    observer
        Who sees partitions and the target.
    leases
        Who owns what.
    capacity
        Records/s planned onto one member; None while that is not known.
    racks
        Rack of each partition's leader; asked for once a minute while a worker says where it runs.
    """

    def __init__(
        self,
        observer: GroupObserver,
        leases: LeaseStore,
        capacity: Callable[[], float | None],
        racks: Callable[[], Mapping[TopicPartition, str]] = dict,
    ) -> None:
        self._observer, self._leases, self._capacity, self._racks = observer, leases, capacity, racks
        self._racks_at: datetime | None = None
        self._racks_seen: Mapping[TopicPartition, str] = {}
        self.roster = Roster()

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return the snapshot with the workers as members; none while the leases are not founded.

        Raises
        ------
        ObserverUnavailable
            If the store does not answer.
        """
        snapshot = self._observer.observe(group)
        try:
            view = self._leases.view()
        except LeaseStoreLost:
            return replace(snapshot, members=(), protocol=GroupProtocol.PLANNED)
        except LeaseStoreError as error:
            raise ObserverUnavailable(f"group {group}: {error}") from error
        members = self.roster.look(view, self._capacity())
        racks = self._leaders(snapshot.at) if any(member.rack for member in members) else {}
        return replace(
            snapshot, members=members, protocol=GroupProtocol.PLANNED, generation=view.plan_epoch, racks=racks
        )

    def _leaders(self, now: datetime) -> Mapping[TopicPartition, str]:
        """Return where leaders are; what was seen last where brokers do not answer, since this is a wish alone."""
        if self._racks_at is None or now - self._racks_at >= RACKS_EVERY:
            self._racks_at = now
            try:
                self._racks_seen = self._racks()
            except Exception as silence:
                log.info("where leaders are is not known anew: %s", silence)
        return self._racks_seen

    def close(self) -> None:
        """Close the observer and the leases."""
        self._observer.close()
        self._leases.close()
