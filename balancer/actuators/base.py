"""The port through which plans become capacity."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

from balancer.actuation import Actuation, ActuationState
from forecaster.topics import GroupId

__all__ = ["Actuation", "ActuationState", "Actuator", "SeesMembers"]


class Actuator(Protocol):
    """Sets the number of members of a group."""

    def current(self, group: GroupId) -> int | None:
        """Return what the target is set to now; None if it cannot be known.

        Raises
        ------
        TargetUnavailable, TargetRefused
        """
        ...

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Ask for ``replicas`` members; ``leaving`` names the members that have been drained and should go.

        A name is a member's id, with ``@`` and its pod where that is known: ``3#17.ab12@orders-5d9c-x2``. Idempotent.
        Raises :class:`balancer.errors.ActuationError`; a failure leaves the target as it was.
        """
        ...

    def close(self) -> None:
        """Give up connections; the target stays as it is."""
        ...


@runtime_checkable
class SeesMembers(Protocol):
    """What an actuator may know beside its number: which members it started that are not ready."""

    def not_ready(self, group: GroupId) -> str:
        """Return who is not ready, and why; empty when everybody is. Raises as :meth:`Actuator.current`."""
        ...
