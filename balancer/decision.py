"""One minute's choice of size as arithmetic on arrays: one run for the planner, hundreds of runs for learning.

The planner (:mod:`balancer.planner`) and the learning of knobs (:mod:`balancer.learning`) call the same functions, so
what was learned is what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import CapacityCurve
from balancer.demand import CELLS, Cells, is_backlog, level_path, level_weights, to_drain
from balancer.floor import reactive_rate
from balancer.knobs import Knobs
from balancer.schedule import highest_of, reaches

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

TICK_S = 60.0
"""Between two decisions: what is not asked for now is asked for so much later."""
GUARD_S = 30.0
"""What is asked for now must serve until so long after what the next tick asks for works."""
EDGE_SHARE = 0.85
"""Share of the next cell that counts at once: a step (a shop that opens) is no ramp, and its mean comes too late."""
REACTIVE_DRAIN_S = 120.0
"""Where no forecast is trusted, a backlog is to be gone within so long, as the reactive rivals have it."""
ACTIVATION_RECORDS = 0.5
"""Fewer expected records than this in a cell need nobody, where zero members are allowed."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What all runs of a decision share.

    Parameters
    ----------
    curve
        What so many members sustain.
    lead_s
        Seconds from request to useful capacity.
    slo_s
        Latency that a backlog may reach.
    min_replicas, max_replicas
        Limits.
    cells
        The horizon.
    """

    curve: CapacityCurve
    lead_s: float
    slo_s: float
    min_replicas: int
    max_replicas: int
    cells: Cells = CELLS
    covered: Integers = field(init=False)
    near: int = field(init=False)
    """Cells whose demand a request made now must cover as a whole."""
    reached: int = field(init=False)
    """Cells that begin before a request made now, or at the next tick, has taken effect."""
    reaches: tuple[Integers, ...] = field(init=False)
    """Of :func:`balancer.schedule.reaches`, for ``covered``."""
    onward: float = field(init=False)
    """How far, from the last of them towards the next, demand has moved by the time that must still be covered."""

    def __post_init__(self) -> None:
        """Find what a request must still cover: lead time, one tick, and half a minute.

        A cell's demand is a mean over five minutes, so it holds at the cell's middle, and between two middles demand
        goes in a straight line. For later cells whole cells are counted: nothing is requested for them yet.
        """
        reach = self.cells.covered(self.lead_s + TICK_S + self.cells.widths_s[0] / 2)
        middles = self.cells.starts_s + np.array(self.cells.widths_s) / 2
        until = self.lead_s + TICK_S + GUARD_S
        near = max(int(np.searchsorted(middles, until, side="right")), 1)
        onward = 0.0
        if near < self.cells.count:
            onward = max(until - middles[near - 1], 0.0) / (middles[near] - middles[near - 1])
        object.__setattr__(self, "covered", reach)
        object.__setattr__(self, "reaches", reaches(reach))
        object.__setattr__(self, "reached", self.cells.within(self.lead_s + TICK_S))
        object.__setattr__(self, "near", near)
        object.__setattr__(self, "onward", float(onward))


@dataclass(frozen=True, slots=True, eq=False)
class KnobArrays:
    """Knobs of many runs as arrays, shape (runs,)."""

    near: Floats
    price: Floats
    slack: Floats
    floor: Floats
    correction: Floats
    trust: Booleans
    utilization: Floats

    @classmethod
    def of(cls, knobs: Sequence[Knobs]) -> KnobArrays:
        """Gather the knobs of runs; what belongs to the forecast is off where it is not trusted."""
        trust = np.array([k.trust_forecast for k in knobs])
        return cls(
            near=np.array([k.near_level for k in knobs]),
            price=np.where(trust, np.array([k.price_h for k in knobs]), 0.0),
            slack=np.where(trust, np.array([k.slack for k in knobs]), 0.0),
            floor=np.where(trust, np.array([k.floor for k in knobs]), 0.0),
            correction=np.where(trust, np.array([k.correction for k in knobs]), 0.0),
            trust=trust,
            utilization=np.array([k.utilization for k in knobs]),
        )


def safety_weights(near: float, far: float, levels: tuple[float, ...], lead_s: float, cells: Cells = CELLS) -> Floats:
    """Return the weights over a forecast's levels that give each cell its safe demand, shape (cells, levels)."""
    path = level_path(np.array(near), np.array(min(far, near)), cells, lead_s)
    return level_weights(path, levels)


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What is seen now, shape (runs,): ``recent`` the rates of the last four minutes (4, runs), newest first."""

    recent: Floats
    lag: Floats
    working: Integers
    requested: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a minute needs.

    Parameters
    ----------
    need
        Members that must be requested in each cell, shape (cells, runs).
    demand
        Records/s to serve in each cell, shape (cells, runs).
    floor, drain
        Records/s of the reactive floor and of the backlog to drain, shape (runs,).
    """

    need: Integers
    demand: Floats
    floor: Floats
    drain: Floats
    backlog: Booleans
    """More waits than the members that work clear within half an SLO: no fall meanwhile, shape (runs,)."""


def wanted(
    safe: Floats,
    seen: Observed,
    log_margin: Floats,
    knobs: KnobArrays,
    frame: Frame,
    profile: Floats,
    at_least: Integers | None = None,
    at_most: Integers | None = None,
) -> Wanted:
    """Return what this minute needs.

    Parameters
    ----------
    safe
        The forecast at its safety level, shape (cells, runs), records/s.
    seen
        What is seen.
    log_margin
        Online correction, shape (runs,).
    knobs, frame
        Settings of each run, and what they share.
    profile
        :func:`balancer.demand.correction_profile` of the cells.
    at_least, at_most
        Members that scheduled windows demand and allow, shape (cells,); of both the second holds.
    """
    cells = frame.cells
    demand = safe * (1.0 + (np.exp(log_margin) - 1.0) * profile[:, None])
    floor = knobs.floor * reactive_rate(seen.recent, frame.lead_s, expected=demand[0])
    working_rate = frame.curve.serves(seen.working, seen.recent[0])
    drain = to_drain(seen.lag, seen.recent[0], working_rate, frame.lead_s, frame.slo_s)
    demand[: frame.reached] = np.maximum(demand[: frame.reached], floor) + drain
    if not knobs.trust.all():
        reactive = seen.recent[0] / knobs.utilization + seen.lag / REACTIVE_DRAIN_S
        demand = np.where(knobs.trust, demand, reactive)
    load = demand / (1.0 + knobs.slack)
    need = frame.curve.need(load)
    if frame.min_replicas == 0:
        width = np.array(cells.widths_s)[:, None]
        need = np.where(demand * width < ACTIVATION_RECORDS, 0, need)
        need[0] = np.where(seen.lag > 0, np.maximum(need[0], 1), need[0])
    if at_least is not None:
        need = np.maximum(need, at_least[:, None])
    if at_most is not None:
        need = np.minimum(need, at_most[:, None])
    need = np.minimum(np.maximum(need, frame.min_replicas), frame.max_replicas)
    ahead = highest_of(need, frame.reaches)
    ahead[0] = _needed_now(need, load, frame, at_least)
    if at_most is not None:  # a ceiling holds to its end, whatever comes after it
        ahead = np.minimum(ahead, np.maximum(at_most, frame.min_replicas)[:, None])
    return Wanted(ahead, demand, floor, drain, is_backlog(seen.lag, working_rate, frame.slo_s))


def _needed_now(need: Integers, load: Floats, frame: Frame, at_least: Integers | None) -> Integers:
    """Return what must be requested now: what the cells need until a request takes effect, and the way to the next."""
    now: Integers = need[: frame.near].max(axis=0)
    if frame.onward > 0:
        last, following = load[frame.near - 1], load[frame.near]
        line = last + frame.onward * np.maximum(following - last, 0.0)
        then = frame.curve.need(np.maximum(line, EDGE_SHARE * following))
        now = np.maximum(now, np.minimum(then, need[frame.near]))
    if at_least is not None:
        now = np.maximum(now, min(int(at_least[: frame.covered[0] + 1].max()), frame.max_replicas))
    return now


@overload
def scarce_price(price: float, left: int, budget: int) -> float: ...


@overload
def scarce_price(price: Floats, left: Integers, budget: int) -> Floats: ...


def scarce_price(price: Floats | float, left: Integers | int, budget: int) -> Floats | float:
    """Return the price of a change when so many of the day's budget are left: the scarcer, the dearer.

    A budget that is simply used up would keep a large group large for hours; one whose last changes are dear is spent
    on the falls that save most.

    Examples
    --------
    >>> scarce_price(np.array([1.0, 1.0, 1.0]), np.array([24, 12, 0]), 24).tolist()
    [1.0, 2.0, 24.0]
    """
    least: Integers | int = max(left, 1) if isinstance(left, int) else np.maximum(left, 1)
    return price * budget / least


def settled(
    size: Integers,
    requested: Integers,
    highest: Integers,
    unchanged_s: Floats,
    dwell_s: Floats,
    left: Integers,
    backlog: Booleans,
) -> Integers:
    """Return what is requested: up at once; down to the highest wish of the dwell, where dwell and budget allow it.

    The array form of :func:`balancer.stabilization.stabilize` for climbs that are urgent (they all are: the schedule
    climbs only where records would be late).

    Parameters
    ----------
    size
        What this minute wants.
    requested
        What is requested now.
    highest
        Highest wish within the dwell, this one included.
    unchanged_s
        Seconds since the last change, or since the start.
    dwell_s
        Dwell of each run.
    left
        Changes that the day's budget still allows; the last one is kept for a climb.
    backlog
        A backlog is being worked off: no fall meanwhile.
    """
    falls = (highest < requested) & (unchanged_s >= dwell_s) & (left > 1) & ~backlog
    result: Integers = np.where(size > requested, size, np.where(falls, highest, requested))
    return result
