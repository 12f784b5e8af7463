"""Knobs learned on the stream's own history: the cheapest setting that kept the lateness target, stressed.

The last weeks before an instant are simulated for a grid of settings in one pass, with demand above the forecast, and
the best ones once more as the weeks were. A setting is allowed when both keep the lateness target and the change
budget holds; the cheapest allowed one is taken. Three rounds: how careful and trusting, how patient, then the fine
tuning of the best.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import pool_curve
from balancer.decision import Frame, KnobArrays, Observed, safety_weights, scarce_price, settled, wanted
from balancer.demand import CELLS, corrected, correction_profile, promise_cell
from balancer.floor import RECENT_MINUTES
from balancer.knobs import Knobs
from balancer.rivals.window import HighestWithin
from balancer.schedule import first_choices
from balancer.simulator.batch import Floats, Integers, Seen, Setting, run_batch

STRESSES = (1.0, 1.05)
"""Demand over what was recorded: history as it was, and somewhat more than any forecast from it says."""
_GUARDS = ((0.0, 0.0), (0.1, 0.8))
_CAREFUL = tuple(
    Knobs(
        near_level=near,
        slack=slack,
        correction=eta,
        floor=floor,
        far_level=0.7,
        price_h=0.5,
        dwell=timedelta(minutes=10),
    )
    for near, slack, (eta, floor) in itertools.product((0.7, 0.8, 0.9, 0.95, 0.98, 0.995), (0.0, 0.1, 0.2), _GUARDS)
)
REACTIVE = tuple(
    Knobs(trust_forecast=False, utilization=u, dwell=timedelta(minutes=w))
    for u, w in itertools.product((0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95), (5, 15, 90))
)
_PATIENCE = tuple(itertools.product((0.1, 0.25, 0.5, 1.0, 2.0), (5, 10, 20)))
_FINE = tuple(itertools.product((0.5, 0.8), (-0.05, 0.0, 0.05), ((0.05, 0.6), (0.1, 0.8), (0.2, 1.0))))
_KEPT = 3
CAREFUL_LEVEL = 0.95
"""Lower ones are a bet that the next crowd rises no faster than those of three weeks did."""
AS_CHEAP = 1.02
"""Settings whose hours are within this factor of the cheapest are as good; the most careful of them is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """History to learn on: rows of equal length, each with the forecasts that could have been made in it.

    Parameters
    ----------
    minutes
        Shape (rows, minutes), records per minute.
    before
        Shape (rows, 4), records in the four minutes before each row, oldest first.
    cells
        Shape (rows, minutes, cells, levels): forecast peaks, records/s; None where nothing could be forecast.
    levels
        Quantile levels.
    """

    minutes: Floats
    before: Floats
    cells: NDArray[np.float32] | None
    levels: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """What settings did on history: worst late share, hours over the rows, changes a day; one entry a setting."""

    knobs: tuple[Knobs, ...]
    late: Floats
    late_stressed: Floats
    hours: Floats
    rescales_per_day: Floats


class _Runs:
    """The planner's minute on many runs at once."""

    def __init__(
        self, past: Past, knobs: Sequence[Knobs], row: Integers, scale: Floats, frame: Frame, budget: int
    ) -> None:
        self._frame = frame
        self._row = row
        self._safe, self._path = _safe_paths(past, knobs, frame)
        self._knobs = KnobArrays.of(knobs)
        rates = np.concatenate([past.before, past.minutes], axis=1) / 60
        self._rates = rates
        self._scale = scale
        self._dwell = np.array([k.dwell.total_seconds() for k in knobs])
        self._window = HighestWithin(self._dwell + 60, 60)
        self._margin = np.zeros(row.size)
        self._lead, self._cell = promise_cell(frame.lead_s)
        self._promised = np.zeros((self._lead, row.size))
        self._changed = np.zeros((1440, row.size), dtype=bool)
        self._left = np.full(row.size, budget)
        self._budget = budget
        self._changed_s = np.zeros(row.size)
        self._profile = correction_profile(CELLS)

    def decide(self, seen: Seen) -> Integers:
        """Return the members to request; asked once a minute."""
        minute = int(seen.at_s // 60)
        window = self._rates[self._row, minute : minute + RECENT_MINUTES] * self._scale[:, None]
        recent = window[:, ::-1].T
        place = minute % self._lead
        if minute >= self._lead:
            self._margin = corrected(
                self._margin, self._knobs.correction, self._knobs.near, recent[:3].mean(axis=0), self._promised[place]
            )
            self._margin = np.where(self._knobs.correction > 0, self._margin, 0.0)
        safe = self._safe[minute][self._path, self._row].T.astype(np.float64)
        observed = Observed(recent, seen.lag, seen.working, seen.requested)
        want = wanted(safe, observed, self._margin, self._knobs, self._frame, self._profile)
        day = minute % 1440
        self._left += self._changed[day]
        price = scarce_price(self._knobs.price, self._left, self._budget)
        size = first_choices(want.need, CELLS.hours, price, seen.requested)
        self._promised[place] = safe[self._cell]
        highest = self._window.add(size)
        chosen = settled(
            size, seen.requested, highest, seen.at_s - self._changed_s, self._dwell, self._left, want.backlog
        )
        did = chosen != seen.requested
        self._changed[day] = did
        self._left -= did
        self._changed_s[did] = seen.at_s
        return chosen


def _safe_paths(past: Past, knobs: Sequence[Knobs], frame: Frame) -> tuple[NDArray[np.float32], Integers]:
    """Return safe demand (minutes, distinct level pairs, rows, cells), and each run's pair."""
    pairs = [(k.near_level, k.far_level) if k.trust_forecast else (0.0, 0.0) for k in knobs]
    distinct = sorted(set(pairs))
    rows, minutes = past.minutes.shape
    safe = np.zeros((minutes, len(distinct), rows, CELLS.count), dtype=np.float32)
    for place, (near, far) in enumerate(distinct):
        if past.cells is not None and near > 0:
            weights = safety_weights(near, far, past.levels, frame.lead_s).astype(np.float32)
            safe[:, place] = np.einsum("rmgl,gl->mrg", past.cells, weights)
    return safe, np.array([distinct.index(pair) for pair in pairs])


def try_knobs(
    past: Past,
    knobs: Sequence[Knobs],
    setting: Setting,
    frame: Frame,
    budget: int,
    stresses: Sequence[float] = STRESSES,
    *,
    in_place: bool = True,
) -> Tried:
    """Simulate every setting on every row, under every stress; ``in_place`` as in :func:`run_batch`."""
    rows = past.minutes.shape[0]
    each = rows * len(stresses)
    row = np.tile(np.tile(np.arange(rows), len(stresses)), len(knobs))
    scale = np.tile(np.repeat(np.array(stresses), rows), len(knobs))
    spread = [k for k in knobs for _ in range(each)]
    runs = _Runs(past, spread, row, scale, frame, budget)
    figures = run_batch(runs, setting, row, scale, slot_s=60, in_place=in_place)
    volume = past.minutes.sum(axis=1)
    weight = volume / max(float(volume.sum()), 1e-9)
    late = figures.late_share.reshape(len(knobs), len(stresses), rows)
    hours = figures.hours.reshape(len(knobs), len(stresses), rows)
    changes = figures.rescales_per_day.reshape(len(knobs), len(stresses), rows)
    return Tried(
        tuple(knobs),
        (late[:, 0] * weight).sum(axis=1),
        (late * weight).sum(axis=2).max(axis=1),
        hours[:, 0].sum(axis=1),
        changes[:, 0].mean(axis=1),
    )


def ranked(tried: Tried, late_target: float, budget: int) -> Integers:
    """Return the settings' indices, best first: allowed ones by hours, then the others by how little they miss."""
    over = np.maximum(tried.late / (0.5 * late_target), tried.late_stressed / late_target)
    busy = np.maximum(tried.rescales_per_day / (0.9 * budget) - 1.0, 0.0)
    relative = tried.hours / max(float(tried.hours.min()), 1e-9)
    miss = np.log10(np.maximum(over, 1.0)) * 0.5 + busy
    allowed = (over <= 1.0) & (busy <= 0.0)
    return np.lexsort((np.where(allowed, relative, relative + 3 * miss), ~allowed)).astype(np.int64)


def learn_knobs(
    past: Past, setting: Setting, frame: Frame, *, late_target: float = 1e-4, budget: int = 24
) -> tuple[Knobs, Tried]:
    """Return the best knobs on history, and the last round of what was tried.

    Every purely reactive setting is in the last round: what is learned is no worse than they are on that history.
    """

    def screen(knobs: Sequence[Knobs]) -> Tried:
        # Under stress alone: what history as it was would say, half of the target, is asked in the last round.
        found = try_knobs(past, knobs, setting, frame, budget, STRESSES[1:])
        return replace(found, late=np.zeros_like(found.late))

    fine: list[Knobs] = []
    if past.cells is not None:
        tried = screen(_CAREFUL)
        seeds = kept(tried, late_target, budget, _KEPT)
        tried = _and(
            tried, screen([replace(k, price_h=p, dwell=timedelta(minutes=m)) for k in seeds for p, m in _PATIENCE])
        )
        for k in kept(tried, late_target, budget, _KEPT - 1):
            fine += [
                k,
                *(
                    replace(k, far_level=far, slack=max(k.slack + more, 0.0), correction=eta, floor=floor)
                    for far, more, (eta, floor) in _FINE
                ),
            ]
    fine += REACTIVE
    last = try_knobs(past, tuple(dict.fromkeys(fine)), setting, frame, budget)
    best = _most_careful(last, ranked(last, late_target, budget))
    words = (
        f"{past.minutes.shape[0]} × {past.minutes.shape[1] / 1440:.3g} days of history: "
        f"{last.late[best]:.4%} late, {last.late_stressed[best]:.4%} stressed, "
        f"{last.rescales_per_day[best]:.3g} changes a day, {last.hours[best]:.4g} member-hours"
    )
    return replace(last.knobs[best], learned_on=words), last


def _most_careful(tried: Tried, order: Integers) -> int:
    """Return the most careful of the settings that are about as cheap as the best: history never shows everything."""
    first = int(order[0])
    near = [
        int(i)
        for i in order
        if tried.hours[i] <= AS_CHEAP * tried.hours[first]
        and tried.late[i] <= tried.late[first]
        and tried.late_stressed[i] <= tried.late_stressed[first]
        and tried.rescales_per_day[i] <= max(tried.rescales_per_day[first], 20.0)
        and tried.knobs[i].trust_forecast == tried.knobs[first].trust_forecast
    ]
    return max(near, key=lambda i: (tried.knobs[i].near_level, tried.knobs[i].correction, -tried.hours[i]))


def kept(tried: Tried, late_target: float, budget: int, count: int) -> list[Knobs]:
    """Return the best settings, the best first, and the best careful one in the last place.

    Rounds that went on with the cheapest alone would end among near relations of one that history flatters.
    """
    order = ranked(tried, late_target, budget).tolist()
    careful = [i for i in order if tried.knobs[i].near_level >= CAREFUL_LEVEL][:1]
    return [tried.knobs[i] for i in dict.fromkeys([*order[: count - 1], *careful, *order])][:count]


def _and(one: Tried, more: Tried) -> Tried:
    return Tried(
        one.knobs + more.knobs,
        np.concatenate([one.late, more.late]),
        np.concatenate([one.late_stressed, more.late_stressed]),
        np.concatenate([one.hours, more.hours]),
        np.concatenate([one.rescales_per_day, more.rescales_per_day]),
    )


def frame_of(capacity: float, start_s: float, slo_s: float, most: int, least: int = 1) -> Frame:
    """Return the frame of one pool of work."""
    return Frame(pool_curve(capacity, most), start_s, slo_s, least, most)
