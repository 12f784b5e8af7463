"""The double-seasonal state of all partitions, moved on by one tick in constant time and kept as bytes.

Only the best three parameter sets of each row are kept, in float32, on season slots of at least five minutes: 27.6 kB
a row at five-minute slots. The sets are chosen on hours (`forecaster.methods.grid`); level smoothing and fading are
converted to the length of a slot, so that they forget as much in an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forecaster.cleaning import fill_gaps
from forecaster.methods.grid import BEST, PARAMETER_SETS, smooth
from forecaster.panel import coarsen, panel_of, wall_positions, working_factor
from forecaster.scaling import LogScale
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

SHORTEST_SLOT_S = 300


@dataclass(slots=True, eq=False)
class GridState:
    """Level, seasons and last error of every row; :meth:`update` moves it in place.

    Parameters
    ----------
    grid
        Steps and zone of the ticks.
    slot_steps
        Steps in a season slot.
    next_index
        Number of the next step that is expected.
    unit
        Shape (rows,): unit of the log scale, records per step.
    sets
        Shape (rows, 3, 4): level, day, week smoothing and fading, per slot.
    level, error
        Shape (rows, 3).
    day, week
        Shapes (slots of a day, rows, 3) and (slots of a week, rows, 3), by wall-clock slot.
    sums, seen
        Shape (rows,): what arrived in the slot that is under way, and how many of its steps are known.
    """

    grid: TimeGrid
    slot_steps: int
    next_index: int
    unit: Floats
    sets: Singles
    level: Singles
    error: Singles
    day: Singles
    week: Singles
    sums: Floats
    seen: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """Number of partitions."""
        return int(self.level.shape[0])

    @property
    def bytes_per_row(self) -> float:
        """Memory of a row."""
        arrays = (self.unit, self.sets, self.level, self.error, self.day, self.week, self.sums, self.seen)
        return sum(a.nbytes for a in arrays) / max(self.rows, 1)

    @classmethod
    def of(cls, history: ArrivalSeries) -> GridState:
        """Start from a history: choose sets on hours, then run them over its slots.

        Raises
        ------
        ValueError
            If nothing is known.
        """
        panel = panel_of(history, 1)
        if not np.isfinite(panel.values).any():
            raise ValueError("nothing is known of any partition")
        grid, day = history.grid, history.grid.steps_per_day
        hourly = working_factor(day)
        scale = LogScale.of(panel.values)
        filled = fill_gaps(panel.values, day)
        hours = fill_gaps(scale.forward(coarsen(filled, hourly)), day // hourly)
        best = smooth(hours, day // hourly, [hours.shape[1]], day // hourly).best if hours.shape[1] else None
        rows = len(history.partitions)
        chosen = PARAMETER_SETS[best] if best is not None else np.tile(PARAMETER_SETS[:BEST], (rows, 1, 1))
        slot_steps = working_factor(day, SHORTEST_SLOT_S)
        share = np.float32(slot_steps / hourly)
        sets = chosen.astype(np.float32).copy()
        sets[..., 0] = 1 - (1 - sets[..., 0]) ** share
        sets[..., 3] **= share
        slots = day // slot_steps
        state = cls(
            grid,
            slot_steps,
            history.first_index,
            scale.unit,
            sets,
            np.zeros((rows, BEST), np.float32),
            np.zeros((rows, BEST), np.float32),
            np.zeros((slots, rows, BEST), np.float32),
            np.zeros((7 * slots, rows, BEST), np.float32),
            np.zeros(rows),
            np.zeros(rows, dtype=np.int64),
        )
        state._start(history)
        for i in range(history.steps):
            state.update(history.counts[:, i], history.known[:, i])
        return state

    def _start(self, history: ArrivalSeries) -> None:
        """Start level and seasons from the means of what is known; the week only where two weeks are there."""
        logs = LogScale(self.unit).forward(history.with_gaps_as_nan())
        known = np.isfinite(logs)
        mean = np.where(known, logs, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        self.level[:] = mean[:, None]
        rest = np.where(known, logs - mean[:, None], 0)
        slots = wall_positions(self.grid, history.first_index, history.steps) // self.slot_steps
        by_day = _slot_means(rest, known, slots % len(self.day), len(self.day))
        self.day[:] = by_day[:, :, None]
        if history.steps >= 14 * history.grid.steps_per_day:
            rest = np.where(known, rest - by_day[slots % len(self.day)].T, 0)
            self.week[:] = _slot_means(rest, known, slots % len(self.week), len(self.week))[:, :, None]

    def update(self, counts: Floats, known: NDArray[np.bool_]) -> None:
        """Take one tick.

        Parameters
        ----------
        counts
            Shape (rows,): records in the step ``next_index``.
        known
            Shape (rows,): a gap moves nothing but the fading of the last error.
        """
        position = int(wall_positions(self.grid, self.next_index, 1)[0])
        np.add(self.sums, counts, out=self.sums, where=known)
        self.seen += known
        self.next_index += 1
        if (position + 1) % self.slot_steps:
            return
        some = self.seen > 0
        logs = np.log1p(self.sums / np.maximum(self.seen, 1) / self.unit).astype(np.float32)
        self.sums[:] = 0
        self.seen[:] = 0
        day = self.day[position // self.slot_steps % len(self.day)]
        week = self.week[self._week_slot(position)]
        fade = self.sets[:, :, 3] * self.error
        raw = logs[:, None] - self.level - day - week
        error = np.where(some[:, None], raw - fade, np.float32(0))
        self.level += self.sets[:, :, 0] * error
        day += self.sets[:, :, 1] * error
        week += self.sets[:, :, 2] * error
        self.error = np.where(some[:, None], raw, fade)

    def _week_slot(self, position: int) -> int:
        return position // self.slot_steps % len(self.week)

    def path(self, horizon_steps: int) -> Floats:
        """Return records per step from ``next_index`` on, (rows, horizon): the mean of the three sets' logs."""
        slots = wall_positions(self.grid, self.next_index, horizon_steps) // self.slot_steps
        fades = self.sets[:, :, 3] ** ((np.arange(horizon_steps) // self.slot_steps + 1)[:, None, None]) * self.error
        logs = self.level + self.day[slots % len(self.day)] + self.week[slots % len(self.week)] + fades
        return LogScale(self.unit).inverse(logs.mean(axis=2).T.astype(np.float64))

    def copy(self) -> GridState:
        """Return a state of its own."""
        return replace(self, **{name: getattr(self, name).copy() for name in _ARRAYS})


def _slot_means(rest: Floats, known: NDArray[np.bool_], slots: NDArray[np.int64], count: int) -> Floats:
    """Return the mean of each slot, shape (count, rows); zero where a slot was never seen."""
    sums, seen = np.zeros((count, rest.shape[0])), np.zeros((count, rest.shape[0]))
    np.add.at(sums, slots, rest.T)
    np.add.at(seen, slots, known.T)
    out: Floats = sums / np.maximum(seen, 1)
    return out


_ARRAYS = ("unit", "sets", "level", "error", "day", "week", "sums", "seen")
