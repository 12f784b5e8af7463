"""Fluid first-in-first-out queues: exact between events, and the latencies that come of them.

Within a slot of constant arrival rate ``a`` and service capacity ``c`` the records served since the slot's start are
``min(S0 + c * s, A0 + a * s)`` (A, S: cumulative arrivals and services), so nothing is lost by looking at slots only.
A record that arrives at ``t`` is late when ``S(t + slo) < A(t)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_EPSILON_RECORDS = 1e-6  # rounding of cumulative sums, not lateness


@dataclass(slots=True)
class SlotLog:
    """What every queue did in every slot; grows as it is written.

    Row ``k`` holds the slot's start (s), cumulative arrivals and services there (records), and the service capacity
    during the slot (records/s), each of the last three with shape (queues,).
    """

    queues: int
    _rows: int = 0
    _start: NDArray[np.float64] = field(default_factory=lambda: np.empty(1024))
    _data: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._data = np.empty((1024, 3, self.queues))

    def append(
        self,
        start_s: float,
        arrived: NDArray[np.float64],
        served: NDArray[np.float64],
        capacity: NDArray[np.float64] | float,
    ) -> None:
        """Write one slot."""
        if self._rows == len(self._start):
            self._start = np.concatenate([self._start, np.empty_like(self._start)])
            self._data = np.concatenate([self._data, np.empty_like(self._data)])
        self._start[self._rows] = start_s
        row = self._data[self._rows]
        row[0], row[1], row[2] = arrived, served, capacity
        self._rows += 1

    def curves(self, queue: int) -> tuple[NDArray[np.float64], ...]:
        """Return (starts, arrived, served, capacity) of one queue, one entry a slot."""
        data = self._data[: self._rows, :, queue]
        return self._start[: self._rows], data[:, 0], data[:, 1], data[:, 2]


@dataclass(slots=True)
class FluidQueues:
    """Queues of one group; each belongs to one member, or all to one pool.

    A member shares its capacity among its queues in proportion to the work that waits and arrives in each.
    """

    count: int
    backlog: NDArray[np.float64] = field(init=False)
    """Records that wait, shape (queues,)."""
    served: NDArray[np.float64] = field(init=False)
    log: SlotLog = field(init=False)
    _at_s: float = 0.0
    _arrived: NDArray[np.float64] = field(init=False)
    _owner: NDArray[np.int64] | None = None
    _place: tuple[NDArray[np.bool_] | None, NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        self.backlog = np.zeros(self.count)
        self.served = np.zeros(self.count)
        self._arrived = np.zeros(self.count)
        self.log = SlotLog(self.count)

    def pass_slot(
        self,
        until_s: float,
        arrived: NDArray[np.float64],
        capacity: float | NDArray[np.float64],
        owner: NDArray[np.int64] | None = None,
        serving: NDArray[np.bool_] | None = None,
    ) -> None:
        """Let time go on to ``until_s``; rates are constant until then.

        Parameters
        ----------
        until_s
            End of the slot, seconds after the run's start.
        arrived
            Cumulative arrivals at its end, shape (queues,).
        capacity
            Records/s of each member, shape (members,); of the whole pool when ``owner`` is None.
        owner
            Member that owns each queue, shape (queues,); −1 where nobody does. Another assignment is another array.
        serving
            False where a queue is stalled; None if none is.
        """
        length = until_s - self._at_s
        if length <= 0:
            return
        if owner is None and self.count == 1:
            self._pass_pool(until_s, arrived, float(np.sum(capacity)))
            return
        work = self.backlog + (arrived - self._arrived)
        asked = work if serving is None else np.where(serving, work, 0.0)
        if owner is None:
            total = asked.sum()
            share = asked * (float(np.sum(capacity)) / total) if total > 0 else np.full(self.count, np.sum(capacity))
        else:
            held, place = self._held(owner)
            if held is not None:
                asked = np.where(held, asked, 0.0)
            loads = np.bincount(place, asked, np.size(capacity))
            share = asked * (capacity / np.where(loads > 0, loads, np.inf))[place]
        self.log.append(self._at_s, self._arrived, self.served, share)
        done = np.minimum(asked, share * length)
        self.served = self.served + done
        self.backlog = work - done
        self._arrived = arrived
        self._at_s = until_s

    def _pass_pool(self, until_s: float, arrived: NDArray[np.float64], capacity: float) -> None:
        """The same for one queue that all members share: a number is quicker than an array of one."""
        work = float(self.backlog[0]) + float(arrived[0] - self._arrived[0])
        done = min(work, capacity * (until_s - self._at_s))
        self.log.append(self._at_s, self._arrived, self.served, capacity)
        self.served = self.served + done
        self.backlog = np.array([work - done])
        self._arrived = arrived
        self._at_s = until_s

    def _held(self, owner: NDArray[np.int64]) -> tuple[NDArray[np.bool_] | None, NDArray[np.int64]]:
        """Return which queues have an owner (None: all), and a member for each; looked at once for an assignment."""
        if self._owner is not owner:
            held = owner >= 0
            self._owner, self._place = owner, (None if held.all() else held, np.maximum(owner, 0))
        return self._place

    def close(self, slo_s: float) -> None:
        """End the run: what still waits is served on at the last capacity, and nothing more arrives."""
        last = self.log.curves(0)[0].size - 1
        capacity = np.array([self.log.curves(q)[3][last] for q in range(self.count)]) if last >= 0 else None
        if capacity is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            drain = np.where(self.backlog > 0, self.backlog / capacity, 0.0)
        tail = float(np.max(np.where(np.isfinite(drain), drain, 0.0))) + 2 * slo_s
        self.log.append(self._at_s, self._arrived, self.served, capacity)
        self.log.append(
            self._at_s + tail, self._arrived, np.minimum(self._arrived, self.served + capacity * tail), capacity
        )


def late_records(curves: tuple[NDArray[np.float64], ...], slo_s: float) -> tuple[float, float]:
    """Return (late records, all records) of one queue's slots.

    Exact: within each cell between two breakpoints of ``A(t)`` and ``S(t + slo)`` both are straight lines.
    """
    _, late = late_arrivals(curves, slo_s)
    return float(late.sum()), float(curves[1][-1]) if curves[0].size >= 2 else 0.0


def late_arrivals(
    curves: tuple[NDArray[np.float64], ...], slo_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when the late records of one queue's slots arrived: (begin of a cell in seconds, late records in it)."""
    start, arrived, served, capacity = curves
    if start.size < 2:
        return np.zeros(0), np.zeros(0)
    length = np.diff(start)
    rate = np.diff(arrived) / length
    cells = np.unique(np.concatenate([start, start - slo_s]))
    cells = cells[(cells >= start[0]) & (cells <= start[-1] - slo_s)]
    if cells.size < 2:
        return np.zeros(0), np.zeros(0)
    here, size = cells[:-1], np.diff(cells)
    now = np.clip(np.searchsorted(start, here, side="right") - 1, 0, length.size - 1)
    then = np.clip(np.searchsorted(start, here + slo_s, side="right") - 1, 0, length.size - 1)
    offset = here + slo_s - start[then]
    first = arrived[now] + rate[now] * (here - start[now])
    by_capacity = served[then] + capacity[then] * offset
    ahead = first - by_capacity - _EPSILON_RECORDS
    slope = rate[now] - capacity[then]
    behind = ahead + slope * size
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = np.clip(np.where(slope != 0, -ahead / slope, 0.0), 0.0, size)
    late_s = np.where(
        (ahead > 0) & (behind > 0), size, np.where(ahead > 0, crossing, np.where(behind > 0, size - crossing, 0.0))
    )
    return here, rate[now] * late_s


def latencies(curves: tuple[NDArray[np.float64], ...], points: int = 3) -> tuple[NDArray[np.float64], ...]:
    """Return (latency in seconds, records it stands for), at ``points`` arrivals inside each slot of one queue."""
    start, arrived, served, capacity = curves
    if start.size < 2:
        return np.zeros(0), np.zeros(0)
    share = (np.arange(points) + 0.5) / points
    count = np.diff(arrived)
    length = np.diff(start)
    level = (arrived[:-1, None] + count[:, None] * share).ravel()
    moment = (start[:-1, None] + length[:, None] * share).ravel()
    weight = np.repeat(count / points, points)
    some = weight > 0
    level, moment, weight = level[some], moment[some], weight[some]
    slot = np.clip(np.searchsorted(served, level, side="right") - 1, 0, length.size - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        at_capacity = start[slot] + (level - served[slot]) / capacity[slot]
    done = np.fmax(moment, at_capacity)
    done[level > served[-1] + _EPSILON_RECORDS] = np.inf
    return np.maximum(done - moment, 0.0), weight


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], levels: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the quantiles of values that stand for so many records each; zeros when there are none.

    Examples
    --------
    >>> weighted_quantiles(np.array([1.0, 5.0]), np.array([9.0, 1.0]), (0.5, 0.99))
    (1.0, 5.0)
    """
    if not weights.size or weights.sum() <= 0:
        return tuple(0.0 for _ in levels)
    some = np.flatnonzero(values)  # most records wait for nothing, and need no sorting
    order = np.concatenate([np.flatnonzero(values == 0), some[np.argsort(values[some], kind="stable")]])
    covered = np.cumsum(weights[order])
    at = np.searchsorted(covered, np.array(levels) * covered[-1], side="left")
    return tuple(float(v) for v in values[order][np.minimum(at, values.size - 1)])
