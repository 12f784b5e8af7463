"""(snapshot, forecast, policy, now) → what to do now and later, why, and what bounds it. Pure.

Whatever is wrong or unknown ends in *hold* (keep what is there) or in *no fall* (climbs only), with the reason; no
error path ever scales down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from balancer import downstream
from balancer.alternatives import alternatives
from balancer.bounding import FULL, UNROUTED, Routing, bound, hot_in, remedies
from balancer.capacity import CapacityCurve, assigned_curve, pool_curve
from balancer.decision import Frame, KnobArrays, Observed, Wanted, safety_weights, scarce_price, wanted
from balancer.demand import BACKLOG_SHARE, CELLS, corrected, correction_profile, drainable, forecast_cells, promise_cell
from balancer.group import GroupSnapshot
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.ownership import loads_of, lower_bound, with_owners
from balancer.plan import Bound, PlannedStep, ScalingPlan
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.prescaling import Rule, spans
from balancer.reasons import reasons_for
from balancer.schedule import Schedule, schedule
from balancer.stabilization import DAY, changed, in_grace, stabilize
from balancer.trust import judge_forecast, missing_members, what_forbids
from balancer.windows import Asked, asked, shares
from forecaster.forecast import Forecast, ForecastResult

_PROFILE = correction_profile(CELLS)
_HOURS = tuple(CELLS.hours.tolist())
_STARTS = tuple(timedelta(seconds=s) for s in CELLS.starts_s.tolist())


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what to remember for the next tick."""

    plan: ScalingPlan
    memory: PlannerMemory


def plan(
    snapshot: GroupSnapshot,
    forecast: ForecastResult | None,
    policy: ScalingPolicy,
    now: datetime,
    *,
    knobs: Knobs | None = None,
    memory: PlannerMemory | None = None,
    rules: Sequence[Rule] = (),
    timezone: str = "UTC",
    routing: Routing = UNROUTED,
    explain: bool = True,
) -> Planned:
    """Plan a group's replicas over the horizon, and its assignment where that is ours.

    Parameters
    ----------
    snapshot
        The group as seen last.
    forecast
        Quantiles per partition, or why there are none; None when the forecaster did not answer.
    policy
        What the user wants. ``capacity_per_member`` and ``lead_time`` hold what was learned where nobody set them.
    now
        Aware UTC.
    knobs
        Learned settings; the defaults are safe on an unknown stream.
    memory
        What the last tick returned; None on the first.
    rules
        Pre-scaling windows, events and overrides.
    timezone
        Zone in which reasons name hours.
    routing
        Which topics may be split, and what is known of their keys.
    explain
        False leaves out what people read and no decision depends on: bound, reasons, proposals, lower bound. A
        simulation of a month does.

    Examples
    --------
    >>> from datetime import UTC
    >>> from balancer.group import PartitionState
    >>> from forecaster.forecast import NoForecast
    >>> from forecaster.topics import GroupId, TopicPartition
    >>> now = datetime(2026, 1, 5, 9, tzinfo=UTC)
    >>> p = TopicPartition("orders", 0)
    >>> seen = GroupSnapshot(GroupId("orders"), now, 2, (), {p: PartitionState(0, 95.0)})
    >>> policy = ScalingPolicy(capacity_per_member=20.0, cap_at_partitions=False)
    >>> answer = plan(seen, NoForecast("orders", now, "one day of history, two are needed"), policy, now)
    >>> answer.plan.replicas, answer.plan.bound_by.kind.value
    (7, 'history')
    """
    memory = memory or PlannerMemory()
    knobs = knobs or Knobs()
    wrong = what_forbids(snapshot, policy, now)
    if wrong:
        return Planned(_hold(snapshot, memory, wrong, now), memory)
    assert policy.capacity_per_member is not None and snapshot.replicas is not None
    capacity, requested = policy.capacity_per_member, snapshot.replicas
    rate, rate_known = snapshot.arrival_rate
    _, lag_known = snapshot.lag
    memory = _gain(memory, snapshot, policy, capacity, snapshot.backlog if lag_known == 1 else None, now, rate)
    trusted, distrust, careful = judge_forecast(forecast, snapshot, now)
    if min(rate_known, lag_known) < 1:
        careful.append(f"{min(rate_known, lag_known):.0%} of the partitions are known; no member is given up meanwhile")
    careful += missing_members(snapshot, memory, policy, now)

    limit = policy.max_replicas
    if policy.cap_at_partitions and snapshot.partitions:
        limit = min(limit, len(snapshot.partitions))
    ceiling = downstream.ceiling(memory.downstream, now)
    most = max(policy.min_replicas, min(limit, ceiling) if ceiling is not None else limit)
    curve = _curve(snapshot, trusted, policy, capacity, max(most, requested))
    lead_s = policy.expected_lead_time.total_seconds()
    frame = _frame(curve, lead_s, policy.slo.total_seconds(), policy.min_replicas, most)
    windows = spans(rules, now, now + timedelta(seconds=CELLS.horizon_s)) if rules else ()
    ask = asked(windows, now) if windows else None

    if trusted is None:
        knobs = replace(knobs, trust_forecast=False, utilization=min(knobs.utilization, policy.target_utilization))
    arrays = _knob_arrays(knobs)
    safe = np.zeros(CELLS.count)
    if trusted is not None and knobs.trust_forecast:
        weights = _safety_weights(knobs.near_level, knobs.far_level, trusted.levels, frame.lead_s)
        safe = (forecast_cells(trusted, now, CELLS) * weights).sum(axis=1)
        margin = _correct(memory, now, arrays)
        memory = replace(memory, log_margin=margin, promises=_promised(memory, now, safe, frame))
    seen = Observed(
        np.array(memory.recent())[:, None],
        np.array([_backlog(snapshot, policy, capacity, frame.lead_s)]),
        np.array([snapshot.working]),
        np.array([requested]),
    )
    margins = np.array([memory.log_margin])

    def wish(ask: Asked | None) -> Wanted:
        load, low, high = (safe, None, None) if ask is None else (safe * ask.factor, ask.low, ask.high)
        return wanted(load[:, None], seen, margins, arrays, frame, _PROFILE, low, high)

    want = wish(ask)
    left = policy.rescales_per_day - sum(c.at > now - DAY for c in memory.history.changes)
    price = scarce_price(float(arrays.price[0]), left, policy.rescales_per_day)
    ahead = _schedule(tuple(want.need[:, 0].tolist()), price)
    size = ahead.first_choice(requested)

    dwelling = _dwelling(policy, knobs.dwell, max(most, 1))
    stable = stabilize(
        size,
        requested,
        now,
        memory.history,
        dwelling,
        urgent=size > requested,
        backlog_falls=bool(want.backlog[0]),
    )
    replicas, waits = stable.replicas, list(stable.reasons)
    told = None
    if ask is not None:
        held = ask.held(replicas, policy.min_replicas, limit)
        if held != replicas or ask.exact is not None:
            replicas, waits, told = held, [], ask.says
    if careful and replicas < requested:
        replicas, waits, told = requested, careful, None
    memory = replace(
        memory, history=changed(stable.history, now, requested, replicas), last_good=None if careful else replicas
    )
    steps = _steps(want, ahead, replicas, now)
    loads = loads_of(snapshot, trusted, knobs, steps, now)
    placed: list[str] = []
    if policy.assignment is AssignmentKind.PLANNED:
        dear = 0.0 if want.backlog[0] else knobs.price_h
        steps, memory, placed = with_owners(
            steps, snapshot, loads, policy, memory, capacity, now, dear, explain=explain
        )
    if not explain:
        return Planned(ScalingPlan(snapshot.group, now, tuple(steps), Bound(), ()), memory)

    hot = hot_in(snapshot, trusted, capacity, policy, knobs)
    bounded = bound(
        want.demand[:, 0], curve, hot, routing, ceiling, limit, policy, trusted, now, None if ask is None else ask.high
    )
    full = FULL.get(bounded.kind) if replicas >= most else None
    if ask is not None and replicas >= ask.high[0]:
        full = ask.says
    if bounded.start is None or bounded.start > now:
        full = None
    reasons = reasons_for(
        want, frame, trusted, distrust, careful, waits, memory.log_margin, replicas, requested, size, told, full
    )
    if ask is not None and (less := ask.cut(limit, policy)):
        reasons.append(less)
    shown = shares(windows, now, lambda ask: wish(ask).need[:, 0])
    reasons += [share.in_words(now) for share in shown]
    if ceiling is not None and (why := downstream.reason(memory.downstream)):
        reasons.append(why)
    reasons += placed
    made = ScalingPlan(
        group=snapshot.group,
        made_at=now,
        steps=tuple(steps),
        bound_by=bounded,
        reasons=tuple(dict.fromkeys(reasons)),
        lower_bound=lower_bound(loads.values(), capacity, is_pooled=not policy.cap_at_partitions),
        proposals=remedies(hot, snapshot, capacity, routing, now, timezone) if hot else (),
        alternatives=alternatives(want, ahead, frame, trusted, requested, replicas, now),
        windows=shown,
    )
    return Planned(made, memory)


def _backlog(snapshot: GroupSnapshot, policy: ScalingPolicy, capacity: float, lead_s: float) -> float:
    """Return the known records that wait, without those of partitions that members cannot work off faster."""
    if not snapshot.backlog or not policy.cap_at_partitions:
        return float(snapshot.backlog)
    waiting = [(p.lag, p.arrival_rate or 0.0) for p in snapshot.partitions.values() if p.lag and not p.is_stuck]
    lag, rate = np.array(waiting, dtype=float).T
    return drainable(lag, rate, max([capacity, *(m.capacity or 0.0 for m in snapshot.members)]), lead_s)


def _hold(snapshot: GroupSnapshot, memory: PlannerMemory, wrong: Sequence[str], now: datetime) -> ScalingPlan:
    there = next(n for n in (snapshot.replicas, memory.last_good, len(snapshot.members)) if n is not None)
    rate, _ = snapshot.arrival_rate
    reasons = tuple(f"hold: {why}" for why in wrong)
    return ScalingPlan(snapshot.group, now, (PlannedStep(now, there, rate),), Bound(), reasons, hold=True)


def _gain(
    memory: PlannerMemory,
    snapshot: GroupSnapshot,
    policy: ScalingPolicy,
    capacity: float,
    backlog: int | None,
    now: datetime,
    rate: float,
) -> PlannerMemory:
    """Take in, once a minute, rate and backlog, and what the members achieved under a backlog."""
    if memory.has_seen(now):
        return memory
    grace = policy.expected_lead_time + policy.pause + timedelta(minutes=1)
    settled = not in_grace(memory.history, now, grace)
    backlog_s = BACKLOG_SHARE * policy.slo.total_seconds()
    sample = downstream.sample_of(
        snapshot, memory.last_lag, memory.last_working, capacity, backlog_s=backlog_s, is_settled=settled
    )
    return replace(
        memory,
        downstream=memory.downstream if sample is None else downstream.observe(memory.downstream, sample),
        rates=memory.rates_with(now, rate),
        last_lag=backlog,
        last_working=snapshot.working if snapshot.members else None,
    )


@lru_cache(maxsize=64)
def _cached_curve(
    capacity: float, weights: bytes, most: int, assignor: str, topics: tuple[int, ...] | None
) -> CapacityCurve:
    return assigned_curve(capacity, np.frombuffer(weights), most, assignor, topics)


@lru_cache(maxsize=16)
def _cached_pool(capacity: float, most: int) -> CapacityCurve:
    return pool_curve(capacity, most)


def _curve(
    snapshot: GroupSnapshot, forecast: Forecast | None, policy: ScalingPolicy, capacity: float, most: int
) -> CapacityCurve:
    if not policy.cap_at_partitions or len(snapshot.partitions) <= 1:
        return _cached_pool(capacity, most)
    if forecast is not None:
        topics = None if forecast.topics is None else tuple(Counter(forecast.topics).values())
        loads = forecast.at_step(0, len(forecast.levels) // 2)
    else:
        order = sorted(snapshot.partitions, key=lambda tp: (tp.topic, tp.partition))
        topics = tuple(Counter(tp.topic for tp in order).values())
        seen = [snapshot.partitions[tp].arrival_rate for tp in order]
        known = [rate for rate in seen if rate is not None]
        usual = sum(known) / len(known) if known else 0.0  # of one that is not known: not nothing
        loads = np.array([usual if rate is None else rate for rate in seen])
    total = loads.sum()  # rounded, so that a small change makes no new curve
    weights = np.round(loads / total * loads.size, 2) if total > 0 else np.ones(loads.size)
    assignor = "planned" if policy.assignment is AssignmentKind.PLANNED else policy.assignor
    return _cached_curve(capacity, np.ascontiguousarray(weights, dtype=float).tobytes(), most, assignor, topics)


@lru_cache(maxsize=64)
def _frame(curve: CapacityCurve, lead_s: float, slo_s: float, least: int, most: int) -> Frame:
    return Frame(curve, lead_s, slo_s, least, most)


@lru_cache(maxsize=256)
def _schedule(need: tuple[int, ...], price: float) -> Schedule:
    """Plan the horizon; from one minute to the next the members needed are mostly the same."""
    return schedule(need, _HOURS, price)


@lru_cache(maxsize=64)
def _dwelling(policy: ScalingPolicy, dwell: timedelta, most: int) -> ScalingPolicy:
    return replace(policy, scale_down_dwell=dwell, max_replicas=most)


@lru_cache(maxsize=16)
def _knob_arrays(knobs: Knobs) -> KnobArrays:
    return KnobArrays.of([knobs])


@lru_cache(maxsize=16)
def _safety_weights(near: float, far: float, levels: tuple[float, ...], lead_s: float) -> NDArray[np.float64]:
    return safety_weights(near, far, levels, lead_s)


def _correct(memory: PlannerMemory, now: datetime, knobs: KnobArrays) -> float:
    promised = memory.due(now)
    if promised is None or not knobs.correction[0]:
        return memory.log_margin
    observed = np.array([sum(memory.recent()[:3]) / 3])
    margin = corrected(np.array([memory.log_margin]), knobs.correction, knobs.near, observed, np.array([promised]))
    return float(margin[0])


def _promised(
    memory: PlannerMemory, now: datetime, safe: NDArray[np.float64], frame: Frame
) -> tuple[tuple[datetime, float], ...]:
    minutes, cell = promise_cell(frame.lead_s)
    due = now.replace(second=0, microsecond=0) + timedelta(minutes=minutes)
    return memory.promises_with(now, due, float(safe[cell]))


def _steps(want: Wanted, ahead: Schedule, replicas: int, now: datetime) -> list[PlannedStep]:
    stretches = ahead.path(replicas)
    ends = [s.cell for s in stretches[1:]] + [CELLS.count]
    demand = want.demand[:, 0].tolist()
    return [
        PlannedStep(now + _STARTS[s.cell], s.replicas, max(demand[s.cell : end]))
        for s, end in zip(stretches, ends, strict=True)
    ]
