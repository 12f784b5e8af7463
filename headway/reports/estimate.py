"""What a plan would cost and how much would be late, read off the forecast's quantiles.

An estimate, not a simulation: backlog that carries over is not followed. Records beyond what the working members serve
within a step count as late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.plan import PlannedStep
from forecaster.forecast import Forecast
from headway.status.wire import Document


@dataclass(frozen=True, slots=True)
class Estimate:
    """Member-hours, money, and the expected share of records beyond capacity; None where something is not known."""

    horizon_h: float
    member_hours: float
    cost: float | None
    late_share: float | None
    why: str | None = None

    def to_document(self) -> Document:
        """Return the JSON keys."""
        return {
            "horizon_h": round(self.horizon_h, 4),
            "member_hours": round(self.member_hours, 4),
            "cost": None if self.cost is None else round(self.cost, 4),
            "late_share": self.late_share,
            "why": self.why,
        }


def estimate(
    steps: Sequence[PlannedStep],
    forecast: Forecast | None,
    capacity: float | None,
    *,
    now: datetime,
    lead: timedelta,
    working: int | None = None,
    price: float | None = None,
    horizon: timedelta = timedelta(hours=24),
) -> Estimate:
    """Estimate a plan over the forecast's horizon, or the given one when that is shorter.

    Parameters
    ----------
    steps
        The plan; each begins when its change is requested.
    forecast
        Total arrival rates; None leaves lateness unknown.
    capacity
        Records/s of one member.
    now, lead
        Start of the estimate; how long after its request a member works.
    working
        Members that work now; the plan's first step by default.
    price
        Of a member-hour.
    """
    end = now + horizon
    if forecast is not None:
        end = min(end, forecast.origin + forecast.horizon)
    starts = [max(s.start, now) for s in steps] + [end]
    hours = sum(
        s.replicas * max((min(b, end) - min(a, end)).total_seconds(), 0.0) / 3600
        for s, a, b in zip(steps, starts[:-1], starts[1:], strict=True)
    )
    span = max((end - now).total_seconds() / 3600, 0.0)
    cost = None if price is None else hours * price
    if forecast is None:
        return Estimate(span, hours, cost, None, "there is no forecast to say what would be late")
    if capacity is None:
        return Estimate(span, hours, cost, None, "the capacity of a member is not known yet")
    at = forecast.origin.timestamp() + (np.arange(forecast.steps) + 0.5) * forecast.step.total_seconds()
    inside = (at >= now.timestamp()) & (at < end.timestamp())
    if not inside.any():
        return Estimate(span, hours, cost, None, "the forecast is too old")
    able = _working(steps, at[inside], lead.total_seconds(), steps[0].replicas if working is None else working)
    beyond, expected = expected_beyond(forecast.total[inside], forecast.levels, able * capacity)
    return Estimate(span, hours, cost, float(beyond.sum() / expected.sum()) if expected.sum() > 0 else 0.0)


def _working(steps: Sequence[PlannedStep], at: NDArray[Any], lead_s: float, working: int) -> NDArray[np.float64]:
    """Return the members that work at some instants: up a lead time after the request, down at once."""
    counts = np.full(at.size, float(working))
    before = working
    for step in steps:
        useful = step.start.timestamp() + (lead_s if step.replicas > before else 0.0)
        counts[at >= useful] = step.replicas
        before = step.replicas
    return counts


def expected_beyond(
    total: NDArray[np.float64], levels: Sequence[float], able: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the expected rate beyond ``able`` and the expected rate, both records/s per step.

    The distribution is taken as piecewise linear between the quantiles, from half its lowest down to itself below,
    and level above the highest.

    Examples
    --------
    >>> beyond, mean = expected_beyond(np.array([[10.0, 20.0]]), (0.5, 0.9), np.array([100.0]))
    >>> beyond.tolist()
    [0.0]
    """
    grid = (np.arange(200) + 0.5) / 200
    low, high = 2 * total[:, 0] - total[:, min(1, len(levels) - 1)], total[:, -1]
    points = np.concatenate([[0.0], levels, [1.0]])
    values = np.column_stack([np.clip(low, 0, None), total, high])
    drawn = np.array([np.interp(grid, points, row) for row in values])
    beyond: NDArray[np.float64] = np.clip(drawn - able[:, None], 0, None).mean(axis=1)
    return beyond, drawn.mean(axis=1)
