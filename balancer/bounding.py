"""What keeps a plan from doing better, from when on, and what would help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import CapacityCurve
from balancer.demand import CELLS
from balancer.group import GroupSnapshot
from balancer.hotspots import HotKey, HotPartition, bound_of, hot_partitions, proposals
from balancer.knobs import Knobs
from balancer.plan import Bound, BoundKind, Proposal
from balancer.policy import ScalingPolicy
from forecaster.forecast import Forecast

FULL = {
    BoundKind.PARTITION: "as many as the partitions can keep busy",
    BoundKind.DOWNSTREAM: "what lies downstream takes no more",
    BoundKind.MAX_REPLICAS: "max_replicas allows no more",
}
"""Why no member comes although records wait."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What is known of a group's topics beyond their partitions.

    Parameters
    ----------
    topics
        Topics whose producers are routed: a split there keeps the order of each key.
    keys
        Keys that were found hot, as :func:`balancer.hotspots.hot_keys` gives them.
    """

    topics: frozenset[str] = frozenset()
    keys: Sequence[HotKey] = ()


UNROUTED = Routing()


def hot_in(
    snapshot: GroupSnapshot, forecast: Forecast | None, capacity: float, policy: ScalingPolicy, knobs: Knobs
) -> tuple[HotPartition, ...]:
    """Return the partitions that will take a large share of the fastest member, at the level that the plan uses."""
    if forecast is None or not policy.cap_at_partitions:
        return ()
    fastest = fastest_member(snapshot, capacity)
    level = forecast.nearest_level(knobs.near_level)
    if float(forecast.peaks(level, 0, forecast.steps).max(initial=0.0)) <= policy.hot_share * fastest:
        return ()
    rates = forecast.rates[:, :, level]
    return hot_partitions(forecast.rows, rates, forecast.origin, forecast.step, fastest, policy.hot_share)


def bound(
    demand: NDArray[np.float64],
    curve: CapacityCurve,
    hot: Sequence[HotPartition],
    routing: Routing,
    ceiling: int | None,
    limit: int,
    policy: ScalingPolicy,
    forecast: Forecast | None,
    now: datetime,
    at_most: NDArray[np.intp] | None = None,
) -> Bound:
    """Return what bounds a plan.

    Parameters
    ----------
    demand
        Shape (cells,), records/s.
    curve
        What so many members sustain.
    hot
        Of :func:`hot_in`.
    routing
        Hot keys among it.
    ceiling
        Members beyond which throughput did not grow; None while nothing is known against more.
    limit
        Members that policy and partitions allow.
    policy
        Says whether partitions or ``max_replicas`` is the limit.
    forecast
        What is planned with; None where plans follow what is seen, for want of history.
    now
        Aware UTC.
    at_most
        Members that pre-scaling windows allow, shape (cells,).
    """
    saturating = bound_of(hot, routing.keys)
    if saturating is not None:
        return saturating
    allowed = np.full(demand.shape, min(ceiling if ceiling is not None else limit, curve.max_members))
    windowed = np.zeros(demand.shape, dtype=bool)
    if at_most is not None:
        at_most = np.maximum(at_most, policy.min_replicas)
        windowed = at_most < allowed
        allowed = np.minimum(allowed, at_most)
    over = demand > curve.rates[allowed] * (1 + 1e-9)
    if over.any():
        first = int(np.argmax(over))
        start = now + timedelta(seconds=float(CELLS.starts_s[first]))
        if windowed[first]:
            return Bound(BoundKind.MAX_REPLICAS, None, start)
        if ceiling is not None and ceiling < limit:
            return Bound(BoundKind.DOWNSTREAM, None, start)
        kind = BoundKind.PARTITION if limit < policy.max_replicas else BoundKind.MAX_REPLICAS
        return Bound(kind, None, start)
    return Bound(BoundKind.HISTORY) if forecast is None else Bound()


def remedies(
    hot: Sequence[HotPartition],
    snapshot: GroupSnapshot,
    capacity: float,
    routing: Routing,
    now: datetime,
    timezone: str,
) -> tuple[Proposal, ...]:
    """Return what would help the hot partitions: a split where producers are routed, a faster member, batching."""
    alone = frozenset(m.partitions[0] for m in snapshot.members if len(m.partitions) == 1)
    fastest = fastest_member(snapshot, capacity)
    found: list[Proposal] = []
    for one in hot:
        found += proposals(
            (one,),
            now,
            timezone,
            keys=routing.keys,
            may_split=one.partition.topic in routing.topics,
            alone=alone,
            faster_capacity=fastest if fastest > capacity else None,
        )
    return tuple(found)


def fastest_member(snapshot: GroupSnapshot, capacity: float) -> float:
    """Return records/s of the fastest member whose own capacity is known; ``capacity`` where none is."""
    return max((m.capacity for m in snapshot.members if m.capacity is not None), default=capacity)
