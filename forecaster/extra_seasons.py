"""Periods beside day and week: taken out of a history before a method sees it, and put back into what it says.

A job that runs every ten hours hits another hour each day, so that no daily or weekly season can hold it. Where a
topic's sum passes the test of `forecaster.periods`, every partition gets a profile by slot of that period (the median,
on the log scale, of what its usual same-time values leave over), learned from the history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from forecaster.forecast import Forecast, ForecastResult
from forecaster.intervals import HISTORY_MULTIPLE
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.periods import Period, found_periods, slot_means
from forecaster.scaling import LogScale
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

PRIOR_CYCLES = 3.0
"""A profile seen ``n`` times counts ``n / (n + 3)`` of its height: what was seen twice is half believed."""


class ExtraSeasons(BaseEstimator):
    """A method behind the removal of periods that are neither day nor week; without any it is the method itself.

    Parameters
    ----------
    method
        Who is asked.

    Examples
    --------
    >>> from forecaster.methods.catalogue import make_method
    >>> from forecaster.timegrid import TimeGrid
    >>> t = np.arange(28 * 24)
    >>> counts = 100.0 + 900.0 * (t % 10 == 0)[None]
    >>> jobs = ArrivalSeries("t", TimeGrid(3600), 0, (0,), counts, np.full(counts.shape, True))
    >>> said = ExtraSeasons(make_method("median_blend")).predict(jobs, 20, (0.5,)).at_level(0.5)[0] * 3600
    >>> np.flatnonzero(said > 500).tolist()  # 672 + 8 and + 18 are whole tens
    [8, 18]
    """

    def __init__(self, method: Method):
        self.method = method

    @property
    def name(self) -> str:
        """The method's own name."""
        return self.method.name

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Fit the method on histories without their extra seasons."""
        plain = []
        for history in histories:
            season = ExtraSeason.of(history)
            plain.append(history if season is None else season.taken_out(history))
        self.method = self.method.fit(plain)
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Ask the method about the history without its extra season, and put that back."""
        season = ExtraSeason.of(history)
        if season is None:
            return self.method.predict(history, horizon_steps, levels)
        result = self.method.predict(season.taken_out(history), horizon_steps, levels)
        return season.put_back(result) if isinstance(result, Forecast) else result


@dataclass(frozen=True, slots=True, eq=False)
class ExtraSeason:
    """One period of a topic with the profiles of its partitions and of its sum, on their log scales.

    Parameters
    ----------
    period
        What was found.
    steps
        Its length in steps of the history.
    partitions
        Partition numbers, a row of ``profiles`` each; the last row is the topic's sum.
    units
        Shape (partitions + 1,): unit of each row's log scale, records per step.
    profiles
        Shape (partitions + 1, steps).
    tops
        Shape (partitions + 1,): the largest count of each row's history, records per step.
    """

    period: Period
    steps: int
    partitions: tuple[int, ...]
    units: Floats
    profiles: Floats
    tops: Floats

    @classmethod
    def of(cls, history: ArrivalSeries) -> ExtraSeason | None:
        """Learn the extra season of a history; None where the data show none."""
        day_s = 86_400
        extra = [p for p in found_periods(history) if day_s % (p.steps * p.step_s) and p.steps * p.step_s % day_s]
        if not extra:
            return None
        steps = extra[0].steps * extra[0].step_s // history.grid.step_s
        total = np.where(history.known.any(axis=0), history.counts.sum(axis=0), np.nan)
        values = np.concatenate([history.with_gaps_as_nan(), total[None]])
        scale = LogScale.of(values)
        slots = (history.first_index + np.arange(history.steps)) % steps
        day = history.grid.day_slots(history.first_index, history.steps)
        per_day = history.grid.steps_per_day
        profiles = np.stack([_profile(row, day, per_day, slots, steps) for row in scale.forward(values)])
        cycles = history.steps / steps
        tops = np.where(np.isfinite(values), values, 0.0).max(axis=1)
        believed = profiles * (cycles / (cycles + PRIOR_CYCLES))
        return cls(extra[0], steps, history.partitions, scale.unit, believed, tops)

    def taken_out(self, history: ArrivalSeries) -> ArrivalSeries:
        """Return a history without this season; gaps stay gaps."""
        scale = LogScale(self.units[:-1])
        logs = scale.forward(history.counts) - self.profiles[:-1][:, self._slots(history.first_index, history.steps)]
        return replace(history, counts=np.where(history.known, scale.inverse(logs), 0.0))

    def put_back(self, forecast: Forecast) -> Forecast:
        """Return a forecast with this season; medians of partitions go on adding up to the topic's."""
        step_s = forecast.step.total_seconds()
        slots = self._slots(int(forecast.origin.timestamp() // step_s), forecast.steps)
        rows = [self.partitions.index(p) for p in forecast.partitions]
        rates = self._with(forecast.rates, rows, slots, step_s)
        total = self._with(forecast.total[None], [len(self.partitions)], slots, step_s)[0]
        if 0.5 in forecast.levels and rows:
            middle = forecast.level_index(0.5)
            sums, said = rates[:, :, middle].sum(axis=0), total[:, middle]
            agreed = np.where((sums > 0) & (said > 0), sums / np.where(said > 0, said, 1.0), 1.0)
            total = total * agreed[:, None]
        reason = f"a period of {self.period.hours:g} h is in the data and in the forecast"
        return replace(forecast, rates=rates, total=total, reasons=(*forecast.reasons, reason))

    def _with(self, rates: Floats, rows: Sequence[int], slots: NDArray[np.int64], step_s: float) -> Floats:
        scale = LogScale(self.units[list(rows)])
        logs = scale.forward(rates * step_s) + self.profiles[list(rows)][:, slots][:, :, None]
        bound = HISTORY_MULTIPLE * self.tops[list(rows)][:, None, None]
        bounded: Floats = np.minimum(scale.inverse(logs), bound) / step_s
        return bounded

    def _slots(self, first: int, count: int) -> NDArray[np.int64]:
        slots: NDArray[np.int64] = (first + np.arange(count)) % self.steps
        return slots


def _profile(logs: Floats, day: NDArray[np.int64], day_steps: int, slots: NDArray[np.int64], steps: int) -> Floats:
    """Return the median by slot of what the usual time of day leaves over, most of it zero."""
    profile = np.zeros(steps)
    whole = len(logs) // steps * steps
    if whole == 0 or not np.isfinite(logs).any():
        return profile
    usual = slot_means(logs, day, day_steps)[day]
    recent = (logs - usual)[-whole:].reshape(-1, steps)
    known = np.isfinite(recent).any(axis=0)
    profile[known] = np.nanmedian(recent[:, known], axis=0)
    shifted: Floats = np.roll(profile - np.median(profile), int(slots[-whole]))
    return shifted
