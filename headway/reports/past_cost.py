"""What the recorded past would have cost under a policy: "what if" on the last weeks instead of the next hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from balancer.knobs import Knobs
from balancer.learning import Past, frame_of, try_knobs
from balancer.policy import ScalingPolicy
from balancer.rivals.fixed import cron_last_week, perfect, static_peak
from balancer.rivals.tuning import Grid, flink_grid, keda_grid, rate_grid, score
from balancer.simulator.batch import Floats, Integers, Seen, Setting, run_batch
from forecaster.methods.lead_ridge import DAY, WEEK
from forecaster.series import ArrivalSeries
from headway.errors import NotReady
from headway.reports.simulation import arrivals_of, ridge_forecaster

LONGEST = timedelta(days=28)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A constant number of members."""

    replicas: int

    def decide(self, seen: Seen) -> Integers:
        return np.full(seen.requested.shape, self.replicas, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """Members by the minute, shape (rows, minutes), known beforehand."""

    sizes: Integers

    def decide(self, seen: Seen) -> Integers:
        return self.sizes[:, min(int(seen.at_s // 60), self.sizes.shape[1] - 1)]


def past_cost(
    history: ArrivalSeries,
    policy: ScalingPolicy,
    knobs: Knobs,
    start: datetime | None = None,
    end: datetime | None = None,
    demand_factor: float = 1.0,
) -> Mapping[str, Any]:
    """Return what the recorded past would have cost, beside what else one could have done.

    Parameters
    ----------
    history
        What was recorded of the group's topic.
    policy
        The group's, as it is or as somebody thinks of changing it.
    knobs
        The planner's settings.
    start, end
        The span, cut to whole days and to the last four weeks of it; the last four weeks by default.
    demand_factor
        So many times the records that came.

    Raises
    ------
    NotReady
        With what is missing: capacity, or a whole day of records.

    Notes
    -----
    Each day or week is run by the planner's own arithmetic on forecasts from what lies before it, all of them side by
    side, so that four weeks take seconds. Work is one pool; ``headway simulate`` takes partitions and shows minutes.
    """
    capacity = policy.capacity_per_member
    if capacity is None:
        raise NotReady("the capacity of a member is not known yet; say capacity to see what the past would have cost")
    trace, gaps = arrivals_of(history.total(), partitioned=False)
    minutes = trace.minutes()[0] * demand_factor
    begin, until = _span(trace.start, minutes.size, start, end)
    length = WEEK if until - begin >= WEEK else DAY
    starts = range(until - (until - begin) // length * length, until, length)
    if not starts:
        raise NotReady("no whole day is recorded in that span yet")
    lead = policy.expected_lead_time
    limit = policy.max_replicas
    if policy.cap_at_partitions and len(history.partitions) > 1:
        limit = min(limit, len(history.partitions))
    frame = frame_of(capacity, lead.total_seconds(), policy.slo.total_seconds(), limit, policy.min_replicas)
    past = _past(minutes, starts, length)
    if past.cells is None:
        knobs = replace(knobs, trust_forecast=False)
    rows = np.arange(len(starts))
    setting = Setting(
        past.minutes,
        past.before[:, -1],
        capacity,
        lead.total_seconds(),
        policy.pause.total_seconds(),
        policy.slo.total_seconds(),
        None,
        min(policy.min_replicas, limit),
    )
    days = past.minutes.size / 1440
    tried = try_knobs(past, [knobs], setting, frame, policy.rescales_per_day, (1.0,))
    size = static_peak(minutes[: starts[0]] if starts[0] >= DAY else minutes, capacity, limit)
    fixed = run_batch(_Fixed(size), setting, rows, in_place=True)
    weight = past.minutes.sum(axis=1) / max(float(past.minutes.sum()), 1e-9)
    queues = len(history.partitions) if len(history.partitions) > 1 else None
    grids = {
        "keda_lag": keda_grid(capacity, limit, queues),
        "rate_reactive": rate_grid(capacity, limit),
        "flink": flink_grid(capacity, limit),
    }
    rules = {name: _figures(*_best(grid, setting, policy.late_target), policy) for name, grid in grids.items()}
    paths = np.array([cron_last_week(minutes[:begun], length, capacity, limit) for begun in starts])
    cron = run_batch(_Path(paths), setting, rows, in_place=True)
    least = [perfect(row, capacity, limit, policy.rescales_per_day) for row in past.minutes]
    clairvoyant = float(np.maximum(least, setting.min_replicas).sum()) / 60
    answers = {
        "headway": _figures(float(tried.late[0]), float(tried.hours[0]), float(tried.rescales_per_day[0]), policy),
        **rules,
        "cron_last_week": _figures(
            float((cron.late_share * weight).sum()),
            float(cron.hours.sum()),
            float(cron.rescales_per_day.mean()),
            policy,
        ),
        "static_peak": _figures(float((fixed.late_share * weight).sum()), float(fixed.hours.sum()), 0.0, policy),
        "perfect": _figures(0.0, clairvoyant, None, policy),
    }
    first = trace.start + timedelta(minutes=starts[0])
    return {
        "from": first,
        "to": first + timedelta(minutes=length * len(starts)),
        "days": days,
        "gaps": gaps,
        "policies": answers,
        "notes": [
            "one pool of work; keda_lag, rate_reactive and flink have their best settings for this very span",
            *(["too little history for forecasts: planned from what is seen"] if past.cells is None else []),
        ],
    }


def _span(first: datetime, minutes: int, start: datetime | None, end: datetime | None) -> tuple[int, int]:
    def at(instant: datetime) -> int:
        return int((instant - first).total_seconds() // 60)

    until = minutes if end is None else min(max(at(end), 0), minutes)
    begin = until - int(LONGEST.total_seconds() // 60)
    if start is not None:
        begin = max(begin, at(start))
    return max(begin, 4), until


def _past(minutes: Floats, starts: range, length: int) -> Past:
    forecaster = ridge_forecaster(minutes)
    batches = [forecaster(b, b + length) for b in starts]
    made = [b for b in batches if b is not None]
    is_whole = len(made) == len(batches)
    return Past(
        np.array([minutes[b : b + length] for b in starts]),
        np.array([minutes[b - 4 : b] for b in starts]),
        np.array([b.cells() for b in made]) if is_whole else None,
        made[0].levels if is_whole else (0.5,),
    )


def _best(grid: Grid, setting: Setting, late_target: float) -> tuple[float, float, float]:
    """Return late share, hours and changes a day of the cheapest setting that keeps the target, or is least late."""
    late, hours, changes = score(grid, setting)
    at = int(np.argmin(np.where(late <= max(late_target, float(late.min())), hours, np.inf)))
    return float(late[at]), float(hours[at]), float(changes[at])


def _figures(late: float, hours: float, changes: float | None, policy: ScalingPolicy) -> Mapping[str, Any]:
    price = policy.price_per_member_hour
    return {
        "late_share": late,
        "hours": hours,
        "rescales_per_day": changes,
        "cost": None if price is None else price * hours,
    }
