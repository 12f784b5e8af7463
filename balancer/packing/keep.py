"""KEEP*: sticky packing onto as few equal members as keeping allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from balancer.packing.rivals import Bins


def keep_star(
    loads: NDArray[np.float64], owner: NDArray[np.intp], capacity: float, *, dissolve: bool = True
) -> NDArray[np.intp]:
    """Keep everything; cure what is too full; place the rest; give up the emptiest members.

    A member above the capacity gives away its cheapest sufficient partition (the smallest that cures it, else the
    biggest) until it fits; what was given away and what had no owner is placed by best fit, biggest first, and a
    member is opened only if nothing fits; then, while the emptiest member fits entirely into the others, it is
    dissolved. A partition above the capacity keeps a member of its own.

    Parameters
    ----------
    loads
        Records/s, one a partition.
    owner
        Present owner, -1 where there is none.
    capacity
        Records/s of one member.
    dissolve
        False while a scale-down is not due: no member is given up.

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
