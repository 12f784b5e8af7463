"""The published packing algorithms as policies: members that they open are requested, what they pack is owned so."""

from __future__ import annotations

import numpy as np

from balancer.packing.rivals import RIVALS, Owner
from balancer.simulator.group import Owners
from balancer.simulator.outcome import Outcome, conclude
from balancer.simulator.world import SIMULATED, World

PACKERS = tuple(RIVALS)
"""Names of :data:`balancer.packing.rivals.RIVALS`."""


def run_packer(name: str, world: World) -> Outcome:
    """Pack the partitions anew each minute by their rates of the last one, as published: no forecast, no margin.

    Members are filled up to their whole capacity, so there is nothing to tune. A partition stays where it is until the
    member that it is packed onto works.

    Raises
    ------
    ValueError
        If the arrivals are one pool: there is nothing to pack.
    KeyError
        If there is no such algorithm.
    """
    if not world.trace.partitioned:
        raise ValueError(f"{name} packs partitions; say how many there are (--partitions)")
    packer, group = RIVALS[name], world.group()
    first, order = group.fleet.requested, np.arange(world.trace.queues)
    packed = group.owners
    group.sharing = lambda working, owners: _served(packed, owners, working)
    for minute in range(world.run_minutes):
        group.advance_to(minute * 60.0)
        seen = group.observe(SIMULATED).partitions.values()
        rates = np.array([state.arrival_rate or 0.0 for state in seen])
        packed, count = numbered(packer(rates, group.owners.astype(np.intp), world.capacity, order))
        replicas = world.within(count)
        packed = packed % replicas
        if replicas != group.fleet.requested:
            group.scale(SIMULATED, replicas, group.now)
        group.own(_served(packed, group.owners, group.fleet.working))
    group.advance_to(world.run_minutes * 60.0)
    return conclude(group, world.start, first, world.slo_s, ("packed by the rates of the last minute, as published",))


def numbered(owner: Owner) -> tuple[Owners, int]:
    """Return owners numbered from 0 without a gap, and how many there are; who can keep a number does.

    Examples
    --------
    >>> numbered(np.array([0, 5, 2, 5]))
    (array([0, 1, 2, 1]), 3)
    """
    used = np.unique(owner)
    count = used.size
    free = iter(sorted(set(range(count)) - set(used.tolist())))
    names = np.array([n if n < count else next(free) for n in used.tolist()], dtype=np.int64)
    return names[np.searchsorted(used, owner)], int(count)


def _served(packed: Owners, owners: Owners, working: int) -> Owners:
    """Return who serves now: whom a partition is packed onto, if that works, else who has it, else one who works."""
    if working <= 0:
        return np.full(owners.size, -1, dtype=np.int64)
    stays = np.where((owners >= 0) & (owners < working), owners, packed % working)
    return np.where(packed < working, packed, stays)
