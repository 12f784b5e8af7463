"""What the planner remembers from tick to tick: promises, recent rates, wishes and changes; small, kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from balancer.downstream import DownstreamState
from balancer.floor import RECENT_MINUTES
from balancer.stabilization import ScalingHistory

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class PlannerMemory:
    """State of one group's planner; a new one plans from what it sees.

    Parameters
    ----------
    history
        Wishes, changes and moves that stabilization looks at.
    promises
        (instant it falls due, records/s): the safe forecast a lead time ahead.
    log_margin
        Online correction of the margin, in logs.
    rates
        (instant, records/s) of the last complete minutes, oldest first.
    downstream
        What is known of the climb's gain.
    last_good
        The last size that was planned with everything known.
    """

    history: ScalingHistory = field(default_factory=ScalingHistory)
    promises: tuple[tuple[datetime, float], ...] = ()
    log_margin: float = 0.0
    rates: tuple[tuple[datetime, float], ...] = ()
    downstream: DownstreamState = field(default_factory=DownstreamState)
    last_good: int | None = None
    last_lag: int | None = None
    """Backlog at the last minute; None while that is not known."""
    last_working: int | None = None
    """Members that worked then."""

    def until(self, now: datetime) -> PlannerMemory:
        """Return what had happened by ``now``: after a clock went back, what lies ahead of it never happened.

        Changes yet to come would count against today's budget, and wishes yet to come would forbid every fall.

        Examples
        --------
        >>> from datetime import UTC
        >>> noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
        >>> memory = PlannerMemory().saw(noon, 7.0)
        >>> memory.until(noon) == memory, memory.until(noon - timedelta(hours=1)) == PlannerMemory()
        (True, True)
        """
        past = self.history  # everything is in the order of its time
        timed = (self.rates, past.moves)
        if not any(t[-1][0] > now for t in timed if t) and not any(
            t[-1].at > now for t in (past.wishes, past.changes) if t
        ):
            return self
        history = ScalingHistory(
            tuple(w for w in self.history.wishes if w.at <= now),
            tuple(c for c in self.history.changes if c.at <= now),
            tuple(m for m in self.history.moves if m[0] <= now),
        )
        return PlannerMemory(history=history, rates=tuple(r for r in self.rates if r[0] <= now))

    def saw(self, at: datetime, rate: float) -> PlannerMemory:
        """Remember the rate of the complete minute before ``at``; a minute counts once."""
        return self if self.has_seen(at) else replace(self, rates=self.rates_with(at, rate))

    def rates_with(self, at: datetime, rate: float) -> tuple[tuple[datetime, float], ...]:
        """Return the rates of the last complete minutes, with that of the minute before ``at``."""
        return (*self.rates, (at.replace(second=0, microsecond=0), rate))[-RECENT_MINUTES:]

    def has_seen(self, at: datetime) -> bool:
        """Whether the complete minute before ``at`` has been taken in already."""
        return bool(self.rates) and at.replace(second=0, microsecond=0) <= self.rates[-1][0]

    def recent(self) -> tuple[float, ...]:
        """Return the rates of the last four minutes, newest first; the oldest stands for those not seen."""
        rates = [rate for _, rate in reversed(self.rates)] or [0.0]
        return tuple(rates + [rates[-1]] * (RECENT_MINUTES - len(rates)))

    def promises_with(self, now: datetime, due: datetime, rate: float) -> tuple[tuple[datetime, float], ...]:
        """Return the promises with what is forecast for ``due``, without what fell due more than two minutes ago."""
        oldest = now - 2 * _MINUTE
        return (*(p for p in self.promises if p[0] > oldest), (due, rate))

    def due(self, now: datetime) -> float | None:
        """Return what had been promised for now (within the last minute), or None."""
        for due, rate in self.promises:
            if timedelta(0) <= now - due < _MINUTE:
                return rate
        return None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {
            "history": self.history.to_json(),
            "promises": [[t.isoformat(), r] for t, r in self.promises],
            "log_margin": self.log_margin,
            "rates": [[t.isoformat(), r] for t, r in self.rates],
            "downstream": self.downstream.to_json(),
            "last_good": self.last_good,
            "last_lag": self.last_lag,
            "last_working": self.last_working,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PlannerMemory:
        """Read what :meth:`to_json` wrote.

        Examples
        --------
        >>> from datetime import UTC
        >>> memory = PlannerMemory(log_margin=0.2).saw(datetime(2026, 1, 5, tzinfo=UTC), 7.0)
        >>> PlannerMemory.from_json(memory.to_json()) == memory
        True
        """
        at = datetime.fromisoformat
        return cls(
            history=ScalingHistory.from_json(values["history"]),
            promises=tuple((at(t), float(r)) for t, r in values["promises"]),
            log_margin=float(values["log_margin"]),
            rates=tuple((at(t), float(r)) for t, r in values["rates"]),
            downstream=DownstreamState.from_json(values["downstream"]),
            last_good=values["last_good"],
            last_lag=values.get("last_lag"),
            last_working=values.get("last_working"),
        )
