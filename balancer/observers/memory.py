"""Groups that somebody tells us about: for tests, simulations and notebooks."""

from __future__ import annotations

from balancer.errors import ObserverUnavailable
from balancer.group import GroupSnapshot
from forecaster.topics import GroupId


class MemoryGroupObserver:
    """The :class:`balancer.observers.base.GroupObserver` that shows what it was last given.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> observer = MemoryGroupObserver()
    >>> observer.show(GroupSnapshot(GroupId("orders"), datetime(2026, 1, 5, tzinfo=UTC), 3, ()))
    >>> observer.observe(GroupId("orders")).replicas
    3
    """

    def __init__(self) -> None:
        self._seen: dict[GroupId, GroupSnapshot] = {}

    def show(self, snapshot: GroupSnapshot) -> None:
        """Let a group look like this from now on."""
        self._seen[snapshot.group] = snapshot

    def hide(self, group: GroupId) -> None:
        """Let a group be out of sight: whoever looks holds what is there."""
        self._seen.pop(group, None)

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return the last shown (:meth:`GroupObserver.observe`)."""
        snapshot = self._seen.get(group)
        if snapshot is None:
            raise ObserverUnavailable(f"group {group} cannot be seen: nobody has shown it")
        return snapshot

    def close(self) -> None:
        """Nothing is held."""
