"""What a group's own history teaches its planner: knobs chosen on its last three weeks, and why there are none yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from balancer.capacity import assigned_curve, pool_curve
from balancer.decision import Frame
from balancer.knobs import Knobs
from balancer.learning import learn_knobs
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.simulator.world import World
from forecaster.joining import joined_history, topic_sizes
from forecaster.methods.lead_ridge import WEEK, LeadRidge
from forecaster.series import ArrivalSeries
from forecaster.serving import ForecastService
from headway.reports.simulation import LEARNING_ROWS, arrivals_of, past_of, ridge_forecaster

LEAST_KNOWN = 0.95
"""Share of the history that must have been recorded: what is bridged in a straight line teaches calm."""
LEAST_DAYS = (LeadRidge.least_minutes() + LEARNING_ROWS * WEEK) // 1440
"""Knobs chosen on less than three weeks do not hold in the next; until then the defaults are the safe ones."""


def history_of(service: ForecastService, topics: Sequence[str], now: datetime) -> ArrivalSeries | str:
    """Return what is recorded of a group's topics as one series, or why that cannot be done."""
    found = [(topic, service.history(topic, now)) for topic in topics]
    if not found:
        return "no topic of the group is known yet"
    known = [history for _, history in found if history is not None]
    if len(known) < len(found):
        return f"nothing is recorded yet of {', '.join(topic for topic, history in found if history is None)}"
    try:
        return joined_history(known)
    except ValueError as odd:
        return f"the topics' histories do not fit together: {odd}"


def knobs_from(history: ArrivalSeries, policy: ScalingPolicy) -> Knobs | str:
    """Learn the planner's knobs on what was recorded of a group's topics; or return why that cannot be done yet.

    Parameters
    ----------
    history
        Arrivals of its partitions.
    policy
        The group's, with what was learned where nobody set it.

    Notes
    -----
    Takes at most a minute or two whatever the history's length: three weeks are simulated, those before them only
    fit the forecasts. Demand is the sum of all partitions, and members sustain what the busiest of them lets them.
    """
    days = history.steps * history.grid.step_s / 86_400
    if days <= LEAST_DAYS:
        return f"{days:.3g} days are recorded, knobs are learned from {LEAST_DAYS} on"
    if history.grid.step_s % 60:
        return f"knobs are learned on steps of whole minutes, not of {history.grid.step_s} s"
    if history.coverage < LEAST_KNOWN:
        return f"{history.coverage:.0%} of the history is known, knobs are learned from {LEAST_KNOWN:.0%} on"
    capacity = policy.capacity_per_member
    if capacity is None:
        return "the capacity of a member is not known yet"
    count = len(history.partitions)
    owned = policy.cap_at_partitions and count > 1
    limit = min(policy.max_replicas, count) if policy.cap_at_partitions else policy.max_replicas
    if limit <= policy.min_replicas:
        return f"there is nothing to choose between {policy.min_replicas} and {limit} members"
    lead = policy.expected_lead_time
    trace, _ = arrivals_of(history.total(), partitioned=False)
    world = World(
        trace,
        history.end - timedelta(minutes=1),
        history.end,
        capacity,
        lead.total_seconds(),
        policy.pause.total_seconds(),
        policy.slo.total_seconds(),
        limit,
    )
    past = past_of(world, ridge_forecaster(world.minutes))
    assert past is not None  # there are weeks of it
    setting, curve = world.setting(past.minutes, past.before[:, -1]), pool_curve(capacity, limit)
    if owned:
        weights = np.where(history.known, history.counts, 0.0)[:, -WEEK * 60 // history.grid.step_s :].sum(axis=1)
        planned = policy.assignment is AssignmentKind.PLANNED
        assignor = "planned" if planned else policy.assignor
        curve = assigned_curve(capacity, weights, limit, assignor, topic_sizes(history))
        setting = replace(setting, curve=curve)
    frame = Frame(curve, world.start_s, world.slo_s, policy.min_replicas, limit)
    knobs, _ = learn_knobs(past, setting, frame, late_target=policy.late_target, budget=policy.rescales_per_day)
    return knobs
