"""Workers as the planner's members: who is there, and who is so slow that less must be planned onto it (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

from balancer.group import Member
from balancer.leases.base import GroupView, Owner, WorkerState

SLOW_BELOW = 0.5
"""A worker that sustains less than this share of the reference is slow."""
WELL_ABOVE = 0.75
"""And it is well again above this share."""


def pace_of(view: GroupView, capacity: float | None) -> dict[Owner, tuple[float, float]]:
    """Return (records/s that a worker sustains, records/s that it should) of each worker that has measured itself.

    What it should is the median of its peers; where it has none that measured, ``capacity``, which the plan and its
    forecast count on.
    """
    measured = {w.owner: float(c) for w in _there(view) if (c := w.heartbeat.get("capacity"))}
    paces = {}
    for owner, own in measured.items():
        peers = [c for other, c in measured.items() if other != owner]
        reference = median(peers) if peers else capacity
        if reference:
            paces[owner] = (own, reference)
    return paces


def slow_among(paces: Mapping[Owner, tuple[float, float]], before: Collection[Owner]) -> frozenset[Owner]:
    """Return who is slow; whoever was stays so until it is well above the bound.

    Examples
    --------
    >>> a, b = Owner(1, 1, "a"), Owner(2, 1, "b")
    >>> slow_among({a: (100.0, 500.0), b: (300.0, 500.0)}, before=()) == {a}
    True
    >>> slow_among({b: (300.0, 500.0)}, before={b}) == {b}
    True
    """
    return frozenset(
        owner
        for owner, (own, reference) in paces.items()
        if own < (WELL_ABOVE if owner in before else SLOW_BELOW) * reference
    )


@dataclass(slots=True)
class Roster:
    """A group's members from one look to the next: slow is who was so at two looks in a row."""

    suspects: frozenset[Owner] = frozenset()
    slow: frozenset[Owner] = frozenset()
    reasons: dict[int, str] = field(default_factory=dict)
    """Instance → what makes it slow, for people."""

    def look(self, view: GroupView, capacity: float | None) -> tuple[Member, ...]:
        """Return the members.

        Parameters
        ----------
        view
            The group.
        capacity
            Records/s planned onto a member that is not slow; None while that is not known. Onto a slow one goes as
            much less as it is slower than it should be.
        """
        paces = pace_of(view, capacity)
        seen = slow_among(paces, self.slow)
        self.slow, self.suspects = seen & (self.suspects | self.slow), seen
        self.reasons = {
            o.instance: f"sustains {paces[o][0]:.0f} records/s, {paces[o][1]:.0f} are usual" for o in self.slow
        }
        return tuple(
            Member(
                str(worker.owner),
                view.owned(worker.owner.instance),
                _room(paces[worker.owner], capacity) if worker.owner in self.slow else None,
                worker.profile.rack or None,
                ready=worker.initialised and worker.ready,
                draining=worker.draining,
                pod=worker.profile.pod or None,
            )
            for worker in _there(view)
        )


def _room(pace: tuple[float, float], capacity: float | None) -> float:
    own, reference = pace
    return own if capacity is None else min(own, capacity * own / reference)


def _there(view: GroupView) -> list[WorkerState]:
    return [worker for _, worker in sorted(view.workers.items()) if worker.live]


def instance_of(member: str) -> int:
    """Return the instance of a member's id.

    Examples
    --------
    >>> instance_of("3#7.ab12")
    3
    """
    return int(member.partition("#")[0])
