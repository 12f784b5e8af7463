"""The method that acts: the median of naive, grid, boosting and kernel ridge, with learned quantiles.

The median of the paths on the log scale is the point forecast. Its spread comes from a model of its errors on days
that the members did not see. At every forecast the quantiles are corrected by the errors of the last ten days
(`forecaster.methods.tracking`), recomputed from the history itself, so there is no state to lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from forecaster.features import features_at
from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel, PathMethod
from forecaster.methods.blend import median_of
from forecaster.methods.pathwise import (
    REPLAY_DAYS,
    PathwiseMethod,
    Prepared,
    agreed,
    fill_young,
    past_errors,
    prepare,
    refine,
)
from forecaster.methods.spread_model import SpreadModel, error_table, optimism, table_offsets
from forecaster.methods.tracking import track
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

_OWN_ROWS = 24  # so many rows are corrected each by its own errors
_SOME_ROWS = 48  # of more rows, so many are looked at; more would not sharpen the correction
_REPLAY_POINTS = 12_000
_GAIN = 0.15  # 0.1 leaves grown noise uncovered for a week; 0.2 costs a fifth of the pinball loss on wild services
_RARITY = 0.5  # of 0, 0.25, 0.5 and 0.7: at 0.99 it covers 0.02 more, for less pinball loss
_MOST_OPTIMISM = 1.5  # 2 and 3 cover no more on the days after, and cost up to half of the pinball loss
_FEWEST_ERRORS = 200  # a spread learned on a single week of hours covers too little


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
        if not made:
            self.fitted_ = list(self.members)
            return self
        horizon = round(self.horizon_days * day)
        held = [(r, _held_out(r, horizon)) for r in made]
        held = [(r.only(_some_rows(r, self.seed, 400)), origins) for r, origins in held if origins]
        missed = self._learn_spread(held, made, horizon)
        self.fitted_ = self._fitted([r.working for r in made])
        if self.spread_ is None and missed:
            self.trained_until_s_ = max(r.end_s for r in made)
            learned = [
                past_errors(refine(_blend(self.fitted_, part.working, origins, horizon), part), origins, part)
                for part, origins in held
            ]
            self.optimism_ = min(optimism(missed, learned), _MOST_OPTIMISM)
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

    def _learn_spread(
        self, parts: Sequence[tuple[Prepared, list[int]]], made: Sequence[Prepared], horizon: int
    ) -> list[Floats]:
        """Learn how far held-out truths lie from paths of members that have not seen them; return by how much."""
        if not parts:
            return []
        members = self._fitted([r.working.until(origins[0]) for r in made if (origins := _held_out(r, horizon))])
        missed = [
            past_errors(refine(_blend(members, part.working, origins, horizon), part), origins, part)
            for part, origins in parts
        ]
        if sum(int(np.isfinite(e).sum()) for e in missed) < _FEWEST_ERRORS:
            return missed
        features = [
            features_at(part.working.logs, part.working.steps_per_day, origins, range(horizon))
            for part, origins in parts
        ]
        coarse = [
            e[:, :, part.factor // 2 :: part.factor][:, :, :horizon] for e, (part, _) in zip(missed, parts, strict=True)
        ]
        self.spread_ = SpreadModel(seed=self.seed).fit(features, coarse)
        scores = [
            (e / np.repeat(self.spread_.spread(f), e.shape[2] // f.shape[2], axis=2)).ravel()
            for f, e in zip(features, missed, strict=True)
        ]
        self.table_ = error_table(np.concatenate(scores), self.seed)
        return missed

    def _known_errors(self, fine: Floats, origins: Sequence[int], ready: Prepared) -> Floats:
        """Enlarge the errors of days that the members have learned by what held-out days showed."""
        errors = past_errors(fine, origins, ready)
        step_s = 86_400 / (ready.working.steps_per_day * ready.factor)
        at = (np.asarray(origins)[:, None] - ready.working.logs.shape[1]) * ready.factor + np.arange(errors.shape[2])
        known = ready.end_s + at * step_s < getattr(self, "trained_until_s_", -np.inf)
        out: Floats = np.where(known, errors * getattr(self, "optimism_", 1.0), errors)
        return out

    def _quantiles(self, ready: Prepared, levels: tuple[float, ...], reasons: list[str]) -> Floats:
        spread_model: SpreadModel | None = getattr(self, "spread_", None)
        if spread_model is None:
            reasons.append("not trained on held-out days: quantiles come from past errors of this history")
            return super()._quantiles(ready, levels, reasons)
        working, horizon = ready.working, -(-ready.panel.horizon // ready.factor)
        end, learned = working.logs.shape[1], round(self.horizon_days * working.steps_per_day)
        own = working.logs.shape[0] <= _OWN_ROWS
        looked_at = ready if own else ready.only(_some_rows(ready, self.seed, _SOME_ROWS))
        origins = self._replayed(looked_at, learned)
        if own:  # one pass over time serves the forecast and the replay
            past = self.paths(working, [*origins, end], max(horizon, learned))
            drawn, past = past[:, -1:, :horizon], past[:, :-1, :learned]
        else:
            drawn = self.paths(working, [end], horizon)
            past = self.paths(looked_at.working, origins, learned) if origins else drawn[:, :0]
        young: NDArray[np.bool_] = np.isnan(drawn[:, -1, 0])
        if young.any():
            drawn = fill_young(drawn, ready)
            reasons.append(f"{int(young.sum())} rows are too young for a season; their recent mean is repeated")
        path = refine(drawn, ready)[:, 0][:, ready.panel.ahead]
        spread = self._spread_at(spread_model, working, [end], horizon)[:, 0]
        spread = np.where(np.isfinite(spread), spread, 1.0)
        unit = table_offsets([(self.table_, 1.0)], levels)[None]
        if origins:
            unit = self._thresholds(spread_model, looked_at, past, origins, unit[0], levels, own)
        wide = np.repeat(spread, ready.factor, axis=1)[:, ready.panel.ahead]
        return ready.scale.inverse(path[:, :, None] + wide[:, :, None] * unit[:, None, :])

    def _spread_at(self, model: SpreadModel, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Return the spread; leads beyond the learned ones keep the spread of the same time on the last learned day."""
        learned = round(self.horizon_days * panel.steps_per_day)
        reach = min(horizon, learned)
        made = features_at(panel.logs, panel.steps_per_day, origins, range(0, reach, 2))  # it changes slowly
        spread = np.repeat(model.spread(made), 2, axis=2)[:, :, :reach]
        if horizon > reach:
            day = min(panel.steps_per_day, reach)
            more = reach - day + (np.arange(reach, horizon) - reach) % day
            spread = np.concatenate([spread, spread[:, :, more]], axis=2)
        return spread

    def _replayed(self, ready: Prepared, horizon: int) -> list[int]:
        """Return past origins whose errors correct the quantiles: of the last days, as many as are affordable."""
        day, end = ready.working.steps_per_day, ready.working.logs.shape[1]
        most = max(7, _REPLAY_POINTS // (ready.working.logs.shape[0] * horizon))
        gap = max(day // 4, -(-REPLAY_DAYS * day // most), 1)
        first = max(2 * day, end - REPLAY_DAYS * day)
        return list(range(end - gap, first - 1, -gap))[::-1]

    def _thresholds(
        self,
        model: SpreadModel,
        ready: Prepared,
        past: Floats,
        origins: Sequence[int],
        start: Floats,
        levels: Sequence[float],
        own: bool,
    ) -> Floats:
        """Return the online correction, shape (rows or 1, levels): what the errors of the last days make of the table.

        Few rows have thresholds of their own; of many, some are looked at for all. Days that the members have learned
        count as they are: enlarging their errors covered too much after a hard week (the World Cup's last).
        """
        working, factor = ready.working, ready.factor
        end, fine_day = working.logs.shape[1], working.steps_per_day * factor
        spread = np.repeat(self._spread_at(model, working, origins, past.shape[2]), factor, axis=2)
        scores = past_errors(agreed(refine(past, ready), ready), origins, ready) / spread
        at = (np.asarray(origins)[:, None] - end) * factor + np.arange(scores.shape[2])  # of the truth; the end is 0
        stretch = max(1, fine_day // 6)
        when = (at // stretch).ravel()
        asked_at = np.repeat((np.asarray(origins) - end) * factor // stretch, scores.shape[2])
        flat = scores.reshape(len(scores), -1)
        if not own:
            flat, when, asked_at = flat.reshape(1, -1), np.tile(when, len(scores)), np.tile(asked_at, len(scores))
        return track(flat, when, start, levels, _GAIN, asked_at, rarity=_RARITY)


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
