"""What may be believed of what was seen and forecast. Pure.

What makes a decision impossible ends in *hold*, what is in doubt in *no fall* (climbs only); each says why.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from balancer.group import GroupSnapshot
from balancer.memory import PlannerMemory
from balancer.policy import ScalingPolicy
from forecaster.forecast import Forecast, ForecastResult, NoForecast

FORECAST_MAX_AGE = timedelta(minutes=15)
"""An older forecast is not planned with: plans follow what is seen, and give up no member."""

SETTLING_LEADS = 2
"""Members that a change asked for are missed after so many lead times, and a minute."""


def what_forbids(snapshot: GroupSnapshot, policy: ScalingPolicy, now: datetime) -> list[str]:
    """Return what makes any decision impossible, each in words; empty when nothing does."""
    wrong = []
    age = now - snapshot.at
    if age > policy.snapshot_max_age:
        limit = policy.snapshot_max_age.total_seconds()
        wrong.append(f"the group was last seen {age.total_seconds():.0f} s ago (limit {limit:.0f} s)")
    elif age < -policy.snapshot_max_age:
        wrong.append(f"the group was seen {-age.total_seconds():.0f} s in the future; compare the clocks")
    if policy.capacity_per_member is None:
        wrong.append("the capacity of a member is not known yet; set capacity_per_member, or wait until it is learned")
    if snapshot.replicas is None:
        wrong.append("what the scale target is set to is not known")
    if not any(p.arrival_rate is not None for p in snapshot.partitions.values()):
        whys = sorted({p.why for p in snapshot.partitions.values() if p.why})
        wrong.append("no partition's arrival rate is known" + (f": {'; '.join(whys)}" if whys else ""))
    return wrong


def judge_forecast(
    forecast: ForecastResult | None, snapshot: GroupSnapshot, now: datetime
) -> tuple[Forecast | None, str | None, list[str]]:
    """Return (forecast to trust, why not, reasons against giving up members)."""
    if forecast is None:
        why = "the forecaster did not answer"
        return None, why, [f"{why}; no member is given up meanwhile"]
    if isinstance(forecast, NoForecast):
        return None, f"no forecast: {forecast.reason}", []
    age = now - forecast.origin
    if not -FORECAST_MAX_AGE <= age <= FORECAST_MAX_AGE + forecast.step:  # its origin is the last whole step
        why = f"the forecast was made {age.total_seconds() / 60:.0f} min ago"
        return None, why, [f"{why}; no member is given up meanwhile"]
    missing = sorted(set(snapshot.partitions) - set(forecast.rows))
    if missing:
        names = ", ".join(map(str, missing[:5])) + ("…" if len(missing) > 5 else "")
        why = f"the forecast lacks partition {names}"
        return None, why, [f"{why}; no member is given up meanwhile"]
    return forecast, None, []


def missing_members(snapshot: GroupSnapshot, memory: PlannerMemory, policy: ScalingPolicy, now: datetime) -> list[str]:
    """Return a reason when fewer members work than should by now."""
    changes = memory.history.changes
    settled_after = SETTLING_LEADS * policy.expected_lead_time + timedelta(minutes=1)
    settling = bool(changes) and now < changes[-1].at + settled_after
    if not snapshot.members or settling or snapshot.replicas is None or snapshot.working >= snapshot.replicas:
        return []
    return [f"{snapshot.working} of {snapshot.replicas} members work; no member is given up meanwhile"]
