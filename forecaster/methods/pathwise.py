"""The frame around a path: wall clock, working step, logs, past errors, quantiles, topic total.

One frame for all methods that draw a path, so that gaps, zeros, short histories, clock changes and sums are handled
once. Calculations are causal: what is returned for an origin depends on nothing after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from forecaster.cleaning import fill_gaps, known_since, mask_one_offs
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.intervals import HISTORY_MULTIPLE, Spread, reconcile
from forecaster.methods.base import DEFAULT_LEVELS, LogPanel
from forecaster.panel import Panel, coarsen, panel_of, working_factor
from forecaster.scaling import LogScale
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

MAX_WEEKS = 8
"""Older history is not looked at: it costs time, and arrival rates forget."""

REPLAY_DAYS = 10
"""Days on which past errors may be looked at."""

PAST_ORIGINS = 7
"""Daily origins at which a method is asked again to see how far off it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A history made ready: rows that know something, the topic's sum as last row when there are several.

    Parameters
    ----------
    rows
        Positions of the partitions kept.
    fine
        Shape (rows [+ 1], last positions): counts per step, gaps filled; NaN before a row's first value.
    seen
        The same with NaN in every gap: what errors are measured against.
    top
        Shape (rows [+ 1],): largest count of the whole history.
    first
        First position that any row knows.
    panel
        The axis.
    factor
        Steps in a working step.
    scale
        Log scale of each row.
    working
        Logs at the working step.
    end_s
        The origin, seconds since 1970.
    """

    rows: tuple[int, ...]
    fine: Floats
    seen: Floats
    top: Floats
    first: int
    panel: Panel
    factor: int
    scale: LogScale
    working: LogPanel
    end_s: float

    def only(self, rows: NDArray[np.int64]) -> Prepared:
        """Return some rows (positions; the topic's sum is one of them), for looking at errors."""
        return replace(
            self,
            fine=self.fine[rows],
            seen=self.seen[rows],
            top=self.top[rows],
            scale=LogScale(self.scale.unit[rows]),
            working=replace(self.working, logs=self.working.logs[rows]),
        )

    def logs_seen(self) -> Floats:
        """Return the logs of what was seen, at the step of the history."""
        return self.scale.forward(self.seen)

    @property
    def has_total(self) -> bool:
        """Whether the last row is the topic's sum."""
        return len(self.rows) > 1


def prepare(history: ArrivalSeries, horizon_steps: int, factor: int | None = None) -> Prepared | None:
    """Make a history ready, or return None if no row knows anything.

    At the working step, spikes and outages that happened once are masked; errors are measured against what was seen.
    A caller that names its own ``factor`` gets everything as it was.

    Raises
    ------
    ValueError
        If ``horizon_steps`` is not positive.
    """
    if horizon_steps < 1:
        raise ValueError(f"horizon_steps={horizon_steps} must be at least 1")
    day = history.grid.steps_per_day
    history = history.between(history.end_index - MAX_WEEKS * 7 * day, history.end_index)
    panel = panel_of(history, horizon_steps)
    gapless = panel.positions > 0 and bool(np.isfinite(panel.values).all())
    known = None if gapless else np.isfinite(panel.values)
    rows = np.arange(len(panel.values)) if known is None else np.flatnonzero(known.any(axis=1))
    if rows.size == 0 or panel.positions == 0:
        return None
    native, factor = factor is not None, factor or working_factor(day)
    keep = panel.positions if native else min(panel.positions, _fine_days(horizon_steps, day) * day)
    if known is None:
        whole = panel.values
        fine = seen = whole[:, panel.positions - keep :]
        coarse, top = coarsen(whole, factor), whole.max(axis=1)
        if rows.size > 1:
            total = np.ones(rows.size) @ whole
            fine = seen = np.concatenate([fine, total[None, panel.positions - keep :]])
            coarse, top = np.concatenate([coarse, coarse.sum(axis=0)[None]]), np.append(top, total.max())
        first = np.zeros(len(fine), dtype=np.int64)
    else:
        fine, seen = _filled(panel.values[rows], known[rows], day)
        coarse, top, first = coarsen(fine, factor), np.nanmax(fine, axis=1), known_since(fine)
        fine, seen = fine[:, panel.positions - keep :], seen[:, panel.positions - keep :]
    if coarse.shape[1] == 0 or not np.isfinite(coarse).any():
        coarse, factor = fine, 1
    scale = LogScale.of(coarse)
    logs = fill_gaps(scale.forward(coarse), day // factor)
    if not native:
        logs = mask_one_offs(logs, day // factor)
    return Prepared(
        tuple(int(r) for r in rows),
        fine,
        seen,
        top,
        int(first.min()),
        panel,
        factor,
        scale,
        LogPanel(logs, day // factor),
        history.end.timestamp(),
    )


def _fine_days(horizon_steps: int, day: int) -> int:
    """Return how many days are kept at the step of the history: the profile's, and those on which errors are seen."""
    return max(15, -(-horizon_steps // day) + REPLAY_DAYS + 1)


def _filled(values: Floats, known: NDArray[np.bool_], day: int) -> tuple[Floats, Floats]:
    """Fill gaps and add the topic's sum as last row when there are several; return that, and the same with its gaps."""
    fine = fill_gaps(values, day)
    if len(values) == 1:
        return fine, values
    # A partition that is not born yet adds nothing; the sum starts where the first of them does.
    born = np.isfinite(fine)
    total = np.where(born.any(axis=0), np.nansum(fine, axis=0), np.nan)
    complete = known.sum(axis=0) == born.sum(axis=0)
    seen = np.concatenate([values, np.where(complete, total, np.nan)[None]])
    return np.concatenate([fine, total[None]]), seen


class PathwiseMethod(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Base of every method that draws a path (see :class:`forecaster.methods.base.PathMethod`)."""

    name = "pathwise"
    rung = Rung.NONE
    native_step = False
    """Whether paths are drawn at the step of the history instead of the working step."""

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Learn from histories; a method without parameters to learn keeps nothing.

        Histories are brought to the working step; those whose working step differs from the first are left out.
        """
        ready = [prepare(history, 1) for history in histories]
        panels = [r.working for r in ready if r is not None]
        panels = [p for p in panels if p.steps_per_day == panels[0].steps_per_day]
        return self.fit_panels(panels) if panels else self

    def fit_panels(self, panels: Sequence[LogPanel]) -> Self:
        """Learn from prepared logs; nothing by default."""
        return self

    def days_needed(self) -> float:
        """Return how many days of history a row must have."""
        raise NotImplementedError

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Draw the path from each origin, shape (rows, origins, horizon)."""
        raise NotImplementedError

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast from the end of a history.

        Parameters
        ----------
        history
            What was recorded up to the origin.
        horizon_steps
            Steps to forecast.
        levels
            Quantile levels, rising within (0, 1).

        Returns
        -------
        Forecast or NoForecast
            Partitions without a single known step are left out, and the reasons name them.

        Raises
        ------
        ValueError
            If ``horizon_steps`` is not positive or the levels do not rise within (0, 1).
        """
        asked = checked_levels(levels)
        ready = prepare(history, horizon_steps, 1 if self.native_step else None)
        refusal = self._refusal(history, ready)
        if refusal is not None or ready is None:
            return refusal or NoForecast(history.topic, history.end, "nothing is known of any partition")
        reasons: list[str] = []
        quantiles = self._quantiles(ready, asked, reasons)
        return assemble(self.name, self.rung, history, ready, quantiles, asked, levels, reasons)

    def _refusal(self, history: ArrivalSeries, ready: Prepared | None) -> NoForecast | None:
        """Return why no row can be forecast, if so."""
        step, need = history.grid.step, self.days_needed()
        if ready is None:
            return NoForecast(history.topic, history.end, f"no recorded step yet; {self.name} needs {need:g} d", None)
        have = (ready.panel.positions - ready.first) * step
        if have < timedelta(days=need):
            start = history.end - have
            reason = f"{self.name} needs {need:g} d of history, there are {have / timedelta(days=1):.2f} d"
            return NoForecast(history.topic, history.end, reason, start + timedelta(days=need))
        return None

    def _known_errors(self, fine: Floats, origins: Sequence[int], ready: Prepared) -> Floats:
        """Return how far paths from past origins were off, the shape of ``fine``."""
        return past_errors(fine, origins, ready)

    def _quantiles(self, ready: Prepared, levels: tuple[float, ...], reasons: list[str]) -> Floats:
        """Return counts per step, shape (rows, fine horizon, levels)."""
        origins, horizon = origins_of(ready)
        drawn = self.paths(ready.working, origins, horizon)
        young: NDArray[np.bool_] = np.isnan(drawn[:, -1, 0])
        if young.any():
            drawn = fill_young(drawn, ready)
            count = int(young[: len(ready.rows)].sum())
            if count:
                reasons.append(f"{count} of {len(ready.rows)} partitions are too young; their recent mean is repeated")
        extend(drawn, ready.working.steps_per_day)
        fine = refine(drawn, ready)
        errors = self._known_errors(fine[:, :-1], origins[:-1], ready)
        offsets = Spread.of(errors.reshape(errors.shape[0], -1)).offsets(levels)
        now = fine[:, -1][:, ready.panel.ahead]
        return ready.scale.inverse(now[:, :, None] + offsets[:, None, :])


def checked_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return the levels with 0.5 among them.

    Raises
    ------
    ValueError
        If they do not rise within (0, 1).
    """
    asked = tuple(float(q) for q in levels)
    if not asked or list(asked) != sorted(set(asked)) or not all(0 < q < 1 for q in asked):
        raise ValueError(f"levels {asked} must rise within (0, 1)")
    return asked if 0.5 in asked else tuple(sorted({*asked, 0.5}))


def origins_of(ready: Prepared, count: int = PAST_ORIGINS) -> tuple[list[int], int]:
    """Return past daily origins whose truth is complete, then the present one; and the working horizon."""
    working = ready.working
    horizon = -(-ready.panel.horizon // ready.factor)
    end, day = working.logs.shape[1], working.steps_per_day
    past = [end - horizon - k * day for k in range(count)]
    return [t for t in reversed(past) if t >= 1] + [end], horizon


def fill_young(drawn: Floats, ready: Prepared) -> Floats:
    """Give rows that are too young for a path the mean of their last known day."""
    logs = ready.working.logs[:, -ready.working.steps_per_day :]
    known = np.isfinite(logs)
    recent = np.where(known, logs, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    out = drawn.copy()
    np.copyto(out[:, -1], recent[:, None], where=np.isnan(out[:, -1]))
    return out


def extend(drawn: Floats, day: int) -> None:
    """Go on with the path of a day before where a method's leads end, in place."""
    for lead in range(day, drawn.shape[2]):
        ended = np.isnan(drawn[:, :, lead])
        if ended.any():
            np.copyto(drawn[:, :, lead], drawn[:, :, lead - day], where=ended)


def refine(drawn: Floats, ready: Prepared) -> Floats:
    """Put the shape within a working step back: shape (rows, origins, working horizon * factor).

    The shape is the mean difference of logs, per slot of the day, over the last two weeks before the first origin
    that is asked now; it is shrunk toward flat when few days were seen.
    """
    if ready.factor == 1:
        return drawn
    factor, day = ready.factor, ready.working.steps_per_day
    fine_day = day * factor
    days = min(14, ready.working.logs.shape[1] // day)
    repeated = np.repeat(drawn, factor, axis=2)
    if days < 1:
        return repeated
    # single precision is enough for a profile, and its logs cost a fifth
    fine = ready.fine[:, -days * fine_day :].astype(np.float32)
    fine /= ready.scale.unit[:, None].astype(np.float32)
    fine += np.float32(1.0)
    apart = np.log(fine, out=fine).reshape(len(fine), days * day, factor)
    apart -= ready.working.logs[:, -days * day :].astype(np.float32)[:, :, None]
    apart = np.clip(apart, -2.0, 2.0, out=apart).reshape(len(fine), days, fine_day)
    profile = apart.sum(axis=1) / np.float32(days + 3.0)
    if not np.isfinite(profile).all():
        known = np.isfinite(apart)
        profile = np.where(known, apart, 0.0).sum(axis=1) / (known.sum(axis=1) + 3.0)
    slots = np.arange(repeated.shape[2]) % fine_day
    out: Floats = np.maximum(repeated + profile[:, None, slots], 0.0)
    return out


def past_errors(fine: Floats, origins: Sequence[int], ready: Prepared) -> Floats:
    """Return truth minus path at past origins, the shape of ``fine``; NaN in gaps and where the truth is to come."""
    length, factor, coarse_end = ready.seen.shape[1], ready.factor, ready.working.logs.shape[1]
    errors = np.full(fine.shape, np.nan)
    for k, origin in enumerate(origins):
        start = length - (coarse_end - origin) * factor
        if start < 0:
            continue
        truth = ready.scale.forward(ready.seen[:, start : start + fine.shape[2]])
        errors[:, k, : truth.shape[1]] = truth - fine[:, k, : truth.shape[1]]
    return errors


def agreed(paths: Floats, ready: Prepared) -> Floats:
    """Return past paths as they would have been told, partitions and topic made to agree; rows come first.

    Where only some rows are looked at, they stay as they are.
    """
    if not ready.has_total or len(paths) != len(ready.rows) + 1:
        return paths
    counts = ready.scale.inverse(paths).reshape(len(paths), -1, 1)
    partitions, total = reconcile(counts[:-1], counts[-1], 0)
    told: Floats = ready.scale.forward(np.concatenate([partitions, total[None]]).reshape(paths.shape))
    return told


def assemble(
    name: str,
    rung: Rung,
    history: ArrivalSeries,
    ready: Prepared,
    quantiles: Floats,
    asked: tuple[float, ...],
    levels: Sequence[float],
    reasons: Sequence[str],
) -> Forecast:
    """Bound, order, reconcile and convert quantiles to rates.

    Parameters
    ----------
    name, rung
        Who answers, on which rung.
    history, ready
        What was asked, and what was made of it.
    quantiles
        Shape (rows [+ total], steps, levels), counts per step at the levels ``asked``.
    asked, levels
        Levels computed (0.5 among them), and levels wanted.
    reasons
        What a reader should know.
    """
    top = HISTORY_MULTIPLE * ready.top
    counts = np.minimum(np.maximum.accumulate(np.maximum(quantiles, 0.0), axis=2), top[:, None, None])
    middle = asked.index(0.5)
    if ready.has_total:
        partitions, total = reconcile(counts[:-1], counts[-1], middle)
        partitions = np.minimum(partitions, top[:-1, None, None])
    else:
        partitions, total = counts, counts[0]
    keep = [asked.index(float(q)) for q in levels]
    said = list(reasons)
    present = set(ready.rows)
    missing = [p for i, p in enumerate(history.partitions) if i not in present]
    if missing:
        said.append(f"no forecast for partition {', '.join(map(str, missing[:8]))}: nothing was ever recorded")
    step_s = history.grid.step_s
    return Forecast(
        history.topic,
        history.end,
        history.grid.step,
        tuple(history.partitions[i] for i in ready.rows),
        tuple(float(q) for q in levels),
        partitions[:, :, keep] / step_s,
        total[:, keep] / step_s,
        name,
        rung,
        tuple(said),
    )
