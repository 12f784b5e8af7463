"""Arrivals of a simulation: counts on even steps, spread evenly inside each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

MINUTE_S = 60


@dataclass(frozen=True, slots=True, eq=False)
class ArrivalTrace:
    """Records that arrive in each step of each queue; inside a step they are spread evenly.

    Parameters
    ----------
    start
        First instant of the first step, aware UTC.
    step_s
        Length of a step in seconds.
    counts
        Shape (queues, steps), records per step, finite and never negative. Gaps must have been filled before.
    partitioned
        True when each queue is a partition, which caps the members; false for one fluid queue without a cap.

    Raises
    ------
    ValueError
        If the shape is not two-dimensional, or a count is negative or not finite.

    Examples
    --------
    >>> from datetime import UTC
    >>> trace = ArrivalTrace(datetime(2026, 1, 5, tzinfo=UTC), 120, np.array([[120.0, 240.0]]))
    >>> trace.arrived(np.array([0.0, 60.0, 240.0])).tolist()
    [[0.0, 60.0, 360.0]]
    >>> trace.minutes().tolist()
    [[60.0, 60.0, 120.0, 120.0]]
    """

    start: datetime
    step_s: int
    counts: NDArray[np.float64]
    partitioned: bool = False
    _cumulative: NDArray[np.float64] = field(init=False, repr=False)
    _by_step: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.counts.ndim != 2:
            raise ValueError(f"counts {self.counts.shape} must be (queues, steps)")
        if not np.isfinite(self.counts).all() or (self.counts < 0).any():
            raise ValueError("counts must be finite and not negative; fill gaps first")
        if self.step_s <= 0:
            raise ValueError(f"step_s={self.step_s} must be positive")
        zero = np.zeros((self.counts.shape[0], 1))
        cumulative = np.concatenate([zero, np.cumsum(self.counts, axis=1)], axis=1)
        # An instant's values side by side in memory: a simulation asks for one instant after the other.
        object.__setattr__(self, "_cumulative", np.asfortranarray(cumulative))
        object.__setattr__(self, "_by_step", np.asfortranarray(self.counts))

    @property
    def queues(self) -> int:
        """Number of queues."""
        return int(self.counts.shape[0])

    @property
    def duration_s(self) -> float:
        """Seconds covered."""
        return float(self.counts.shape[1] * self.step_s)

    @property
    def end(self) -> datetime:
        """First instant no longer covered."""
        return self.start + timedelta(seconds=self.duration_s)

    def arrived_by(self, at_s: float) -> NDArray[np.float64]:
        """Return records that arrived in each queue until ``at_s`` seconds after the start, shape (queues,)."""
        steps = self.counts.shape[1]
        position = at_s / self.step_s
        index = min(max(int(position), 0), steps - 1)
        share = min(max(position - index, 0.0), 1.0)
        if share == 0:
            return self._cumulative[:, index].copy()
        by: NDArray[np.float64] = self._cumulative[:, index] + share * self._by_step[:, index]
        return by

    def arrived(self, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return cumulative records at many instants (seconds after the start), shape (queues, instants)."""
        steps = self.counts.shape[1]
        position = np.clip(np.asarray(at_s, dtype=float) / self.step_s, 0, steps)
        index = np.minimum(position.astype(np.int64), steps - 1)
        by: NDArray[np.float64] = self._cumulative[:, index] + (position - index) * self.counts[:, index]
        return by

    def minutes(self) -> NDArray[np.float64]:
        """Return records per minute, shape (queues, whole minutes)."""
        whole = int(self.duration_s // MINUTE_S)
        if self.step_s == MINUTE_S:
            return self.counts
        return np.diff(self.arrived(np.arange(whole + 1, dtype=np.float64) * MINUTE_S), axis=1)

    def between(self, start: datetime, end: datetime) -> ArrivalTrace:
        """Return the steps that lie in ``[start, end)``; both should be edges of steps."""
        lo = max(0, int((start - self.start).total_seconds() // self.step_s))
        hi = min(self.counts.shape[1], int((end - self.start).total_seconds() // self.step_s))
        first = self.start + timedelta(seconds=lo * self.step_s)
        return ArrivalTrace(first, self.step_s, self.counts[:, lo : max(lo, hi)], self.partitioned)

    def poisson(self, seed: int) -> ArrivalTrace:
        """Return a random draw with these means: Poisson per minute (per step where that is shorter)."""
        rng = np.random.default_rng(seed)
        if self.step_s <= MINUTE_S:
            return ArrivalTrace(self.start, self.step_s, rng.poisson(self.counts).astype(float), self.partitioned)
        return ArrivalTrace(self.start, MINUTE_S, rng.poisson(self.minutes()).astype(float), self.partitioned)


def zipf_shares(partitions: int, exponent: float, seed: int) -> NDArray[np.float64]:
    """Return shares of ``partitions`` partitions that fall like ``1 / rank ** exponent``, shuffled by ``seed``.

    Examples
    --------
    >>> np.sort(zipf_shares(3, 1.0, 0)).round(3).tolist()
    [0.182, 0.273, 0.545]
    """
    weights = 1.0 / np.arange(1, partitions + 1, dtype=float) ** exponent
    return np.random.default_rng(seed).permutation(weights / weights.sum())


def spread(trace: ArrivalTrace, shares: NDArray[np.float64]) -> ArrivalTrace:
    """Split one queue over partitions by fixed shares.

    Raises
    ------
    ValueError
        If the trace has more than one queue.
    """
    if trace.queues != 1:
        raise ValueError(f"the trace already has {trace.queues} partitions; --partitions spreads a single series")
    return ArrivalTrace(trace.start, trace.step_s, shares[:, None] * trace.counts, partitioned=True)
