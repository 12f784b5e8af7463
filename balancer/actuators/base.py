"""The port through which plans become capacity."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from forecaster.topics import GroupId


class ActuationState(StrEnum):
    """How an actuation stands, or ended."""

    PENDING = "pending"
    EFFECTIVE = "effective"
    INEFFECTIVE = "ineffective"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Actuation:
    """One request to a target: what was asked, when, and how it stands."""

    group: GroupId
    requested_at: datetime
    replicas: int
    previous: int | None
    state: ActuationState
    detail: str = ""


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

        Idempotent. Raises :class:`balancer.errors.ActuationError`; a failure leaves the target as it was.
        """
        ...

    def close(self) -> None:
        """Give up connections; the target stays as it is."""
        ...
