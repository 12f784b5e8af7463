"""A planned group as its lease store has it: its workers are no members of any group protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from balancer.errors import ObserverUnavailable
from balancer.group import GroupProtocol, GroupSnapshot
from balancer.leases.base import LeaseStore, LeaseStoreError, LeaseStoreLost
from balancer.moves.members import Roster
from balancer.observers.base import GroupObserver
from forecaster.topics import GroupId


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
    """

    def __init__(self, observer: GroupObserver, leases: LeaseStore, capacity: Callable[[], float | None]) -> None:
        self._observer, self._leases, self._capacity = observer, leases, capacity
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
        return replace(snapshot, members=members, protocol=GroupProtocol.PLANNED, generation=view.plan_epoch)

    def close(self) -> None:
        """Close the observer and the leases."""
        self._observer.close()
        self._leases.close()
