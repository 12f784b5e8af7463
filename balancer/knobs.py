"""Settings of the planner that are learned on a stream's own history, never set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Knobs:
    """How careful, how patient and how trusting the planner is; the defaults are safe on an unknown stream.

    Examples
    --------
    >>> Knobs.from_json(Knobs(near_level=0.9).to_json()).near_level
    0.9
    """

    near_level: float = 0.99
    """Quantile level that sizes the members that must be asked for now: higher is safer and dearer."""

    far_level: float = 0.8
    """Quantile level towards the end of the horizon, which later ticks can still correct."""

    price_h: float = 1.0
    """Member-hours that a change of the replica count must save."""

    slack: float = 0.0
    """Overload, as a share of capacity, that the backlog of one SLO is trusted to absorb."""

    dwell: timedelta = timedelta(minutes=20)
    """A lower size must have been wanted for so long; the highest wish within it is taken."""

    floor: float = 1.0
    """Share of the rate seen now, with its trend over the lead time, below which demand is never taken; 0 is off."""

    correction: float = 0.1
    """By how much (in logs) the margin rises at each surprise; it falls slowly otherwise. 0 is off."""

    trust_forecast: bool = True
    """False plans from what is seen alone: the best reactive rule of this stream's history."""

    utilization: float = 0.7
    """Share of capacity that is planned for when the forecast is not trusted."""

    learned_on: str = ""
    """What they were learned on, and how they did there; empty for the defaults."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form; durations in seconds."""
        values = asdict(self)
        values["dwell_s"] = values.pop("dwell").total_seconds()
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Knobs:
        """Read what :meth:`to_json` wrote."""
        rest = {k: v for k, v in values.items() if k != "dwell_s"}
        return cls(**rest, dwell=timedelta(seconds=float(values["dwell_s"])))
