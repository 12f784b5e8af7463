"""Arrivals on one grid: many partitions, records per step, and which of them are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forecaster.timegrid import TimeGrid

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class ArrivalSeries:
    """Records that arrived in each step of each partition of one topic.

    Parameters
    ----------
    topic
        Name of the topic (or of the trace).
    grid
        Step length and zone.
    first_index
        Number of the first step on the grid.
    partitions
        Partition numbers, one a row.
    counts
        Shape (partitions, steps), records per step, finite and never negative. Zero where ``known`` is false: read
        it through ``known``, or take :meth:`with_gaps_as_nan` for arithmetic that skips gaps.
    known
        Shape (partitions, steps). False is a gap: nobody looked, which is not the same as nothing arrived.
    names
        What each row was called where it came from (series ids of a trace); absent for real partitions.

    Raises
    ------
    ValueError
        If shapes disagree, a partition repeats, or a known count is negative or not finite.

    Examples
    --------
    >>> series = ArrivalSeries("orders", TimeGrid(60), 0, (0,), np.array([[60.0, 0.0]]), np.array([[True, False]]))
    >>> series.rates()[0, 0]  # records/s
    np.float64(1.0)
    >>> series.coverage
    0.5
    """

    topic: str
    grid: TimeGrid
    first_index: int
    partitions: tuple[int, ...]
    counts: NDArray[np.float64]
    known: NDArray[np.bool_]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.partitions), self.steps)
        if self.counts.shape != shape or self.known.shape != shape:
            raise ValueError(f"counts {self.counts.shape} and known {self.known.shape} must both be {shape}")
        if len(set(self.partitions)) != len(self.partitions):
            raise ValueError("a partition number repeats")
        if self.names is not None and len(self.names) != len(self.partitions):
            raise ValueError("names must have one entry a partition")
        if not np.isfinite(self.counts).all() or (self.counts < 0).any():
            raise ValueError("counts must be finite and not negative; mark what is missing in `known`")

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.counts.shape[1]) if self.counts.ndim == 2 else 0

    @property
    def end_index(self) -> int:
        """Number of the first step after the last."""
        return self.first_index + self.steps

    @property
    def start(self) -> datetime:
        """First instant covered, UTC."""
        return self.grid.start_of(self.first_index)

    @property
    def end(self) -> datetime:
        """First instant no longer covered, UTC; the origin of a forecast made from this history."""
        return self.grid.start_of(self.end_index)

    @property
    def coverage(self) -> float:
        """Share of (partition, step) cells that are known; 0.0 for an empty series."""
        return float(self.known.mean()) if self.known.size else 0.0

    def rates(self) -> NDArray[np.float64]:
        """Return records/s, shape (partitions, steps); zero where not known."""
        return self.counts / self.grid.step_s

    def with_gaps_as_nan(self) -> NDArray[np.float64]:
        """Return counts with NaN in the gaps, for nan-aware arithmetic inside a method."""
        return np.where(self.known, self.counts, np.nan)

    def total(self) -> ArrivalSeries:
        """Return the topic's sum as one row; a step is known only where every partition is."""
        known: NDArray[np.bool_] = np.asarray(self.known.all(axis=0, keepdims=True), dtype=np.bool_)
        counts = np.where(known, self.counts.sum(axis=0, keepdims=True), 0.0)
        return replace(self, partitions=(0,), counts=counts, known=known, names=None)

    def between(self, first_index: int, end_index: int) -> ArrivalSeries:
        """Return the steps ``[first_index, end_index)`` that this series has."""
        lo = min(max(first_index - self.first_index, 0), self.steps)
        hi = min(max(end_index - self.first_index, lo), self.steps)
        part: ArrivalSeries = object.__new__(ArrivalSeries)  # a part of what was checked need not be checked again
        for name in ("topic", "grid", "partitions", "names"):
            object.__setattr__(part, name, getattr(self, name))
        object.__setattr__(part, "first_index", self.first_index + lo)
        object.__setattr__(part, "counts", self.counts[:, lo:hi])
        object.__setattr__(part, "known", self.known[:, lo:hi])
        return part

    def until(self, origin: datetime) -> ArrivalSeries:
        """Return what was complete at ``origin``: steps that end at or before it. Nothing later can leak in."""
        return self.between(self.first_index, self.grid.index_of(origin))

    def at_step(self, step_s: int) -> ArrivalSeries:
        """Return the same arrivals in longer steps, aligned to their grid.

        A longer step is known when at least half of it is; what is missing of it counts as its known mean. Shorter
        steps at either end that do not fill a longer one are left out.

        Raises
        ------
        ValueError
            If ``step_s`` is not a multiple of this series' step, or does not divide a day.

        Examples
        --------
        >>> one = ArrivalSeries("t", TimeGrid(60), 1, (0,), np.ones((1, 5)), np.full((1, 5), True))
        >>> two = one.at_step(120)
        >>> two.first_index, two.counts.tolist()
        (1, [[2.0, 2.0]])
        """
        factor, rest = divmod(step_s, self.grid.step_s)
        if step_s < self.grid.step_s or rest:
            raise ValueError(f"step_s={step_s} must be a multiple of the recorded step of {self.grid.step_s} s")
        grid = TimeGrid(step_s, self.grid.timezone)
        first, end = -(-self.first_index // factor), self.end_index // factor
        part = self.between(first * factor, max(first, end) * factor)
        shape = (len(self.partitions), part.steps // factor, factor)
        seen = part.known.reshape(shape).sum(axis=2)
        known: NDArray[np.bool_] = np.asarray(2 * seen >= factor, dtype=np.bool_)
        sums = np.where(part.known, part.counts, 0.0).reshape(shape).sum(axis=2)
        counts = np.where(known, sums * factor / np.maximum(seen, 1), 0.0)
        return replace(self, grid=grid, first_index=first, counts=counts, known=known)

    def select(self, rows: Sequence[int]) -> ArrivalSeries:
        """Return the given rows (positions, not partition numbers)."""
        index = list(rows)
        return replace(
            self,
            partitions=tuple(self.partitions[i] for i in index),
            counts=self.counts[index],
            known=self.known[index],
            names=None if self.names is None else tuple(self.names[i] for i in index),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a frame indexed by step start (UTC), a column a partition, ``<NA>`` in the gaps."""
        import pandas as pd  # slow to import, much memory, and seldom needed

        index = pd.DatetimeIndex(self.grid.starts(self.first_index, self.steps), tz="UTC", name="timestamp")
        columns = list(self.names or self.partitions)
        values = pd.DataFrame(self.counts.T, index=index, columns=columns).astype("Float64")
        return values.mask(~self.known.T)
