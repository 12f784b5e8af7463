"""Plans and decisions as JSON, and back: what the plan store, the decision log and the API share.

Instants are ISO 8601 UTC, partitions ``topic:partition``. Reading is strict: what is not understood raises, since a
plan that is half understood must not be carried out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from balancer.group import Assignment
from balancer.plan import Alternative, Bound, BoundKind, Move, PlannedStep, Proposal, ScalingPlan, WindowShare
from balancer.plans.base import Decision
from forecaster.topics import GroupId, TopicPartition

Json = dict[str, Any]


def plan_to_json(plan: ScalingPlan) -> Json:
    """Return a plan as JSON-able values.

    Examples
    --------
    >>> step = PlannedStep(datetime(2026, 1, 5, tzinfo=UTC), replicas=3, demand=120.0)
    >>> plan = ScalingPlan(GroupId("orders"), step.start, (step,), Bound(BoundKind.KEY, "k7"), ("forecast",))
    >>> plan_to_json(plan)["steps"]
    [{'from': '2026-01-05T00:00:00Z', 'replicas': 3, 'demand': 120.0}]
    >>> plan_from_json(plan_to_json(plan)) == plan
    True
    """
    return {
        "group": plan.group,
        "made_at": _instant(plan.made_at),
        "steps": [_step_to_json(step) for step in plan.steps],
        "bound_by": {
            "kind": plan.bound_by.kind.value,
            "id": plan.bound_by.id,
            "from": None if plan.bound_by.start is None else _instant(plan.bound_by.start),
        },
        "reasons": list(plan.reasons),
        "lower_bound": plan.lower_bound,
        "hold": plan.hold,
        "proposals": [
            {"kind": p.kind, "subject": p.subject, "text": p.text, "at": None if p.at is None else _instant(p.at)}
            for p in plan.proposals
        ],
        "alternatives": alternatives_to_json(plan),
        "windows": windows_to_json(plan),
    }


def windows_to_json(plan: ScalingPlan) -> list[Json]:
    """Return the pre-scaling windows that touch the plan, each with its share in it."""
    return [
        {
            "text": w.text,
            "from": _instant(w.start),
            "to": _instant(w.end),
            "replicas": w.replicas,
            "without": w.without,
        }
        for w in plan.windows
    ]


def alternatives_to_json(plan: ScalingPlan) -> list[Json]:
    """Return what else could have been decided, and its cost."""
    return [
        {
            "choice": a.choice,
            "replicas": a.replicas,
            "paid_hours": a.paid_hours,
            "rescales": a.rescales,
            "rescale_hours": a.rescale_hours,
            "late_records": a.late_records,
        }
        for a in plan.alternatives
    ]


def plan_from_json(value: Mapping[str, Any]) -> ScalingPlan:
    """Return the plan that :func:`plan_to_json` wrote.

    Raises
    ------
    ValueError
        If a key is absent, or a value is not what it should be; the message names it.
    """
    try:
        bound = value["bound_by"]
        return ScalingPlan(
            group=GroupId(value["group"]),
            made_at=_from_instant(value["made_at"]),
            steps=tuple(_step_from_json(step) for step in value["steps"]),
            bound_by=Bound(
                BoundKind(bound["kind"]), bound["id"], None if bound["from"] is None else _from_instant(bound["from"])
            ),
            reasons=tuple(value["reasons"]),
            lower_bound=value["lower_bound"],
            hold=value["hold"],
            proposals=tuple(
                Proposal(p["kind"], p["subject"], p["text"], None if p["at"] is None else _from_instant(p["at"]))
                for p in value["proposals"]
            ),
            alternatives=tuple(
                Alternative(
                    a["choice"], a["replicas"], a["paid_hours"], a["rescales"], a["rescale_hours"], a["late_records"]
                )
                for a in value.get("alternatives", ())
            ),
            windows=tuple(
                WindowShare(w["text"], _from_instant(w["from"]), _from_instant(w["to"]), w["replicas"], w["without"])
                for w in value.get("windows", ())
            ),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not a plan: {exc!r}") from exc


def decision_to_json(decision: Decision) -> Json:
    """Return a decision, its plan included, as JSON-able values."""
    return {
        "id": decision.id,
        "group": decision.group,
        "at": _instant(decision.at),
        "mode": decision.mode,
        "plan": plan_to_json(decision.plan),
        "inputs": dict(decision.inputs),
        "actuation": None if decision.actuation is None else dict(decision.actuation),
    }


def decision_from_json(value: Mapping[str, Any]) -> Decision:
    """Return the decision that :func:`decision_to_json` wrote.

    Raises
    ------
    ValueError
        If a key is absent, or a value is not what it should be.
    """
    try:
        return Decision(
            id=value["id"],
            group=GroupId(value["group"]),
            at=_from_instant(value["at"]),
            mode=value["mode"],
            plan=plan_from_json(value["plan"]),
            inputs=value["inputs"],
            actuation=value["actuation"],
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not a decision: {exc!r}") from exc


def dumps(value: Mapping[str, Any]) -> str:
    """Return compact JSON text.

    Raises
    ------
    ValueError
        If it holds NaN or an infinity, which JSON does not have.
    TypeError
        If it holds anything else that JSON does not have.

    Examples
    --------
    >>> dumps({"a": [1, 2.5]})
    '{"a":[1,2.5]}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def loads(text: str | bytes) -> Json:
    """Return the object in a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON, or not an object.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, not {type(value).__name__}")
    return value


def _step_to_json(step: PlannedStep) -> Json:
    out: Json = {"from": _instant(step.start), "replicas": step.replicas, "demand": step.demand}
    if step.assignment is not None:
        out["assignment"] = {member: [str(p) for p in owned] for member, owned in step.assignment.items()}
    if step.moves:
        out["movement"] = [{"partition": str(m.partition), "from": m.source, "to": m.target} for m in step.moves]
    return out


def _step_from_json(value: Mapping[str, Any]) -> PlannedStep:
    assignment: Assignment | None = None
    if value.get("assignment") is not None:
        assignment = {
            member: tuple(TopicPartition.parse(p) for p in owned) for member, owned in value["assignment"].items()
        }
    moves = tuple(Move(TopicPartition.parse(m["partition"]), m["from"], m["to"]) for m in value.get("movement", ()))
    return PlannedStep(_from_instant(value["from"]), value["replicas"], value["demand"], assignment, moves)


def _instant(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone; instants are aware UTC")
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _from_instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return at
