"""The gate: rolling error and coverage decide whether a stream's forecast may act, with a dwell before it may again.

The standing is a fold over the score log, hour by hour, so a restart finds the same standing and nothing has to be
kept beside the log. While the gate is closed the forecast goes on being made and scored; it just does not act, and
what is served instead comes from the best naive rung.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from forecaster.drift import ScoreLog, StreamHealth
from forecaster.forecast import Rung

LOOK_EVERY = timedelta(hours=1)
"""How often the fold looks."""

MEMORY = timedelta(days=7)
"""How far back the fold starts; what happened before has no say any more."""

NAIVE_RUNGS = {"last_week": Rung.LAST_WEEK, "yesterday": Rung.YESTERDAY, "last_value": Rung.LAST_VALUE}
"""Naive method → the rung that repeats it."""


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """When a forecast may act.

    Raises
    ------
    ValueError
        If a field is outside its bound.
    """

    window: timedelta = timedelta(days=1)
    """What is looked at: a whole day, so that every hour is in it."""

    min_points: int = 24
    """Fewer scored points decide nothing, and a forecast that was never scored does not act."""

    close_at: float = 1.1
    """The gate closes when WAPE exceeds this many times the best naive's; at least ``open_at``."""

    open_at: float = 1.0
    """It opens again below this many times the best naive's."""

    close_margin: float = 0.02
    """What WAPE may exceed the best naive's by, however small that is; at least ``open_margin``. On a smooth stream the
    last value misses the next quarter of an hour by 2 or 3 % and the day by half; two percent of the load moves no
    member, a forecast of the day that is left out does."""

    open_margin: float = 0.01
    """It opens again when no more than this is missing."""

    close_shortfall: float = 0.05
    """It closes when coverage of a level of 0.9 or more is short by this; at least ``open_shortfall``."""

    open_shortfall: float = 0.03
    """It opens again when no such level is short by more than this."""

    dwell: timedelta = timedelta(hours=6)
    """How long it must look fit before it opens again: one good hour proves nothing."""

    def __post_init__(self) -> None:
        if self.window <= timedelta(0) or self.dwell < timedelta(0) or self.min_points < 1:
            raise ValueError("window must be longer than zero, dwell not negative, min_points at least 1")
        if not 0 < self.open_at <= self.close_at:
            raise ValueError(f"open_at={self.open_at} must be positive and at most close_at={self.close_at}")
        if not 0 <= self.open_margin <= self.close_margin < 1:
            raise ValueError("open_margin must be at most close_margin, and that below 1")
        if not 0 <= self.open_shortfall <= self.close_shortfall < 1:
            raise ValueError("open_shortfall must be at most close_shortfall, and that below 1")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says.

    Parameters
    ----------
    may_act
        Whether the forecast may act.
    rung
        Best rung that may be served: own model while open, the best naive's while closed.
    reasons
        Why, one line each; never empty.
    health
        Figures of the last window.
    """

    may_act: bool
    rung: Rung
    reasons: tuple[str, ...]
    health: StreamHealth


def verdict(log: ScoreLog, now: datetime, policy: GatePolicy | None = None) -> Verdict:
    """Say whether the forecast may act at ``now``.

    Parameters
    ----------
    log
        What was scored.
    now
        Aware UTC; nothing after it is looked at.
    policy
        Window and limits; None takes the defaults.
    """
    policy = policy or GatePolicy()
    looks = int(MEMORY / LOOK_EVERY)
    closed_for: str | None = None
    closed_at: datetime | None = None
    fit_since: datetime | None = None
    ever = False
    health = log.window(now - policy.window, now)
    for k in range(looks, -1, -1):
        at = now - k * LOOK_EVERY
        seen = health if k == 0 else log.window(at - policy.window, at)
        if seen.points < policy.min_points:
            continue
        ever = True
        fault = _fault(seen, policy.close_at, policy.close_margin, policy.close_shortfall)
        if fault is not None:
            closed_for, closed_at, fit_since = fault, closed_at or at, None
        elif closed_for is not None:
            fit = _fault(seen, policy.open_at, policy.open_margin, policy.open_shortfall) is None
            fit_since = (fit_since or at) if fit else None
            if fit_since is not None and at - fit_since >= policy.dwell:
                closed_for = closed_at = fit_since = None
    if not ever:
        why = f"{health.points} of {policy.min_points} points are scored; a forecast acts once it has been"
        return Verdict(False, Rung.OWN_MODEL, (why,), health)
    if closed_for is None:
        return Verdict(True, Rung.OWN_MODEL, (_praise(health),), health)
    best = health.best_naive
    rung = NAIVE_RUNGS.get(best[0], Rung.LAST_VALUE) if best is not None else Rung.LAST_VALUE
    reasons = [f"closed since {closed_at:%Y-%m-%d %H:%M} UTC: {closed_for}"]
    if fit_since is not None:
        reasons.append(
            f"fit again since {fit_since:%H:%M} UTC; opens after {policy.dwell / timedelta(hours=1):g} h of that"
        )
    return Verdict(False, rung, tuple(reasons), health)


def _fault(health: StreamHealth, ratio: float, margin: float, shortfall: float) -> str | None:
    best = health.best_naive
    if health.wape is not None and best is not None and health.wape > max(ratio * best[1], best[1] + margin):
        return f"WAPE {health.wape:.3f} is worse than the {best[0].replace('_', ' ')}'s {best[1]:.3f}"
    for level, covered in health.coverage.items():
        if level >= 0.9 and covered is not None and covered < level - shortfall:
            return f"only {covered:.3f} of what came lay below the {level:g} quantile"
    return None


def _praise(health: StreamHealth) -> str:
    best = health.best_naive
    if health.wape is None or best is None:
        return "nothing came lately that could be scored"
    return f"WAPE {health.wape:.3f}, the best naive's is {best[1]:.3f}"
