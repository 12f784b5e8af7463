"""The method that acts: the median of naive, grid, boosting and kernel ridge, with learned quantiles.

The median of the paths on the log scale is the point forecast. Its spread comes from a model of its errors on days
that the members did not see; the table of errors is then renewed at every forecast with what happened at daily
origins after the training, recomputed from the history itself, so there is no state to lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from forecaster.features import Features, features_at
from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel, PathMethod
from forecaster.methods.blend import median_of
from forecaster.methods.pathwise import (
    PAST_ORIGINS,
    PathwiseMethod,
    Prepared,
    fill_young,
    past_errors,
    prepare,
    refine,
)
from forecaster.methods.spread_model import SpreadModel, error_table, table_offsets
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

_RENEWAL_ROWS = 200  # rows looked at again at every forecast; more would not sharpen the table
_RENEWAL_WEIGHT = 3.0  # weight of a full week of new errors against the table of the training


class TrainedBlend(PathwiseMethod):
    """Median of members, some of which learn, with learned spread; see the module.

    Parameters
    ----------
    members
        Methods that draw paths; those that learn have ``fit_panels``.
    horizon_days
        Leads for which the spread is learned; further leads use the spread of the last of them.
    seed
        Of every random choice.
    """

    name = "blend"
    rung = Rung.OWN_MODEL

    def __init__(self, members: Sequence[PathMethod], horizon_days: float = 1.0, seed: int = 0):
        self.members = members
        self.horizon_days = horizon_days
        self.seed = seed

    def days_needed(self) -> float:
        """What the least demanding member needs."""
        return min(member.days_needed() for member in self.members)

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Train members on all but the last days, learn their errors on those, then train them on everything."""
        made = []
        for history in histories:
            reach = max(1, round(self.horizon_days * history.grid.steps_per_day))
            ready = prepare(history, reach)
            if ready is not None:
                made.append(ready)
        day = made[0].working.steps_per_day if made else 0
        made = [r for r in made if r.working.steps_per_day == day]
        self.spread_: SpreadModel | None = None
        self.trained_until_s_ = max((h.end.timestamp() for h in histories), default=None)
        if not made:
            self.fitted_ = list(self.members)
            return self
        self._learn_spread(made, round(self.horizon_days * day))
        self.fitted_ = self._fitted([r.working for r in made])
        return self

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Take the median of what the members say."""
        return _blend(getattr(self, "fitted_", self.members), panel, origins, horizon)

    def _fitted(self, panels: Sequence[LogPanel]) -> list[PathMethod]:
        """Return members trained on panels; the given ones stay as they are."""
        out: list[PathMethod] = []
        for member in self.members:
            fresh = clone(member)
            out.append(fresh.fit_panels(panels) if hasattr(fresh, "fit_panels") else fresh)
        return out

    def _learn_spread(self, made: Sequence[Prepared], horizon: int) -> None:
        """Learn how far held-out truths lie from paths of members that have not seen them."""
        held = [_held_out(r, horizon) for r in made]
        seen = [r.working.until(h[0]) for r, h in zip(made, held, strict=True) if h]
        if not seen:
            return
        members = self._fitted(seen)
        features: list[Features] = []
        errors: list[Floats] = []
        fine: list[Floats] = []
        for ready, origins in zip(made, held, strict=True):
            if not origins:
                continue
            chosen = _some_rows(ready, self.seed, 400)
            part = ready.only(chosen)
            drawn = _blend(members, part.working, origins, horizon)
            missed = past_errors(refine(drawn, part), origins, part)
            fine.append(missed)
            features.append(features_at(part.working.logs, part.working.steps_per_day, origins, range(horizon)))
            errors.append(missed[:, :, ready.factor // 2 :: ready.factor][:, :, :horizon])
        if sum(int(np.isfinite(e).sum()) for e in errors) < 200:
            return
        self.spread_ = SpreadModel(seed=self.seed).fit(features, errors)
        scores = []
        for made_features, missed in zip(features, fine, strict=True):
            spread = self.spread_.spread(made_features)
            factor = missed.shape[2] // spread.shape[2]
            scores.append((missed / np.repeat(spread, factor, axis=2)).ravel())
        self.table_ = error_table(np.concatenate(scores), self.seed)

    def _quantiles(self, ready: Prepared, levels: tuple[float, ...], reasons: list[str]) -> Floats:
        spread_model: SpreadModel | None = getattr(self, "spread_", None)
        if spread_model is None:
            reasons.append("not trained on held-out days: quantiles come from past errors of this history")
            return super()._quantiles(ready, levels, reasons)
        working, horizon = ready.working, -(-ready.panel.horizon // ready.factor)
        end = working.logs.shape[1]
        drawn = self.paths(working, [end], horizon)
        young: NDArray[np.bool_] = np.isnan(drawn[:, -1, 0])
        if young.any():
            drawn = fill_young(drawn, ready)
            reasons.append(f"{int(young.sum())} rows are too young for a season; their recent mean is repeated")
        path = refine(drawn, ready)[:, 0][:, ready.panel.ahead]
        spread = self._spread_at(spread_model, working, [end], horizon)[:, 0]
        spread = np.where(np.isfinite(spread), spread, 1.0)
        unit = table_offsets(self._tables(spread_model, ready), levels)
        wide = np.repeat(spread, ready.factor, axis=1)[:, ready.panel.ahead]
        return ready.scale.inverse(path[:, :, None] + wide[:, :, None] * unit)

    def _spread_at(self, model: SpreadModel, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Return the spread; leads beyond the learned ones keep the spread of the same time on the last learned day."""
        learned = round(self.horizon_days * panel.steps_per_day)
        reach = min(horizon, learned)
        spread = model.spread(features_at(panel.logs, panel.steps_per_day, origins, range(reach)))
        if horizon > reach:
            day = min(panel.steps_per_day, reach)
            more = reach - day + (np.arange(reach, horizon) - reach) % day
            spread = np.concatenate([spread, spread[:, :, more]], axis=2)
        return spread

    def _tables(self, model: SpreadModel, ready: Prepared) -> list[tuple[Floats, float]]:
        """Return the table of the training, and the errors at daily origins since."""
        tables = [(self.table_, 1.0)]
        if self.trained_until_s_ is None:
            return tables
        day = ready.working.steps_per_day
        end = ready.working.logs.shape[1]
        horizon = round(self.horizon_days * day)
        step_s = 86_400 / day
        since = end - (ready.end_s - self.trained_until_s_) / step_s
        origins = [t for t in (end - horizon - k * day for k in range(PAST_ORIGINS)) if t >= since - 1e-6 and t >= day]
        if not origins:
            return tables
        part = ready.only(_some_rows(ready, self.seed, _RENEWAL_ROWS))
        drawn = self.paths(part.working, origins, horizon)
        missed = past_errors(refine(drawn, part), origins, part)
        spread = np.repeat(self._spread_at(model, part.working, origins, horizon), ready.factor, axis=2)
        scores = error_table((missed / spread[:, :, : missed.shape[2]]).ravel(), self.seed)
        if scores.size:
            tables.append((scores, _RENEWAL_WEIGHT * len(origins) / PAST_ORIGINS))
        return tables


def _blend(members: Sequence[PathMethod], panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
    return median_of([member.paths(panel, origins, horizon) for member in members])


def _held_out(ready: Prepared, horizon: int) -> list[int]:
    """Return daily origins of the held-out days: the last week, or a third of a shorter history; none below 4 days."""
    day, end = ready.working.steps_per_day, ready.working.logs.shape[1]
    days = end // day
    held = min(7, (days - 1) // 3)
    if held < 1 or held * day < horizon:
        return []
    first = end - held * day
    return list(range(first, end - horizon + 1, day))


def _some_rows(ready: Prepared, seed: int, most: int) -> NDArray[np.int64]:
    """Choose rows at random when there are many."""
    rows = ready.working.logs.shape[0]
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
