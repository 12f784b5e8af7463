"""What if: a plan made again under other assumptions, with what it would cost; nothing is kept or changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from balancer.bounding import UNROUTED, Routing
from balancer.errors import PolicyRefused
from balancer.group import GroupSnapshot
from balancer.knobs import Knobs
from balancer.planner import plan
from balancer.policy import ScalingPolicy
from balancer.prescaling import Rule
from forecaster.forecast import Forecast, ForecastResult
from headway.configuration.durations import parse_duration
from headway.reports.estimate import estimate
from headway.status.wire import Document, plan_document

MAX_COUNT = 10_000


def planned_again(
    snapshot: GroupSnapshot,
    forecast: ForecastResult,
    policy: ScalingPolicy,
    changes: Mapping[str, Any],
    now: datetime,
    *,
    knobs: Knobs | None = None,
    rules: Sequence[Rule] = (),
    timezone: str = "UTC",
    routing: Routing = UNROUTED,
) -> Document:
    """Return the plan under changed assumptions, with its ``estimate`` of member-hours, cost and lateness.

    Parameters
    ----------
    snapshot, forecast, policy
        What is known now.
    changes
        ``policy`` (fields of :class:`ScalingPolicy`; durations as text), ``capacity`` (records/s of a member)
        and ``demand_factor``; None leaves each as it is.
    now
        Aware UTC.
    knobs, rules, timezone, routing
        As the control loop plans with.

    Raises
    ------
    PolicyRefused
        If a field is unknown or outside its bound.
    """
    policy = changed_policy(policy, changes.get("policy") or {}, changes.get("capacity"))
    factor = changes.get("demand_factor")
    if factor is not None and isinstance(forecast, Forecast):
        forecast = replace(forecast, rates=forecast.rates * factor, total=forecast.total * factor)
    made = plan(snapshot, forecast, policy, now, knobs=knobs, rules=rules, timezone=timezone, routing=routing).plan
    guess = estimate(
        made.steps,
        forecast if isinstance(forecast, Forecast) else None,
        policy.capacity_per_member,
        now=now,
        lead=policy.expected_lead_time,
        working=snapshot.working or None,
        price=policy.price_per_member_hour,
    )
    return {**plan_document(made), "estimate": guess.to_document()}


def changed_policy(policy: ScalingPolicy, changes: Mapping[str, Any], capacity: float | None) -> ScalingPolicy:
    """Return a policy with some fields changed.

    Examples
    --------
    >>> changed_policy(ScalingPolicy(), {"slo": "30s"}, 500.0).slo.total_seconds()
    30.0

    Raises
    ------
    PolicyRefused
        If a field is unknown, of the wrong kind, or outside its bound.
    """
    known = {field.name: getattr(policy, field.name) for field in fields(policy)}
    given: dict[str, Any] = {} if capacity is None else {"capacity_per_member": capacity}
    for name, value in changes.items():
        if name not in known:
            raise PolicyRefused(f"{name} is no field of a policy; there are {', '.join(known)}")
        given[name] = _as_field(name, value, known[name])
    try:
        return replace(policy, **given)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyRefused(f"policy: {error}") from error


def _as_field(name: str, value: Any, present: Any) -> Any:
    if isinstance(present, timedelta) or name == "lead_time":
        try:
            return parse_duration(str(value))
        except (ValueError, OverflowError) as error:
            raise PolicyRefused(f"{name}: {error}") from error
    kind = type(present)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if present is None or kind is float:
        if not number or not math.isfinite(value):
            raise PolicyRefused(f"{name}={value!r} must be a number")
        return float(value)
    if kind is int and not (number and float(value).is_integer() and abs(value) <= MAX_COUNT):
        raise PolicyRefused(f"{name}={value!r} must be a whole number of at most {MAX_COUNT}")
    try:
        return value if kind is bool and isinstance(value, bool) else kind(value)
    except (ValueError, TypeError) as error:
        raise PolicyRefused(f"{name}={value!r} cannot be meant") from error
