"""Sticky packing onto as few equal members as pays: KEEP*, and the potential search that improves on it.

:func:`keep` states what KEEP* only implies. A packing is worth ``moved load + sum of a potential over the members``, in
units of one member's capacity; u is a member's load over its capacity:

    potential(u) = MEMBER + CROWDING exp(-(1 - u) / ROOM) - CONCENTRATION u²        (0 for a member without load)

An open member costs MEMBER. A crowded one is likely to overflow at the next change of the loads and to force a move
then; a room of about a tenth is worth having. Load that is concentrated leaves somebody else nearly empty, who can be
dissolved cheaply. So a move is made when it pays, and not otherwise; KEEP* always fills up and always dissolves.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort

import numpy as np
from numpy.typing import NDArray

from balancer.packing.bounds import TOLERANCE

MEMBER = 0.8
"""What keeping a member is worth avoiding for: dissolving one may move up to about this share of its capacity."""

CROWDING = 0.3
"""Expected movement that follows from filling a member to the brim."""

ROOM = 0.1
"""Share of the capacity within which crowding fades."""

CONCENTRATION = 0.2
"""Worth of load being together rather than spread."""

OVERFLOW = 10.0
"""Price of load above the capacity: dearer than any movement that cures it."""

WIDTH = 64
"""Members that are looked at for one load; more are sampled: fuller ones by their room, and the emptiest."""

EMPTIEST = 40
"""Members that are looked at for dissolving, emptiest first; fuller ones cannot pay."""


def keep(
    loads: NDArray[np.float64], owner: NDArray[np.intp], capacity: float, *, dissolve: bool = True
) -> NDArray[np.intp]:
    """Pack stickily: the least of movement and members together.

    What has no owner is placed, biggest first; then each member above the capacity gives away or swaps what costs
    least, until it fits; then members are dissolved while that pays. A partition above the capacity keeps a member of
    its own.

    Parameters
    ----------
    loads
        Shape (partitions,), records/s: forecast peaks until the next planned move. Finite, not negative.
    owner
        Shape (partitions,), present owner, -1 where there is none. Numbers may be any that are not negative.
    capacity
        Records/s that may be planned onto one member.
    dissolve
        False while a scale-down is not due: no member is given up.

    Returns
    -------
    ndarray
        Shape (partitions,), the new owner; a new member has the lowest free number.

    Examples
    --------
    Giving away 30 leaves both members some room; 20 would fill the first to the brim.

    >>> keep(np.array([70.0, 20.0, 30.0, 50.0]), np.array([0, 0, 0, 1]), 100.0)
    array([0, 0, 1, 1])
    """
    if not 0 < capacity < np.inf:
        raise ValueError(f"capacity={capacity} must be a positive number of records/s")
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError("loads must be finite and not negative")
    if not loads.size:
        return owner.copy()
    search = _Search(loads / capacity, owner)
    search.place(np.flatnonzero(owner < 0))
    search.cure()
    if dissolve:
        while search.dissolve():
            pass
    return search.names[search.owner]


def potential(utilization: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cost of members by their load over capacity; see the head of this file.

    Examples
    --------
    >>> potential(np.array([0.0, 0.5, 1.0, 1.2])).round(2).tolist()
    [0.0, 0.75, 0.9, 6.81]
    """
    slack = 1.0 - utilization
    cost = MEMBER + CROWDING * np.exp(np.minimum(-slack / ROOM, 0.0)) - CONCENTRATION * utilization**2
    over = slack < -TOLERANCE
    cost[over] += OVERFLOW * (0.4 - slack[over])
    cost[utilization <= TINY] = 0.0
    return cost


def _potential_of(utilization: float) -> float:
    """Return the potential of one member: the same, without an array."""
    if utilization <= TINY:
        return 0.0
    slack = 1.0 - utilization
    cost = MEMBER + CROWDING * math.exp(min(-slack / ROOM, 0.0)) - CONCENTRATION * utilization**2
    return cost + OVERFLOW * (0.4 - slack) if slack < -TOLERANCE else cost


TINY = 1e-12


class _Search:
    """Mutable state of one call of :func:`keep`; members by index, their public numbers in ``names``."""

    def __init__(self, size: NDArray[np.float64], owner: NDArray[np.intp]) -> None:
        present = np.unique(owner[owner >= 0])
        spare = np.setdiff1d(np.arange(present.size + size.size + 1), present)[: size.size + 1]
        self.names = np.concatenate((present, spare)).astype(np.intp)
        index = np.full(int(self.names.max()) + 1, -1, dtype=np.intp)
        index[self.names] = np.arange(self.names.size)
        self.size = np.maximum(size, TINY * 2)  # an idle partition still needs an owner
        self.home = np.where(owner >= 0, index[owner], -1)
        self.owner = self.home.copy()
        self.load = np.zeros(self.names.size)
        self.cost = np.zeros(self.names.size)
        self.items: list[set[int]] = [set() for _ in range(self.names.size)]
        held = np.flatnonzero(self.owner >= 0)
        loads = np.bincount(self.owner[held], self.size[held], self.names.size)
        for item, member in zip(held.tolist(), self.owner[held].tolist(), strict=True):
            self.items[member].add(item)
        self.order: list[tuple[float, int]] = []
        """(load, member) of every member with load, rising."""
        for member in np.flatnonzero(loads > TINY).tolist():
            self._set(member, float(loads[member]))
        self.empty = [m for m in range(self.names.size - 1, -1, -1) if self.load[m] == 0.0]
        """Members without load, the lowest number last."""

    def _set(self, member: int, load: float) -> None:
        if self.load[member] > 0.0:
            del self.order[bisect_left(self.order, (float(self.load[member]), member))]
            if load <= TINY:
                self.empty.append(member)
        self.load[member] = load if load > TINY else 0.0
        self.cost[member] = _potential_of(float(self.load[member]))
        if load > TINY:
            insort(self.order, (load, member))

    def _near(self, size: float) -> NDArray[np.intp]:
        """Return members that may take a load, fullest and emptiest among them; all of them in groups up to WIDTH."""
        count = len(self.order)
        if count <= WIDTH:
            return np.array([m for _, m in self.order], dtype=np.intp)
        fits = bisect_right(self.order, (1.0 + TOLERANCE - size, self.names.size))
        first = min(bisect_left(self.order, (1.0 - 4 * ROOM - size, -1)), fits)
        spread = first + np.arange(WIDTH // 2) * (fits - first) // (WIDTH // 2)
        places = np.unique(np.concatenate((spread[spread < fits], np.arange(min(fits, WIDTH // 4)))))
        return np.array([self.order[at][1] for at in places.tolist()], dtype=np.intp)

    def _open(self, size: float) -> NDArray[np.intp]:
        """Return members that may take a load, and one empty one."""
        return np.append(self._near(size), self.empty[-1])

    def _stop(self, item: NDArray[np.intp], member: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the load that must stop if items were with members."""
        home = self.home[item]
        return np.where((home >= 0) & (home != member), self.size[item], 0.0)

    def _take(self, item: int) -> None:
        member = int(self.owner[item])
        self.owner[item] = -1
        self.items[member].discard(item)
        self._set(member, float(self.load[member] - self.size[item]) if self.items[member] else 0.0)

    def _move(self, item: int, member: int) -> None:
        if self.owner[item] >= 0:
            self._take(item)
        if self.load[member] == 0.0:
            self.empty.pop() if self.empty[-1] == member else self.empty.remove(member)
        self.owner[item] = member
        self.items[member].add(item)
        self._set(member, float(self.load[member] + self.size[item]))

    def place(self, items: NDArray[np.intp]) -> None:
        """Give items, biggest first, to the members where they cost least."""
        for item in items[np.argsort(-self.size[items], kind="stable")].tolist():
            members = self._open(float(self.size[item]))
            load = self.load[members]
            after = load + self.size[item]
            cost = potential(after) - self.cost[members] + self._stop(np.array([item]), members)
            cost[(after > 1 + TOLERANCE) & (load > 0.0)] = np.inf
            self._move(item, int(members[cost.argmin()]))

    def cure(self) -> None:
        """Relieve members above the capacity, fullest first; what shares a member with a hot partition goes at once."""
        for hot in np.flatnonzero(self.size > 1 + TOLERANCE).tolist():
            owned = np.array(sorted(self.items[int(self.owner[hot])]), dtype=np.intp)
            guests = owned[owned != hot] if self.size[hot] >= self.size[owned].max() else np.array([hot])
            for item in guests.tolist():
                self._take(item)
            self.place(guests)
        for load, member in self.order[::-1]:
            if load <= 1 + TOLERANCE:
                break
            while self.load[member] > 1 + TOLERANCE and self._cure_one(member):
                pass

    def _cure_one(self, member: int) -> bool:
        """Make the move or swap out of one member that gains most; False when none does."""
        items = np.array(sorted(self.items[member]), dtype=np.intp)
        if items.size < 2:  # a hot one alone
            return False
        size = self.size[items]
        leave = potential(self.load[member] - size) - self.cost[member] - self._stop(items, self.owner[items])
        members = np.unique(np.concatenate([self._open(float(s)) for s in size[:8]]))
        members = members[members != member]
        after = self.load[members] + size[:, None]
        gain = leave[:, None] + potential(after) - self.cost[members] + self._stop(items[:, None], members)
        gain[(after > 1 + TOLERANCE) & (self.load[members] > 0.0)] = np.inf
        best = int(gain.argmin())
        every = max(len(self.order) // (2 * WIDTH), 1)  # partners of a swap need no room, so look everywhere
        partners = {m for _, m in self.order[::every]} - {member}
        others = np.array([j for m in sorted(partners) for j in self.items[m]], dtype=np.intp)
        if others.size:
            theirs, other = self.owner[others], self.size[others]
            difference = other - size[:, None]
            swap = (
                potential(self.load[member] + difference)
                - self.cost[member]
                + potential(self.load[theirs] - difference)
                - self.cost[theirs]
                + self._stop(items[:, None], theirs)
                + self._stop(others, np.full(others.size, member))
                - self._stop(items, self.owner[items])[:, None]
                - self._stop(others, theirs)
            )
            swap[self.load[theirs] - difference > 1 + TOLERANCE] = np.inf
            at = int(swap.argmin())
            if swap.flat[at] < min(float(gain.flat[best]), -TOLERANCE):
                item, partner = int(items[at // others.size]), int(others[at % others.size])
                target = int(self.owner[partner])
                self._take(partner)
                self._move(item, target)
                self._move(partner, member)
                return True
        if gain.flat[best] >= -TOLERANCE:
            return False
        self._move(int(items[best // members.size]), int(members[best % members.size]))
        return True

    def dissolve(self) -> bool:
        """Give up the member whose going gains most; False when none does."""
        gain, best = -TOLERANCE, None
        for load, member in self.order[:EMPTIEST]:
            if load > MEMBER + CROWDING or len(self.order) < 2:
                break
            items = np.array(sorted(self.items[member]), dtype=np.intp)
            total, targets = -float(self.cost[member]), {}
            after: dict[int, float] = {}
            for item in items[np.argsort(-self.size[items], kind="stable")].tolist():
                others = self._near(float(self.size[item]))
                others = others[others != member]
                before = self.load[others]
                for at in [n for n, m in enumerate(others.tolist()) if m in after]:
                    before[at] = after[int(others[at])]
                price = potential(before + self.size[item]) - potential(before) + self._stop(np.array([item]), others)
                price[before + self.size[item] > 1 + TOLERANCE] = np.inf
                if not price.size or not np.isfinite(price.min()):
                    total = np.inf
                    break
                at = int(price.argmin())
                total += float(price[at]) - float(self._stop(np.array([item]), np.array([member]))[0])
                targets[item] = int(others[at])
                after[targets[item]] = float(before[at] + self.size[item])
            if total < gain:
                gain, best = total, targets
        for item, target in (best or {}).items():
            self._move(item, target)
        return best is not None
