"""Many runs of one fluid queue side by side: what tuning on history needs, in one pass of NumPy over all of them.

Time goes in slots of 15 s (or a minute, for policies that decide once a minute). The semantics are those of the exact
simulation, lateness included: within a slot arrivals and services go in straight lines. What is no whole number of
slots is rounded up, and where a queue runs empty within a slot a few records too many are late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from balancer.capacity import CapacityCurve

SLOT_S = 15
_ROUNDING = 1e-6
"""Records: rounding of cumulative sums, not lateness."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a policy may know at one instant, one entry a run.

    ``lag`` in records, ``rate`` the records/s of the last complete minute, ``requested`` and ``working`` members;
    ``at_s`` seconds after the run's start.
    """

    at_s: float
    lag: Floats
    rate: Floats
    requested: Integers
    working: Integers


class BatchPolicy(Protocol):
    """A policy for many runs at once."""

    def decide(self, seen: Seen) -> Integers:
        """Return the members to request, one entry a run; asked every 15 s."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The world that runs share.

    Parameters
    ----------
    minutes
        Shape (rows, minutes), records per minute.
    before
        Shape (rows,), records in the minute before the first.
    capacity
        Records/s of one member.
    start_s, pause_s, slo_s
        As in the exact simulation.
    """

    minutes: Floats
    before: Floats
    capacity: float
    start_s: float
    pause_s: float
    slo_s: float
    curve: CapacityCurve | None = None
    """What members sustain where partitions keep them from adding up; None is a pool."""
    min_replicas: int = 0
    """Lower limit, whatever a policy asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchFigures:
    """Late share, paid member-hours and changes of the requested count, one entry a run."""

    late_share: Floats
    hours: Floats
    rescales: Integers
    days: float

    @property
    def rescales_per_day(self) -> Floats:
        """Changes of the requested count per day."""
        return self.rescales / self.days


def run_batch(
    policy: BatchPolicy,
    setting: Setting,
    row: Integers,
    scale: Floats | None = None,
    slot_s: int = SLOT_S,
    *,
    in_place: bool = False,
) -> BatchFigures:
    """Simulate one run per entry of ``row`` (index into the setting's rows), its arrivals times ``scale``.

    The policy is asked once a slot; ``slot_s`` divides a minute. A run begins with what the first minute needs, and
    the policy can change that one start time later; with ``in_place`` it begins with what the policy first asks for.
    That is meant for rows cut out of a longer history: how the cut falls is no merit and no fault of a setting.
    """
    per_minute = 60 // slot_s
    runs = row.size
    factor = np.ones(runs) if scale is None else scale
    minutes = setting.minutes
    lead = max(0, math.ceil(setting.start_s / slot_s))
    deadline = max(1, math.ceil(setting.slo_s / slot_s))
    first = np.maximum(1, np.ceil(minutes[row, 0] * factor / 60 / (0.8 * setting.capacity))).astype(np.int64)
    requests = np.repeat(first[:, None], lead + 1, axis=1)
    requested, working = first.copy(), first.copy()
    backlog, served, arrived = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    arrivals_ring = np.zeros((deadline + 2, runs))
    stall = np.zeros(runs)
    late, paid, rescales = np.zeros(runs), np.zeros(runs), np.zeros(runs, dtype=np.int64)
    rate = setting.before[row] * factor / 60
    slots = minutes.shape[1] * per_minute
    per_slot = minutes[row, 0]
    for slot in range(slots + deadline):
        if slot < slots:
            minute, part = divmod(slot, per_minute)
            if part == 0:
                if minute:
                    rate = per_slot * (per_minute / 60)
                per_slot = minutes[row, minute] * factor / per_minute
            asked = policy.decide(Seen(slot * slot_s, backlog, rate, requested, working))
            wanted = np.maximum(asked, setting.min_replicas)
            if slot == 0 and in_place:
                requested = working = wanted
                requests[:] = wanted[:, None]
            rescales += wanted != requested
            requested = wanted
            paid += requested
        else:
            per_slot = np.zeros(runs)
        requests[:, slot % (lead + 1)] = requested
        now_working = requests.min(axis=1)
        np.copyto(stall, setting.pause_s, where=now_working != working)
        working = now_working
        if setting.curve is None:
            able = working * (slot_s * setting.capacity)
        else:
            able = setting.curve.serves(working, per_slot / slot_s) * slot_s
        if stall.any():
            able = able * (1.0 - np.minimum(stall, slot_s) / slot_s)
            stall = np.maximum(stall - slot_s, 0.0)
        work = backlog + per_slot
        done = np.minimum(work, able)
        backlog = work - done
        served_before, served = served, served + done
        arrived = arrived + per_slot
        arrivals_ring[slot % (deadline + 2)] = arrived
        if slot >= deadline:
            # who arrived one deadline ago is late where more had arrived by then than has been served by now
            first_due, due = arrivals_ring[(slot + 1) % (deadline + 2)], arrivals_ring[(slot + 2) % (deadline + 2)]
            before, after = first_due - served_before - _ROUNDING, due - served - _ROUNDING
            over = np.maximum(before, 0.0) + np.maximum(after, 0.0)
            late += (due - first_due) * over / (np.abs(before) + np.abs(after))
    total = np.maximum(arrived, 1e-9)
    days = minutes.shape[1] / 1440
    return BatchFigures(late / total, paid * slot_s / 3600, rescales, days)
