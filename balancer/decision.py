"""One minute's choice of size as arithmetic on arrays: one run for the planner, hundreds of runs for learning.

The planner (:mod:`balancer.planner`) and the learning of knobs (:mod:`balancer.learning`) call the same functions, so
what was learned is what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import CapacityCurve
from balancer.demand import CELLS, Cells, correction_profile, level_path, level_weights, to_drain
from balancer.floor import reactive_rate
from balancer.knobs import Knobs
from balancer.schedule import brought_forward, first_choice

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

TICK_S = 60.0
REACTIVE_DRAIN_S = 120.0
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

    @property
    def covered(self) -> Integers:
        """Last cell that a request made in each cell must still cover: lead time, one tick, and half a cell.

        A cell's demand is a mean over five minutes, so a rise shows in it half a cell late.
        """
        return self.cells.covered(self.lead_s + TICK_S + self.cells.widths_s[0] / 2)


@dataclass(frozen=True, slots=True, eq=False)
class KnobArrays:
    """Knobs of many runs as arrays, shape (runs,); ``weights`` picks each cell's level, (runs, cells, levels)."""

    weights: Floats
    near: Floats
    price: Floats
    slack: Floats
    floor: Floats
    correction: Floats
    trust: Booleans
    utilization: Floats

    @classmethod
    def of(cls, knobs: Sequence[Knobs], levels: tuple[float, ...], frame: Frame) -> KnobArrays:
        """Gather the knobs of runs."""
        near = np.array([k.near_level for k in knobs])
        far = np.array([min(k.far_level, k.near_level) for k in knobs])
        trust = np.array([k.trust_forecast for k in knobs])
        return cls(
            weights=level_weights(level_path(near, far, frame.cells, frame.lead_s), levels),
            near=near,
            price=np.where(trust, np.array([k.price_h for k in knobs]), 0.0),
            slack=np.where(trust, np.array([k.slack for k in knobs]), 0.0),
            floor=np.where(trust, np.array([k.floor for k in knobs]), 0.0),
            correction=np.where(trust, np.array([k.correction for k in knobs]), 0.0),
            trust=trust,
            utilization=np.array([k.utilization for k in knobs]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What is seen now, shape (runs,): ``recent`` the rates of the last four minutes (4, runs), newest first."""

    recent: Floats
    lag: Floats
    working: Integers
    requested: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a minute wants.

    Parameters
    ----------
    size
        Members to request if nothing held them back, shape (runs,).
    need
        Members that must be requested in each cell, shape (runs, cells).
    demand
        Records/s to serve in each cell, shape (runs, cells).
    safe
        The forecast at its safety level before any correction, shape (runs, cells).
    floor, drain
        Records/s of the reactive floor and of the backlog to drain, shape (runs,).
    """

    size: Integers
    need: Integers
    demand: Floats
    safe: Floats
    floor: Floats
    drain: Floats


def wanted(
    quantiles: Floats,
    seen: Observed,
    log_margin: Floats,
    knobs: KnobArrays,
    frame: Frame,
    profile: Floats | None = None,
    at_least: Integers | None = None,
) -> Wanted:
    """Return what this minute wants, from the forecast's quantiles per cell (runs, cells, levels), records/s.

    ``at_least`` (cells,) are members that scheduled windows demand; ``profile`` is :func:`correction_profile`.
    """
    cells = frame.cells
    share = correction_profile(cells) if profile is None else profile
    safe = np.einsum("rgl,rgl->rg", quantiles, knobs.weights)
    demand = safe * (1.0 + (np.exp(log_margin) - 1.0)[:, None] * share)
    near = cells.within(frame.lead_s + TICK_S)
    floor = knobs.floor * reactive_rate(seen.recent, frame.lead_s)
    working_rate = frame.curve.rates[np.minimum(seen.working, frame.curve.max_members)]
    drain = to_drain(seen.lag, seen.recent[0], working_rate, frame.lead_s, frame.slo_s)
    demand[:, :near] = np.maximum(demand[:, :near], floor[:, None]) + drain[:, None]
    if not knobs.trust.all():
        reactive = seen.recent[0] / knobs.utilization + seen.lag / REACTIVE_DRAIN_S
        demand = np.where(knobs.trust[:, None], demand, reactive[:, None])
    need = frame.curve.need(demand / (1.0 + knobs.slack[:, None]))
    if frame.min_replicas == 0:
        width = np.array(cells.widths_s)
        need = np.where(demand * width < ACTIVATION_RECORDS, 0, need)
        need[:, 0] = np.where(seen.lag > 0, np.maximum(need[:, 0], 1), need[:, 0])
    if at_least is not None:
        need = np.maximum(need, at_least)
    need = np.clip(need, frame.min_replicas, frame.max_replicas)
    need = brought_forward(need, frame.covered)
    size = first_choice(need, cells.hours, knobs.price, seen.requested)
    return Wanted(size, need, demand, safe, floor, drain)


def settled(
    size: Integers, requested: Integers, highest: Integers, unchanged_s: Floats, dwell_s: Floats, left: Integers
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
    """
    falls = (highest < requested) & (unchanged_s >= dwell_s) & (left > 1)
    result: Integers = np.where(size > requested, size, np.where(falls, highest, requested))
    return result
