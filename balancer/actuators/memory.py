"""A scale target in memory: for tests, dry runs and the simulator."""

from __future__ import annotations

from datetime import datetime

from balancer.actuators.base import Actuation, ActuationState
from balancer.errors import TargetRefused
from forecaster.topics import GroupId


class MemoryActuator:
    """Remembers what was asked; ``broken`` makes every call raise, as a dead target would.

    Examples
    --------
    >>> from datetime import UTC
    >>> target = MemoryActuator({"orders": 2})
    >>> target.scale(GroupId("orders"), 5, datetime(2026, 1, 5, tzinfo=UTC)).state
    <ActuationState.PENDING: 'pending'>
    >>> target.current(GroupId("orders"))
    5
    """

    def __init__(self, replicas: dict[str, int] | None = None) -> None:
        self._replicas: dict[GroupId, int] = {GroupId(g): n for g, n in (replicas or {}).items()}
        self.history: list[Actuation] = []
        self.broken: Exception | None = None

    def current(self, group: GroupId) -> int | None:
        """Return the number asked for last; None for a group never seen."""
        if self.broken:
            raise self.broken
        return self._replicas.get(group)

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Remember the number."""
        if replicas < 0:
            raise TargetRefused(f"{replicas} members cannot be meant")
        previous = self.current(group)
        self._replicas[group] = replicas
        state = ActuationState.UNCHANGED if previous == replicas else ActuationState.PENDING
        actuation = Actuation(group, now, replicas, previous, state, f"leaving {', '.join(leaving)}" if leaving else "")
        self.history.append(actuation)
        return actuation

    def close(self) -> None:
        """Nothing to give up."""
