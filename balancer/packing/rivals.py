"""Packing algorithms to be compared with, as published. The planner never chooses them.

All pack equal members without a limit on their number: ``(loads, owner, capacity, order) -> owner`` with shape
(partitions,) arrays, member numbers from 0, -1 for "nobody". The classical ones look at partitions in the given order;
their "decreasing" variants and the modified ones of Landau, Andrade and Barbosa (arXiv 2206.11170, 2402.06085) have an
order of their own. A partition above the capacity takes an empty member alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from balancer.packing.bounds import TOLERANCE

Loads = NDArray[np.float64]
Owner = NDArray[np.intp]
Packer = Callable[[Loads, Owner, float, NDArray[np.intp]], Owner]


class Bins:
    """Open members with what they carry, in the order in which they were opened."""

    def __init__(self, partitions: int, capacity: float) -> None:
        self.capacity = capacity * (1 + TOLERANCE)
        self.load: dict[int, float] = {}
        self.owner = np.full(partitions, -1, dtype=np.intp)

    def put(self, item: int, size: float, member: int) -> None:
        """Give a partition to an open member."""
        self.load[member] += size
        self.owner[item] = member

    def open(self, wish: int = -1) -> int:
        """Open the member that is wished for if it is not open, else the one with the lowest free number."""
        if wish < 0 or wish in self.load:
            wish = next(n for n in range(len(self.load) + 1) if n not in self.load)
        self.load[wish] = 0.0
        return wish

    def fitting(self, size: float) -> list[int]:
        """Return members with room; an empty one takes any size."""
        return [m for m, load in self.load.items() if load + size <= self.capacity or load == 0.0]

    def choose(self, size: float, rule: str) -> int | None:
        """Pick a fitting member by ``next``, ``first``, ``worst`` or ``best``; None if none fits."""
        fitting = self.fitting(size)
        if rule == "next":
            fitting = [m for m in fitting if m == next(reversed(self.load))]
        if not fitting:
            return None
        if rule in ("next", "first"):
            return fitting[0]
        return (min if rule == "worst" else max)(fitting, key=self.load.__getitem__)


def any_fit(loads: Loads, owner: Owner, capacity: float, order: NDArray[np.intp], rule: str) -> Owner:
    """Pack from nothing in the given order; a new member takes the number of the partition's present owner if free.

    Examples
    --------
    >>> any_fit(np.array([60.0, 50.0, 40.0]), np.full(3, -1), 100.0, np.arange(3), "first")
    array([0, 1, 0])
    """
    bins = Bins(loads.size, capacity)
    for item in order.tolist():
        size = float(loads[item])
        member = bins.choose(size, rule)
        bins.put(item, size, bins.open(int(owner[item])) if member is None else member)
    return bins.owner


def any_fit_decreasing(loads: Loads, owner: Owner, capacity: float, rule: str) -> Owner:
    """Pack from nothing, biggest first."""
    return any_fit(loads, owner, capacity, np.argsort(-loads, kind="stable"), rule)


def best_fit_decreasing(loads: Loads, owner: Owner, capacity: float) -> Owner:
    """Pack from nothing, biggest first, onto the fullest member with room.

    Examples
    --------
    >>> best_fit_decreasing(np.array([60.0, 50.0, 40.0]), np.full(3, -1), 100.0)
    array([0, 1, 0])
    """
    return any_fit_decreasing(loads, owner, capacity, "best")


def modified_any_fit(loads: Loads, owner: Owner, capacity: float, rule: str, by_biggest: bool) -> Owner:
    """Landau's modified any fit: members keep what they can, in decreasing order of their load.

    For each member: its partitions go, smallest first, into members that are open already, until one does not fit
    there; for the rest the member itself is opened and filled biggest first, until one does not fit. What is left is
    placed at the end, biggest first.

    Parameters
    ----------
    rule
        ``worst`` (MWF) or ``best`` (MBF).
    by_biggest
        Order members by their biggest partition instead of their sum (the "P" variants).
    """
    bins = Bins(loads.size, capacity)
    owned = {int(m): np.flatnonzero(owner == m) for m in np.unique(owner) if m >= 0}
    key = {m: float(loads[items].max() if by_biggest else loads[items].sum()) for m, items in owned.items()}
    rest: list[int] = np.flatnonzero(owner < 0).tolist()
    for member in sorted(owned, key=lambda m: -key[m]):
        items = sorted(owned[member].tolist(), key=lambda j: -float(loads[j]))
        while items:
            target = bins.choose(float(loads[items[-1]]), rule)
            if target is None:
                break
            item = items.pop()
            bins.put(item, float(loads[item]), target)
        if not items:
            continue
        bins.open(member)
        for at, item in enumerate(items):
            if member not in bins.fitting(float(loads[item])):
                rest += items[at:]
                break
            bins.put(item, float(loads[item]), member)
    for item in sorted(rest, key=lambda j: -float(loads[j])):
        target = bins.choose(float(loads[item]), rule)
        bins.put(item, float(loads[item]), bins.open(int(owner[item])) if target is None else target)
    return bins.owner


def keep_star(
    loads: NDArray[np.float64], owner: NDArray[np.intp], capacity: float, *, dissolve: bool = True
) -> NDArray[np.intp]:
    """KEEP*, the sticky reference that :func:`balancer.packing.keep.keep` is measured against.

    A member above the capacity gives away its cheapest sufficient partition (the smallest that cures it, else the
    biggest) until it fits; what was given away and what had no owner is placed by best fit, biggest first, and a
    member is opened only if nothing fits; then, while the emptiest member fits entirely into the others, it is
    dissolved. A partition above the capacity keeps a member of its own.

    Parameters are those of :func:`balancer.packing.keep.keep`.

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


def _classical(rule: str) -> Packer:
    return lambda loads, owner, capacity, order: any_fit(loads, owner, capacity, order, rule)


def _decreasing(rule: str) -> Packer:
    return lambda loads, owner, capacity, order: any_fit_decreasing(loads, owner, capacity, rule)


def _modified(rule: str, by_biggest: bool) -> Packer:
    return lambda loads, owner, capacity, order: modified_any_fit(loads, owner, capacity, rule, by_biggest)


RIVALS: dict[str, Packer] = {
    "nf": _classical("next"),
    "ff": _classical("first"),
    "wf": _classical("worst"),
    "bf": _classical("best"),
    "nfd": _decreasing("next"),
    "ffd": _decreasing("first"),
    "wfd": _decreasing("worst"),
    "bfd": _decreasing("best"),
    "mwf": _modified("worst", by_biggest=False),
    "mbf": _modified("best", by_biggest=False),
    "mwfp": _modified("worst", by_biggest=True),
    "mbfp": _modified("best", by_biggest=True),
    "keep_star": lambda loads, owner, capacity, order: keep_star(loads, owner, capacity),
}
"""Name → algorithm."""
