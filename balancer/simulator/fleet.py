"""Simulated members: requested, starting, working; what is paid; when the group stalls.

A member is paid from its request on and works ``start_s`` later. Fewer members are gone at once; starts that are still
pending are cancelled first, the newest first. So the working set is the smallest request within the last ``start_s``
seconds, which is what the oracle in the tests computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Fleet:
    """Members of one group under the semantics above; all instants are seconds after the run's start.

    Parameters
    ----------
    working
        Members that work at the start; also what is requested then.
    start_s
        Seconds from a request to a working member.
    pause_s
        Seconds that a change of the working set stalls; stalls overlap, they do not add up.
    """

    working: int
    start_s: float
    pause_s: float
    requested: int = field(init=False)
    stalled_until_s: float = field(init=False, default=-math.inf)
    paid_s: float = field(init=False, default=0.0)
    """Member-seconds paid until ``at_s``."""
    at_s: float = field(init=False, default=0.0)
    changes: list[tuple[float, int]] = field(init=False, default_factory=list)
    """Each change of the requested count: (instant, replicas)."""
    _pending: list[tuple[float, int]] = field(init=False, default_factory=list)
    """(due, count), oldest first."""

    def __post_init__(self) -> None:
        self.requested = self.working

    @property
    def pending(self) -> int:
        """Members that have been requested and do not work yet."""
        return sum(count for _, count in self._pending)

    def next_event_s(self) -> float:
        """Return the next instant at which the working set or the stall changes by itself; infinity if none."""
        due = self._pending[0][0] if self._pending else math.inf
        return min(due, self.stalled_until_s) if self.stalled_until_s > self.at_s else due

    def move_to(self, at_s: float) -> bool:
        """Go to an instant not beyond :meth:`next_event_s`; return whether the working set changed there."""
        self.paid_s += self.requested * (at_s - self.at_s)
        self.at_s = at_s
        joined = 0
        while self._pending and self._pending[0][0] <= at_s:
            joined += self._pending.pop(0)[1]
        if joined:
            self.working += joined
            self.stalled_until_s = max(self.stalled_until_s, at_s + self.pause_s)
        return joined > 0

    def request(self, replicas: int) -> bool:
        """Ask for so many members now; return whether the working set changed at once."""
        if replicas == self.requested:
            return False
        self.changes.append((self.at_s, replicas))
        surplus = self.requested - replicas
        self.requested = replicas
        if surplus < 0:
            self._pending.append((self.at_s + self.start_s, -surplus))
            return self.move_to(self.at_s) if self.start_s == 0 else False
        while surplus and self._pending:
            due, count = self._pending.pop()
            cancelled = min(count, surplus)
            surplus -= cancelled
            if count > cancelled:
                self._pending.append((due, count - cancelled))
        if surplus:
            self.working -= surplus
            self.stalled_until_s = max(self.stalled_until_s, self.at_s + self.pause_s)
        return surplus > 0
