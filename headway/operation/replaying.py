"""Finds a kept decision with its inputs, and computes it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from balancer.plan import ScalingPlan
from balancer.plans.base import PlanStore
from balancer.plans.codec import plan_to_json
from balancer.replay import again, forecast_name_of, forecast_of, inputs_of
from forecaster.topics import GroupId
from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class Replayed:
    """A decision computed again: the plan then and now as JSON, and where they differ (nowhere, or it is a bug)."""

    kept: dict[str, Any]
    again: dict[str, Any]
    differences: tuple[str, ...]


def compared(kept: ScalingPlan, made: ScalingPlan) -> Replayed:
    """Compare two plans as they are kept, but for splits: what a routed topic's leader adds is not the planner's."""
    then, now = (json.loads(json.dumps(plan_to_json(plan))) for plan in (kept, made))
    for document in (then, now):
        document["proposals"] = [p for p in document["proposals"] if p["kind"] != "split"]
    return Replayed(then, now, tuple(key for key in sorted({*now, *then}) if now.get(key) != then.get(key)))


def replay(plans: PlanStore, id: str) -> Replayed:
    """Compute a decision again.

    Raises
    ------
    HeadwayError
        If there is no such decision, or its inputs are no longer kept.
    PlanStoreUnavailable
    """
    group, at, _ = id.rpartition("@")
    kept = plans.decision(GroupId(group), id) if at else None
    if kept is None:
        raise HeadwayError(f"no decision {id!r} is kept; GET /v1/groups/GROUP/decisions lists their ids")
    body = plans.attached(GroupId(group), id)
    until = kept.inputs.get("replayable_until")
    gone = f"the inputs of {id} are no longer kept" + (f" (they were until {until})" if until else "")
    if body is None:
        raise HeadwayError(f"{gone}; the decision's own record is in the log")
    name = forecast_name_of(body)
    numbers = None if name is None else plans.attached(GroupId(group), name)
    if name is not None and numbers is None:
        raise HeadwayError(gone)
    inputs = inputs_of(body, None if numbers is None else forecast_of(numbers))
    return compared(kept.plan, again(inputs))
