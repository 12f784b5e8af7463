"""What a simulated policy did: figures that compare, and the paths that a report draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.simulator.group import SimulatedGroup
from balancer.simulator.queues import late_arrivals, latencies, weighted_quantiles


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Figures of one policy over one run.

    Parameters
    ----------
    late_share
        Share of records whose latency exceeds the SLO.
    p50_s, p99_s, p999_s
        Quantiles of latency over records, seconds; None when they never end (no capacity was left).
    hours
        Requested member-hours.
    rescales
        Changes of the requested count.
    rescales_per_day
        The same, per day of the run.
    movement_rscore
        Mean over changes of (records/s of the partitions that somebody had to stop / one member's capacity); None
        without partitions.
    hours_vs_limit
        Hours over those of the clairvoyant limit; None until it is known.
    changes
        (instant, requested replicas), the start included.
    notes
        What a reader should know: tuned or learned settings.
    """

    late_share: float
    p50_s: float | None
    p99_s: float | None
    p999_s: float | None
    hours: float
    rescales: int
    rescales_per_day: float
    movement_rscore: float | None
    hours_vs_limit: float | None = None
    changes: tuple[tuple[datetime, int], ...] = ()
    notes: tuple[str, ...] = ()
    late_per_hour: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Late records by the hour of the run in which they arrived."""

    def figures(self) -> dict[str, Any]:
        """Return the JSON-able figures under their public names."""
        names = (
            "late_share", "p50_s", "p99_s", "p999_s", "hours", "rescales", "rescales_per_day", "movement_rscore",
            "hours_vs_limit",
        )  # fmt: skip
        return {**{name: getattr(self, name) for name in names}, "notes": list(self.notes)}


def conclude(group: SimulatedGroup, start: datetime, first: int, slo_s: float, notes: tuple[str, ...] = ()) -> Outcome:
    """Close a run and compute its figures; ``first`` is what was requested when it began."""
    elapsed = group.elapsed_s
    group.queues.close(slo_s)
    late = total = 0.0
    per_hour = np.zeros(max(math.ceil(elapsed / 3600), 1))
    waits: list[NDArray[np.float64]] = []
    weights: list[NDArray[np.float64]] = []
    for queue in range(group.trace.queues):
        curves = group.queues.log.curves(queue)
        arrived_s, queue_late = late_arrivals(curves, slo_s)
        hour = np.minimum((arrived_s // 3600).astype(np.int64), per_hour.size - 1)
        per_hour += np.bincount(hour, queue_late, per_hour.size)
        late, total = late + float(queue_late.sum()), total + float(curves[1][-1])
        wait, weight = latencies(curves)
        waits.append(wait)
        weights.append(weight)
    quantiles = weighted_quantiles(np.concatenate(waits), np.concatenate(weights), (0.5, 0.99, 0.999))
    p50, p99, p999 = (q if np.isfinite(q) else None for q in quantiles)
    fleet = group.fleet
    days = elapsed / 86_400
    return Outcome(
        late_share=late / total if total > 0 else 0.0,
        p50_s=p50,
        p99_s=p99,
        p999_s=p999,
        hours=fleet.paid_s / 3600,
        rescales=len(fleet.changes),
        rescales_per_day=len(fleet.changes) / days if days > 0 else 0.0,
        movement_rscore=(sum(group.moved_load_s) / max(len(group.moved_load_s), 1))
        if group.trace.partitioned
        else None,
        changes=((start, first), *((start + timedelta(seconds=s), n) for s, n in fleet.changes)),
        notes=notes,
        late_per_hour=per_hour,
    )
