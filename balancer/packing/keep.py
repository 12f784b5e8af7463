"""Sticky packing onto as few equal members as pays: KEEP*, and the potential search that improves on it.

:func:`keep` states what KEEP* only implies. A packing is worth ``moved load + sum of a potential over the members``, in
units of one member's capacity; u is a member's load over its capacity:

    potential(u) = MEMBER + CROWDING exp(-(1 - u) / ROOM) - CONCENTRATION u²        (0 for a member without load)

An open member costs MEMBER. A crowded one is likely to overflow at the next change of the loads and to force a move
then; a room of about a tenth is worth having. Load that is concentrated leaves somebody else nearly empty, who can be
dissolved cheaply. So a move is made when it pays, and not otherwise; KEEP* always fills up and always dissolves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from balancer.packing.bounds import TOLERANCE
from balancer.packing.rivals import Bins

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

EMPTIEST = 24
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


TINY = 1e-12


class _Search:
    """Mutable state of one call of :func:`keep`. The last members are empty: there is always one to open."""

    def __init__(self, size: NDArray[np.float64], owner: NDArray[np.intp]) -> None:
        present = np.unique(owner[owner >= 0])
        spare = np.setdiff1d(np.arange(present.size + size.size + 1), present)[: size.size + 1]
        self.names = np.concatenate((present, spare)).astype(np.intp)
        index = np.full(int(self.names.max()) + 1, -1, dtype=np.intp)
        index[self.names] = np.arange(self.names.size)
        self.size = np.maximum(size, TINY * 2)  # an idle partition still needs an owner
        self.home = np.where(owner >= 0, index[owner], -1)
        self.owner = self.home.copy()
        held = self.owner >= 0
        self.load = np.bincount(self.owner[held], self.size[held], self.names.size).astype(np.float64)
        self.cost = potential(self.load)

    def _open(self) -> NDArray[np.intp]:
        """Return members with load, and one empty one."""
        used = np.flatnonzero(self.load > TINY)
        return np.append(used, np.flatnonzero(self.load <= TINY)[0])

    def _stop(self, item: NDArray[np.intp], member: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the load that must stop if items were with members."""
        home = self.home[item]
        return np.where((home >= 0) & (home != member), self.size[item], 0.0)

    def _set(self, member: int, load: float) -> None:
        self.load[member] = load if load > TINY else 0.0
        self.cost[member] = potential(self.load[[member]])[0]

    def _move(self, item: int, member: int) -> None:
        source = int(self.owner[item])
        if source >= 0:
            self._set(source, float(self.load[source] - self.size[item]))
        self.owner[item] = member
        self._set(member, float(self.load[member] + self.size[item]))

    def place(self, items: NDArray[np.intp]) -> None:
        """Give items, biggest first, to the members where they cost least."""
        for item in items[np.argsort(-self.size[items], kind="stable")].tolist():
            members = self._open()
            after = self.load[members] + self.size[item]
            cost = potential(after) - self.cost[members]
            cost[(after > 1 + TOLERANCE) & (self.load[members] > TINY)] = np.inf
            self._move(item, int(members[(cost + self._stop(np.array([item]), members)).argmin()]))

    def cure(self) -> None:
        """Relieve members above the capacity, fullest first; what shares a member with a hot partition goes at once."""
        for hot in np.flatnonzero(self.size > 1 + TOLERANCE).tolist():
            member = int(self.owner[hot])
            items = np.flatnonzero(self.owner == member)
            guests = items[items != hot] if self.size[hot] >= self.size[items].max() else np.array([hot])
            if guests.size:
                self._set(member, float(self.load[member] - self.size[guests].sum()))
                self.owner[guests] = -1
                self.place(guests)
        over = int((self.load > 1 + TOLERANCE).sum())
        for member in np.argsort(-self.load, kind="stable")[:over].tolist():
            while self.load[member] > 1 + TOLERANCE and self._cure_one(member):
                pass

    def _cure_one(self, member: int) -> bool:
        """Make the move or swap out of one member that gains most; False when none does."""
        items = np.flatnonzero(self.owner == member)
        if items.size < 2:  # a hot one alone
            return False
        size = self.size[items]
        leave = potential(self.load[member] - size) - self.cost[member] - self._stop(items, self.owner[items])
        members = self._open()
        members = members[members != member]
        into = potential(self.load[members] + size[:, None]) - self.cost[members]
        gain = leave[:, None] + into + self._stop(items[:, None], members)
        gain[(self.load[members] + size[:, None] > 1 + TOLERANCE) & (self.load[members] > TINY)] = np.inf
        best = int(gain.argmin())
        others = np.flatnonzero(self.owner != member)
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
                self._move(item, target)
                self._move(partner, member)
                return True
        if gain.flat[best] >= -TOLERANCE:
            return False
        self._move(int(items[best // members.size]), int(members[best % members.size]))
        return True

    def dissolve(self) -> bool:
        """Give up the member whose going gains most; False when none does."""
        used = np.flatnonzero(self.load > TINY)
        gain, best = -TOLERANCE, None
        for member in used[np.argsort(self.load[used], kind="stable")][:EMPTIEST].tolist():
            if self.load[member] > MEMBER + CROWDING:
                break
            others = used[used != member]
            if not others.size:
                break
            load, cost = self.load[others].copy(), self.cost[others].copy()
            items = np.flatnonzero(self.owner == member)
            total, targets = -float(self.cost[member]), {}
            for item in items[np.argsort(-self.size[items], kind="stable")].tolist():
                after = potential(load + self.size[item])
                price = after - cost + self._stop(np.array([item]), others)
                price[load + self.size[item] > 1 + TOLERANCE] = np.inf
                at = int(price.argmin())
                total += float(price[at]) - float(self._stop(np.array([item]), np.array([member]))[0])
                load[at], cost[at] = load[at] + self.size[item], after[at]
                targets[item] = int(others[at])
            if total < gain:
                gain, best = total, targets
        for item, target in (best or {}).items():
            self._move(item, target)
        return best is not None


def keep_star(
    loads: NDArray[np.float64], owner: NDArray[np.intp], capacity: float, *, dissolve: bool = True
) -> NDArray[np.intp]:
    """KEEP*, the reference that :func:`keep` is measured against.

    A member above the capacity gives away its cheapest sufficient partition (the smallest that cures it, else the
    biggest) until it fits; what was given away and what had no owner is placed by best fit, biggest first, and a
    member is opened only if nothing fits; then, while the emptiest member fits entirely into the others, it is
    dissolved. A partition above the capacity keeps a member of its own.

    Parameters are those of :func:`keep`.

    Examples
    --------
    >>> keep_star(np.array([70.0, 20.0, 30.0, 50.0]), np.array([0, 0, 0, 1]), 100.0)
    array([0, 1, 0, 1])
    """
    bins = Bins(loads.size, capacity)
    bins.owner = owner.copy()
    items: dict[int, list[int]] = {}
    for item in np.argsort(loads, kind="stable").tolist():  # each member's partitions, rising
        if owner[item] >= 0:
            items.setdefault(int(owner[item]), []).append(item)
    bins.load = {m: float(loads[owned].sum()) for m, owned in items.items()}
    rest: list[int] = np.flatnonzero(owner < 0).tolist()
    for member, owned in items.items():
        while bins.load[member] > bins.capacity and len(owned) > 1:
            excess = bins.load[member] - bins.capacity
            gone = next((j for j in owned if loads[j] >= excess), owned[-1])
            if loads[gone] > bins.capacity:  # hot: it stays, and the others go
                gone = owned[-2] if gone == owned[-1] else gone
            owned.remove(gone)
            rest.append(gone)
            bins.load[member] -= float(loads[gone])
    for item in sorted(rest, key=lambda j: -float(loads[j])):
        size = float(loads[item])
        target = bins.choose(size, "best")
        target = bins.open() if target is None else target
        bins.put(item, size, target)
        items.setdefault(target, []).append(item)
    while dissolve and len(bins.load) > 1 and _dissolve(bins, items, loads):
        pass
    return bins.owner


def _dissolve(bins: Bins, items: dict[int, list[int]], loads: NDArray[np.float64]) -> bool:
    member = min(bins.load, key=bins.load.__getitem__)
    load = dict(bins.load)
    del load[member]
    targets: dict[int, int] = {}
    for item in sorted(items[member], key=lambda j: -float(loads[j])):
        fitting = [m for m, have in load.items() if have + loads[item] <= bins.capacity]
        if not fitting:
            return False
        targets[item] = max(fitting, key=load.__getitem__)
        load[targets[item]] += float(loads[item])
    for item, target in targets.items():
        bins.owner[item] = target
        items[target].append(item)
    del items[member]
    bins.load = load
    return True
