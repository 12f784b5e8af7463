"""How forecasts, plans and decisions look as JSON: one vocabulary for terminal, HTTP and files.

Rates are records/s, instants ISO 8601 UTC, durations seconds. Unknown is ``null`` beside its reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.group import GroupSnapshot
from balancer.plan import Bound, PlannedStep, ScalingPlan
from balancer.plans.base import Decision
from balancer.plans.codec import alternatives_to_json, windows_to_json
from forecaster.forecast import ForecastResult, NoForecast
from headway.configuration.durations import instant as instant

Document = dict[str, Any]


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant with a zone.

    Raises
    ------
    ValueError
        If it is something else, or has no zone.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an ISO 8601 instant such as 2026-01-05T09:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write 2026-01-05T09:00:00Z or an offset")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


def encode(document: object) -> bytes:
    """Return JSON; NaN and infinity are refused."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def forecast_document(
    result: ForecastResult, levels: Sequence[float] | None = None, steps: int | None = None, by: str = "partition"
) -> Document:
    """Return a forecast as JSON-able values: chosen levels and first steps, by partition or as the topic's total.

    Examples
    --------
    >>> forecast_document(NoForecast("orders", datetime(2026, 1, 5, tzinfo=UTC), "no history yet"))["values"] is None
    True

    Raises
    ------
    KeyError
        If the forecast does not hold one of the levels.
    """
    if isinstance(result, NoForecast):
        return {
            "topic": result.topic,
            "origin": instant(result.origin),
            "step_s": None,
            "levels": [],
            "method": None,
            "rung": "none",
            "values": None,
            "partitions": None,
            "total": None,
            "reasons": [result.reason],
            "possible_from": None if result.possible_from is None else instant(result.possible_from),
        }
    chosen = list(result.levels if levels is None else levels)
    columns = [result.level_index(level) for level in chosen]
    count = result.steps if steps is None else min(steps, result.steps)

    def values(rates: NDArray[np.float64]) -> dict[str, list[float]]:
        return {f"{q:g}": np.round(rates[:count, c], 4).tolist() for q, c in zip(chosen, columns, strict=True)}

    document: Document = {
        "topic": result.topic,
        "origin": instant(result.origin),
        "step_s": result.step.total_seconds(),
        "levels": chosen,
        "method": result.method,
        "rung": str(result.rung),
        "reasons": list(result.reasons),
        "total": values(result.total),
    }
    if by == "partition":
        document["partitions"] = [
            {"partition": p, "values": values(result.rates[i])} for i, p in enumerate(result.partitions)
        ]
    return document


def bound_document(bound: Bound) -> Document:
    """Return what bounds a plan as ``{kind, id, from}``."""
    return {
        "kind": str(bound.kind),
        "id": bound.id,
        "from": None if bound.start is None else instant(bound.start),
    }


def step_document(step: PlannedStep) -> Document:
    """Return one step of a plan."""
    return {
        "from": instant(step.start),
        "replicas": step.replicas,
        "demand": round(step.demand, 4),
        "assignment": None
        if step.assignment is None
        else {member: [str(tp) for tp in owned] for member, owned in step.assignment.items()},
        "movement": [{"partition": str(m.partition), "source": m.source, "target": m.target} for m in step.moves],
    }


def plan_document(plan: ScalingPlan, version: int | None = None) -> Document:
    """Return a plan as JSON-able values."""
    return {
        "group": plan.group,
        "version": version,
        "made_at": instant(plan.made_at),
        "replicas": plan.replicas,
        "steps": [step_document(step) for step in plan.steps],
        "bound_by": bound_document(plan.bound_by),
        "reasons": list(plan.reasons),
        "lower_bound": plan.lower_bound,
        "hold": plan.hold,
        "proposals": [
            {"kind": p.kind, "subject": p.subject, "text": p.text, "at": None if p.at is None else instant(p.at)}
            for p in plan.proposals
        ],
        "alternatives": alternatives_to_json(plan),
        "windows": windows_to_json(plan),
    }


def decision_document(decision: Decision, *, inputs: bool = False) -> Document:
    """Return a decision with its plan's first step and reasons, and its inputs where they are asked for."""
    plan = decision.plan
    document: Document = {
        "id": decision.id,
        "group": decision.group,
        "at": instant(decision.at),
        "mode": decision.mode,
        "replicas": plan.replicas,
        "hold": plan.hold,
        "bound_by": bound_document(plan.bound_by),
        "reasons": list(plan.reasons),
        "alternatives": alternatives_to_json(plan),
        "actuation": None if decision.actuation is None else dict(decision.actuation),
    }
    if inputs:
        document["inputs"] = dict(decision.inputs)
        document["plan"] = plan_document(plan)
    return document


def snapshot_document(snapshot: GroupSnapshot) -> Document:
    """Return what was seen of a group; sums cover what is known, and say how much that is."""
    lag, lag_coverage = snapshot.lag
    rate, rate_coverage = snapshot.arrival_rate
    return {
        "at": instant(snapshot.at),
        "replicas": snapshot.replicas,
        "working": snapshot.working,
        "members": len(snapshot.members),
        "lag": lag if lag_coverage else None,
        "lag_coverage": lag_coverage,
        "arrival_rate": round(rate, 4) if rate_coverage else None,
        "arrival_rate_coverage": rate_coverage,
        "protocol": str(snapshot.protocol),
        "generation": snapshot.generation,
        "partitions": len(snapshot.partitions),
    }
