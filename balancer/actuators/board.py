"""The numbers that scalers read: the last plan of each group, in memory, with its age."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from balancer.actuators.base import Actuation, ActuationState
from balancer.errors import TargetRefused
from forecaster.topics import GroupId

HIGHEST = 9_200_000_000_000_000
"""KEDA turns values into milli-quantities of 64 bits; nothing beyond this survives."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One number on the board, and when it was computed."""

    replicas: int
    at: datetime

    def age(self, now: datetime) -> timedelta:
        """Return how old it is; a clock that went backwards makes it brand-new, never younger than that."""
        return max(now - self.at, timedelta(0))


class ScalerBoard:
    """An actuator that only posts: whoever polls (KEDA, an HPA, a script) reads it.

    A number older than ``max_age`` is not given out: a scaler that repeats yesterday's plan is worse than one that says
    so. Everything is answered from memory, so no dependency can make a poll hang.

    Parameters
    ----------
    max_age
        How long a number stays good when nothing refreshes it.

    Examples
    --------
    >>> from datetime import UTC
    >>> board, noon = ScalerBoard(timedelta(minutes=5)), datetime(2026, 1, 5, 12, tzinfo=UTC)
    >>> board.scale(GroupId("orders"), 7, noon).detail
    'posted'
    >>> board.fresh(GroupId("orders"), noon + timedelta(minutes=4)).replicas
    7
    >>> board.fresh(GroupId("orders"), noon + timedelta(minutes=6)) is None
    True
    """

    def __init__(self, max_age: timedelta = timedelta(minutes=5)) -> None:
        self.max_age = max_age
        self._posted: dict[GroupId, Posted] = {}
        self._changed = threading.Condition()
        self._version = 0

    def current(self, group: GroupId) -> int | None:
        """Return what is posted, whatever its age; None when nothing is."""
        posted = self._posted.get(group)
        return None if posted is None else posted.replicas

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Post a number and wake those that stream."""
        if not 0 <= replicas < HIGHEST:
            raise TargetRefused(f"{replicas} replicas cannot be posted: it must be within 0 and {HIGHEST}")
        previous = self.current(group)
        with self._changed:
            self._posted[group] = Posted(replicas, now)
            self._version += 1
            self._changed.notify_all()
        state = ActuationState.UNCHANGED if previous == replicas else ActuationState.PENDING
        return Actuation(group, now, replicas, previous, state, "posted")

    def restore(self, group: GroupId, posted: Posted) -> None:
        """Put back what was posted before a restart, with its true age; a newer number stays."""
        with self._changed:
            have = self._posted.get(group)
            if have is None or have.at < posted.at:
                self._posted[group] = posted
                self._version += 1
                self._changed.notify_all()

    def posted(self, group: GroupId) -> Posted | None:
        """Return what is posted, whatever its age."""
        return self._posted.get(group)

    def fresh(self, group: GroupId, now: datetime) -> Posted | None:
        """Return what is posted if it is young enough to act on."""
        posted = self._posted.get(group)
        return posted if posted is not None and posted.age(now) <= self.max_age else None

    def withdraw(self, group: GroupId) -> None:
        """Take a group's number off the board: from now on it is unknown, not zero."""
        with self._changed:
            self._posted.pop(group, None)
            self._version += 1
            self._changed.notify_all()

    def groups(self) -> tuple[GroupId, ...]:
        """Return the groups that have a number, sorted."""
        return tuple(sorted(self._posted))

    def changes(self, wait_s: float) -> Iterator[int]:
        """Yield a version whenever something was posted, and at least every ``wait_s`` seconds."""
        seen = -1
        while True:
            with self._changed:
                if self._version == seen:
                    self._changed.wait(wait_s)
                seen = self._version
            yield seen

    def close(self) -> None:
        """Wake everybody who waits; the numbers stay."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()
