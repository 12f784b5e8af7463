"""Who gets a partition that nobody holds: the member the plan names, else whoever has least (pure)."""

from __future__ import annotations

from collections.abc import Container, Mapping

from balancer.leases.base import GroupView, LeaseState
from forecaster.topics import TopicPartition


def grants_for_free(
    view: GroupView, wanted: Mapping[TopicPartition, int], withheld: Container[TopicPartition] = frozenset()
) -> list[tuple[TopicPartition, int]]:
    """Return (partition, instance) for every FREE lease without a grant.

    Parameters
    ----------
    view
        The group.
    wanted
        Partition → instance of the plan; followed where that instance may receive.
    withheld
        Partitions that must stay free, such as lanes whose gate is closed.
    """
    load = dict.fromkeys((i for i, w in view.workers.items() if w.may_receive), 0)
    if not load:
        return []
    for lease in view.leases.values():
        for owner in {lease.next.instance} if lease.next else {lease.owner.instance} if lease.owner else set():
            if owner in load:
                load[owner] += 1
    free = sorted(
        lease.partition
        for lease in view.leases.values()
        if lease.state is LeaseState.FREE and lease.next is None and lease.partition not in withheld
    )
    grants = []
    for tp in free:
        target = wanted.get(tp)
        if target not in load:
            target = min(load, key=lambda i: (load[i], i))
        load[target] += 1
        grants.append((tp, target))
    return grants


def drains_for(view: GroupView) -> list[tuple[TopicPartition, int]]:
    """Return (partition, new instance) for what draining workers hold and nobody has been granted yet."""
    load = dict.fromkeys((i for i, w in view.workers.items() if w.may_receive), 0)
    if not load:
        return []
    for lease in view.leases.values():
        owner = lease.next or lease.owner
        if owner is not None and owner.instance in load:
            load[owner.instance] += 1
    moves = []
    for tp, lease in sorted(view.leases.items()):
        if lease.state is not LeaseState.HELD or lease.next is not None or lease.owner is None:
            continue
        worker = view.workers.get(lease.owner.instance)
        if worker is not None and worker.owner == lease.owner and worker.draining and worker.live:
            target = min(load, key=lambda i: (load[i], i))
            load[target] += 1
            moves.append((tp, target))
    return moves
