"""What the planner asks of a worker: the difference between the leases it sees and what the worker holds. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from balancer.consumer.holdings import Held, Holdings
from balancer.leases.base import Lease, LeaseState, Owner, WorkerView
from forecaster.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do, in this order."""

    gone: list[Held] = field(default_factory=list)
    """Believed to be held, and no longer ours."""
    unknown: list[Lease] = field(default_factory=list)
    """Ours without our knowing: taken by a call whose answer was lost."""
    give: list[Lease] = field(default_factory=list)
    """Ours, never begun, and not to be: to be released as they are, which needs no offset."""
    void: list[Held] = field(default_factory=list)
    """To be dropped without a commit."""
    release: list[Held] = field(default_factory=list)
    take: list[TopicPartition] = field(default_factory=list)


def orders_in(
    view: WorkerView,
    me: Owner,
    holdings: Holdings,
    owed: Container[TopicPartition],
    *,
    quiet: bool,
    leaving: bool = False,
) -> Orders:
    """Compare what the store says with what is held.

    Parameters
    ----------
    view, me
        What concerns the worker, and who it is.
    holdings
        What it believes to hold.
    owed
        Partitions given up of which the store has not been told yet.
    quiet
        Whether nothing of ours was under way when the view was made; only then a difference means a lost answer.
    leaving
        Whether it begins nothing any more.
    """
    asked = Orders()
    leaving = leaving or view.draining or view.released
    for tp, lease in view.leases.items():
        held = holdings.of(tp)
        if lease.state is LeaseState.HELD and lease.owner == me:
            if held is None:
                if quiet and tp not in owed:
                    is_over = leaving or lease.void or lease.next not in (None, me)
                    (asked.give if is_over else asked.unknown).append(lease)
            elif held.lease.epoch != lease.epoch:
                continue
            elif lease.void:
                asked.void.append(held)
            elif lease.next is not None and lease.next != me:
                asked.release.append(held)
        elif lease.state is LeaseState.FREE and lease.next == me and tp not in owed and held is None:
            asked.take.append(tp)
    if quiet:
        asked.gone.extend(h for h in holdings if (x := view.leases.get(h.lease.partition)) is None or x.owner != me)
    return asked
