"""The search behind a packing onto given members: shed, place, relieve, and a fresh start as the last resort."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from balancer.packing.bounds import TOLERANCE

ROUNDS = 20_000
"""Most moves and swaps of one search; each round cures the busiest member or gives it up."""

PARTNERS = 128
"""Members, least busy first, that are looked at as targets of a move or swap; all of them in groups up to this size."""


CLEARLY_LESS, CLEARLY_LOWER = 0.001, 0.98
"""A packing is kept unless another takes this share of all capacity off the overload, or lowers the busiest so far."""


class MemberSearch:
    """Mutable state of one call of :func:`balancer.packing.members.pack`: moves that cure, cheapest first."""

    def __init__(
        self,
        weight: NDArray[np.float64],
        room: NDArray[np.float64],
        usable: NDArray[np.bool_],
        owner: NDArray[np.intp],
        load: NDArray[np.float64],
        pinned: NDArray[np.bool_] | None,
        preferred: NDArray[np.bool_] | None,
        limit: float,
    ) -> None:
        self.weight, self.room, self.usable = weight, room, usable
        self.origin, self.owner, self.load = owner, owner.copy(), load
        self.movable = np.ones(weight.size, bool) if pinned is None else ~pinned
        self.preferred, self.limit = preferred, limit
        self.closed = np.where(usable, 0.0, np.inf)
        """Added to a utilization: what may not be chosen is infinitely busy."""
        self.items: list[list[int]] = []
        """Partitions of each member, while :meth:`relieve` runs."""
        self.choice: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.age = 0

    def has_gained(self, before: NDArray[np.float64]) -> bool:
        """Whether the find is clearly better than keeping: less load above capacity, or a lower busiest member."""

        def over(load: NDArray[np.float64]) -> float:
            return float(np.maximum(load - self.room, 0)[self.usable].sum())

        def busiest(load: NDArray[np.float64]) -> float:
            return float((load / self.room)[self.usable].max())

        less_over = over(self.load) < over(before) - CLEARLY_LESS * float(self.room[self.usable].sum())
        return less_over or busiest(self.load) < CLEARLY_LOWER * busiest(before)

    def shed(self) -> None:
        """Take from each member above the limit the cheapest load whose going cures it."""
        bound = self.limit * self.room * (1 + TOLERANCE)
        over = self.usable & (self.load > bound)
        held = np.flatnonzero((self.owner >= 0) & self.movable)
        held = held[over[self.owner[held]]]
        held = held[np.argsort(self.owner[held], kind="stable")]
        for items in np.split(held, np.flatnonzero(np.diff(self.owner[held])) + 1):
            if not items.size:
                continue
            member = int(self.owner[items[0]])
            sizes = self.weight[items]
            stays = int(np.argmax(sizes)) if sizes.max() > self.room[member] else -1
            gone = cheapest_sufficient(sizes, float(self.load[member] - self.limit * self.room[member]), stays)
            self.owner[items[gone]] = -1
            self.load[member] -= sizes[gone].sum()

    def place(self) -> None:
        """Give everything without an owner, biggest first, to the member that it leaves least busy."""
        homeless = np.flatnonzero(self.owner < 0)
        for item in homeless[np.argsort(-self.weight[homeless], kind="stable")]:
            after = (self.load + self.weight[item]) / self.room + self.closed
            member = int(after.argmin())
            home = int(self.origin[item])
            if self.preferred is not None:
                near = np.where(self.preferred[item], after, np.inf)
                if near.min() <= self.limit:
                    member = int(near.argmin())
            if home >= 0 and after[home] <= after[member] * (1 + 1e-6):
                member = home
            self.owner[item] = member
            self.load[member] += self.weight[item]

    def relieve(self, target: float, budget: int | None) -> None:
        """Cure the busiest members by the cheapest moves and swaps, until all are below the limit or beyond help."""
        self.items = [[] for _ in range(self.room.size)]
        for item, member in enumerate(self.owner.tolist()):
            self.items[member].append(item)
        beyond_help = ~self.usable
        rounds = 0
        while rounds < ROUNDS:
            busy = np.where(beyond_help, 0.0, self.load / self.room)
            over = np.flatnonzero(busy > self.limit * (1 + TOLERANCE))
            if not over.size:
                return
            for member in over[np.argsort(-busy[over], kind="stable")].tolist():
                while rounds < ROUNDS and self.load[member] > self.limit * self.room[member] * (1 + TOLERANCE):
                    rounds += 1
                    left = None if budget is None else budget - self._moved()
                    if (left is not None and left <= 0) or not self._relieve_one(member, target, left):
                        beyond_help[member] = True
                        break

    def _moved(self) -> int:
        return int(((self.owner != self.origin) & (self.origin >= 0)).sum())

    def _relieve_one(self, member: int, target: float, left: int | None) -> bool:
        items = self._movable_of([member])
        if items.size == 0:
            return False
        size = self.weight[items]
        now = float(self.load[member] / self.room[member])
        hot = bool(size.max() > self.room[member])
        # A move: the busier of the two members afterwards, at the best target of each partition.
        partners = self._partners(member)
        if not partners.size:
            return False
        after = (self.load[partners] + size[:, None]) / self.room[partners]
        nearest = after.argmin(axis=1)
        best, there = partners[nearest], after[np.arange(items.size), nearest]
        here = (self.load[member] - size) / self.room[member]
        if hot:  # the hot partition stays alone; whatever shares its member goes where it fits
            small = np.flatnonzero((size < size.max()) & (there <= 1.0 + TOLERANCE))
            if small.size:
                pick = int(small[np.argmax(size[small])])
                return self._move(items[pick], int(best[pick]))
        worse = np.maximum(here, there)
        cost, goes = np.inf, -1
        cured = np.flatnonzero(worse <= target * (1 + TOLERANCE))
        if cured.size:
            goes = int(cured[np.argmin(size[cured])])
            cost = float(size[goes])
        swap = self._best_swap(member, items, partners, target, cost) if left is None or left > 1 else None
        if swap is not None and swap[2]:
            return self._swap(swap[0], swap[1])
        if goes >= 0:
            return self._move(items[goes], int(best[goes]))
        # Nothing cures it at once: take the biggest improvement, if it is one.
        least = 0.02 if now > 1.0 else 0.1
        pick = int(worse.argmin())
        gain_by_move, gain_by_swap = now - float(worse[pick]), now - swap[3] if swap is not None else -np.inf
        if swap is not None and gain_by_swap > max(gain_by_move, least * now):
            return self._swap(swap[0], swap[1])
        return gain_by_move > least * now and self._move(items[pick], int(best[pick]))

    def _movable_of(self, members: list[int]) -> NDArray[np.intp]:
        owned = [item for member in members for item in self.items[member] if self.movable[item]]
        return np.array(owned, dtype=np.intp)

    def _partners(self, member: int) -> NDArray[np.intp]:
        """Return the members that may take something over, at most :data:`PARTNERS`, the least busy ones.

        In larger groups the choice is renewed now and then: many have room, and loads are looked up afresh anyhow.
        """
        if self.age == 0:
            members = np.flatnonzero(self.usable)
            if members.size > PARTNERS:
                busy = self.load[members] / self.room[members]
                members = members[np.argpartition(busy, PARTNERS)[:PARTNERS]]
            self.choice = members
        self.age = (self.age + 1) % (PARTNERS // 8)
        others: NDArray[np.intp] = self.choice[self.choice != member]
        return others

    def _best_swap(
        self, member: int, items: NDArray[np.intp], partners: NDArray[np.intp], target: float, below: float
    ) -> tuple[np.intp, np.intp, bool, float] | None:
        """Cheapest swap that cures (cheaper than ``below``), else the one that improves most."""
        others = self._movable_of(partners.tolist())
        if others.size == 0:
            return None
        size, other = self.weight[items][:, None], self.weight[others][None, :]
        theirs = self.owner[others]
        here = (self.load[member] - size + other) / self.room[member]
        there = (self.load[theirs] + size - other) / self.room[theirs]
        worse = np.where(other < size, np.maximum(here, there), np.inf)
        cost = np.where(worse <= target * (1 + TOLERANCE), size + other, np.inf)
        at = int(cost.argmin())
        if cost.flat[at] < below:
            return items[at // others.size], others[at % others.size], True, float(worse.flat[at])
        at = int(worse.argmin())
        if not np.isfinite(worse.flat[at]):
            return None
        return items[at // others.size], others[at % others.size], False, float(worse.flat[at])

    def _swap(self, one: np.intp, other: np.intp) -> bool:
        first, second = int(self.owner[one]), int(self.owner[other])
        return self._move(one, second) and self._move(other, first)

    def _move(self, item: np.intp, target: int) -> bool:
        source = int(self.owner[item])
        self.load[source] -= self.weight[item]
        self.load[target] += self.weight[item]
        self.owner[item] = target
        self.items[source].remove(int(item))
        self.items[target].append(int(item))
        return True

    def start_afresh_if_overloaded(self) -> None:
        """Pack anew where load still exceeds capacity and a fresh packing carries clearly more of it."""
        over = float(np.maximum(self.load - self.room, 0)[self.usable].sum())
        hot = float(np.maximum(self.weight - self.room.max(), 0).sum())
        ideal = max(hot, float(self.weight.sum() - self.room[self.usable].sum()))  # what no packing avoids
        slack = 0.002 * float(self.room[self.usable].sum())
        if over - ideal <= slack or self.room.size > 2000:
            return
        fresh = MemberSearch(
            self.weight,
            self.room,
            self.usable,
            np.full_like(self.owner, -1),
            np.zeros_like(self.load),
            None,
            self.preferred,
            self.limit,
        )
        fresh.place()
        fresh.relieve(self.limit, None)
        if float(np.maximum(fresh.load - fresh.room, 0)[self.usable].sum()) < over - slack:
            self.owner = relabel(fresh.owner, self.origin, self.weight, self.room)
            self.load = np.bincount(self.owner, self.weight, self.room.size).astype(np.float64)


def cheapest_sufficient(sizes: NDArray[np.float64], excess: float, stays: int = -1) -> NDArray[np.intp]:
    """Choose what a member gives away: the least sum that is at least the excess.

    Exact for up to a dozen partitions; beyond, the smallest single one that suffices, else the biggest, repeated.
    ``stays`` is the index of a partition that never goes (a hot one), -1 for none.

    Examples
    --------
    >>> cheapest_sufficient(np.array([50.0, 30.0, 8.0, 4.0]), 11.0)
    array([2, 3])
    """
    if stays < 0 and sizes.size == 1:
        return np.array([], dtype=np.intp)  # alone on its member already: moving it cures nothing
    candidates = np.array([i for i in range(sizes.size) if i != stays], dtype=np.intp)
    have = sizes[candidates]
    if have.sum() <= excess:
        return candidates
    if have.size <= 12:
        choices = (np.arange(1 << have.size)[:, None] >> np.arange(have.size)) & 1
        sums = choices @ have
        sums[sums < excess * (1 - TOLERANCE)] = np.inf
        cheapest = np.flatnonzero(sums <= sums.min() * (1 + TOLERANCE))
        chosen = cheapest[np.argmin(choices[cheapest].sum(axis=1))]
        return candidates[np.flatnonzero(choices[chosen])]
    order = np.argsort(have)
    gone: list[int] = []
    while excess > 0 and order.size:
        at = min(int(np.searchsorted(have[order], excess)), order.size - 1)
        gone.append(int(order[at]))
        excess -= float(have[order[at]])
        order = np.delete(order, at)
    return candidates[np.array(sorted(gone), dtype=np.intp)]


def relabel(
    fresh: NDArray[np.intp], current: NDArray[np.intp], loads: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Name the bins of a fresh packing so that as much load as possible stays where it is.

    Only members of equal capacity exchange their names. A linear sum assignment on the load that each pair shares.

    Examples
    --------
    >>> relabel(np.array([1, 0]), np.array([0, 1]), np.array([5.0, 5.0]), np.array([9.0, 9.0]))
    array([0, 1])
    """
    members = capacity.size
    shared = np.zeros((members, members))
    both = (fresh >= 0) & (current >= 0)
    np.add.at(shared, (fresh[both], current[both]), loads[both])
    unequal = np.abs(capacity[:, None] - capacity[None, :]) > TOLERANCE * capacity.max()
    shared[unequal] = -1e18
    bins, names = linear_sum_assignment(shared, maximize=True)
    name = np.empty(members, dtype=np.intp)
    name[bins] = names
    return name[fresh]
