"""The port through which groups are seen."""

from __future__ import annotations

from typing import Protocol

from balancer.group import GroupSnapshot
from forecaster.topics import GroupId


class GroupObserver(Protocol):
    """Sees members, assignment and lag of groups."""

    def observe(self, group: GroupId) -> GroupSnapshot:
        """Return what the group looks like now.

        Raises
        ------
        ObserverUnavailable
            If nothing can be said; whoever asks holds what is there.
        """
        ...

    def close(self) -> None:
        """Give up connections."""
        ...
