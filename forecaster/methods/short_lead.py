"""The next hour, minute by minute: what a scaler acts on.

Global boosting on changes of the log since the last few minutes, direct, with the lead as a feature; a learned spread;
and thresholds that follow the errors of the last three days (`forecaster.methods.tracking`). Leads beyond an hour are
not answered: they belong to the day-ahead methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor

from forecaster.features import Features
from forecaster.forecast import ForecastResult, NoForecast, Rung
from forecaster.lead_features import lead_features
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.methods.pathwise import Prepared, agreed, assemble, checked_levels, prepare
from forecaster.methods.spread_model import SpreadModel, error_table, optimism, table_offsets
from forecaster.methods.tracking import track
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

REACH_S = 3600
"""How far it looks ahead."""
_KNOTS_S = (60, 120, 300, 600, 900, 1800, 2700, 3600)
"""Leads that are learned; what lies between is drawn between."""
_SEEN_DAYS = 8.25  # what features look back on, at forecast
_REPLAY_DAYS = 3
_REPLAY_GAP_S = 600
_REPLAY_POINTS = 24_000
"""Its own errors are learned on so many last days, one origin in so long, and at most so many points."""
_OWN_ROWS = 24
"""Fewer partitions have errors of their own."""
_SOME_ROWS = 24
"""Of more, so many stand for all."""
_MOST_ROWS = 64
"""Partitions that are learned from; of more, so many are drawn."""


class ShortLead(BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Direct boosting over the next hour; see the module.

    Parameters
    ----------
    iterations, leaves, rate
        Of the boosting.
    max_points
        Training points at most.
    weeks
        History that is learned from.
    seed
        Of every random choice.
    """

    name = "short_lead"
    rung = Rung.OWN_MODEL

    def __init__(
        self,
        iterations: int = 80,
        leaves: int = 31,
        rate: float = 0.12,
        max_points: int = 120_000,
        weeks: int = 8,
        seed: int = 0,
    ):
        self.iterations = iterations
        self.leaves = leaves
        self.rate = rate
        self.max_points = max_points
        self.weeks = weeks
        self.seed = seed

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Learn point and spread; the spread from the last fifth of each history, which the point then learns too."""
        self.model_: HistGradientBoostingRegressor | None = None
        self.spread_: SpreadModel | None = None
        usable = [h for h in histories if h.grid.step_s < REACH_S and h.steps > h.grid.steps_per_day]
        some = [self._some(_recent(h, 7.0 * self.weeks)) for h in usable]
        made = [r for r in (prepare(h, 1, 1) for h in some) if r is not None]
        if not made:
            return self
        self.trained_until_s_ = max(h.end.timestamp() for h in usable)
        cuts = [r.working.logs.shape[1] * 4 // 5 for r in made]
        early = [self._points(r, 0, cut) for r, cut in zip(made, cuts, strict=True)]
        late = [self._points(r, cut, r.working.logs.shape[1]) for r, cut in zip(made, cuts, strict=True)]
        first = self._boosted(early)
        errors = [truth - first(f) for f, truth in late]
        if sum(int(np.isfinite(e).sum()) for e in errors) >= 200:
            self.spread_ = SpreadModel(seed=self.seed).fit([f for f, _ in late], errors)
            self.table_ = error_table(
                np.concatenate([(e / self.spread_.spread(f).ravel()) for e, (f, _) in zip(errors, late, strict=True)]),
                self.seed,
            )
        final = self._boosted([*early, *late])
        self.model_, self.columns_ = final.model, final.columns
        self.optimism_ = optimism(errors, [truth - final(f) for f, truth in late])
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast up to an hour from the end of a history.

        Returns
        -------
        Forecast or NoForecast
            No forecast where the step is an hour or longer, the horizon reaches beyond an hour, or nothing was learned.
        """
        asked = checked_levels(levels)
        step_s = history.grid.step_s
        if horizon_steps < 1:
            raise ValueError(f"horizon_steps={horizon_steps} must be at least 1")
        model: HistGradientBoostingRegressor | None = getattr(self, "model_", None)
        if step_s >= REACH_S or horizon_steps * step_s > REACH_S:
            return NoForecast(history.topic, history.end, "short-lead forecasts reach one hour, in steps below an hour")
        own = len(history.partitions) < _OWN_ROWS
        ready = prepare(_recent(history, _SEEN_DAYS + (_REPLAY_DAYS if own else 0)), horizon_steps, 1)
        if ready is None:
            return NoForecast(history.topic, history.end, "no recorded step yet", None)
        if model is None or self.spread_ is None:
            return NoForecast(
                history.topic, history.end, "the short-lead model is not trained: it needs a day of history"
            )
        knots = _knots(step_s)
        end = ready.working.logs.shape[1]
        made = lead_features(ready.working.logs, ready.working.steps_per_day, [end], knots)
        path = made.logs(model.predict(made.values[:, self.columns_]))[:, 0]
        spread = self.spread_.spread(made)[:, 0]
        wanted = ready.panel.ahead
        path, spread = _between(path, knots, wanted), _between(spread, knots, wanted)
        unit = self._thresholds(ready if own else self._looked_at(history), knots, asked, own)
        quantiles = ready.scale.inverse(path[:, :, None] + spread[:, :, None] * unit[:, None, :])
        return assemble(self.name, self.rung, history, ready, quantiles, asked, levels, ())

    def _some(self, history: ArrivalSeries) -> ArrivalSeries:
        """Return what is learned from: of many partitions some, since a lead's lesson is the same on all of them."""
        rows = len(history.partitions)
        if rows <= _MOST_ROWS:
            return history
        return history.select(
            np.sort(np.random.default_rng(self.seed).choice(rows, _MOST_ROWS, replace=False)).tolist()
        )

    def _points(self, ready: Prepared, begin: int, end: int) -> tuple[Features, Floats]:
        """Draw training points at random origins whose targets lie in [begin, end)."""
        random = np.random.default_rng(self.seed + begin)
        working = ready.working
        knots = _knots(86_400 // working.steps_per_day)
        rows = working.logs.shape[0]
        lo = max(begin, working.steps_per_day // 24)
        origins = np.arange(lo, max(lo + 1, end - knots[-1]))
        share = (end - begin) / working.logs.shape[1]
        wanted = max(50, int(share * self.max_points / (rows * len(knots))))
        if len(origins) > wanted:
            origins = np.sort(random.choice(origins, wanted, replace=False))
        made = lead_features(working.logs, working.steps_per_day, origins.tolist(), knots)
        truth = ready.logs_seen()
        at = np.minimum(origins[:, None] + knots, truth.shape[1] - 1)
        y = truth[:, at].ravel() - made.offset
        return made, y

    def _boosted(self, parts: Sequence[tuple[Features, Floats]]) -> _Fitted:
        x = np.concatenate([f.values for f, _ in parts])
        y = np.concatenate([truth for _, truth in parts])
        usable = np.isfinite(y)
        x, y = x[usable], y[usable]
        columns = np.flatnonzero(np.isfinite(x).any(axis=0))
        model = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=self.iterations,
            max_leaf_nodes=self.leaves,
            learning_rate=self.rate,
            min_samples_leaf=min(60, max(5, len(x) // 100)),
            max_features=0.6,
            early_stopping=False,
            random_state=self.seed,
        ).fit(x[:, columns], y)
        return _Fitted(model, columns)

    def _looked_at(self, history: ArrivalSeries) -> Prepared | None:
        """Return some of many partitions, with the days that are replayed; None if nobody saw these."""
        rows = len(history.partitions)
        some = np.sort(np.random.default_rng(self.seed).choice(rows, _SOME_ROWS, replace=False))
        return prepare(_recent(history.select(some.tolist()), _SEEN_DAYS + _REPLAY_DAYS), 1, 1)

    def _thresholds(self, ready: Prepared | None, knots: list[int], levels: Sequence[float], own: bool) -> Floats:
        """Return the online correction, shape (rows or 1, levels): what the errors of the last days make of the table.

        Few rows have thresholds of their own; of many, some are looked at for all.
        """
        start = table_offsets([(self.table_, 1.0)], levels)
        if ready is None:
            return start[None]
        working = ready.working
        day, rows, end = working.steps_per_day, working.logs.shape[0], working.logs.shape[1]
        begin = max(end - _REPLAY_DAYS * day, day // 24)
        most = max(24, (_REPLAY_POINTS if own else _REPLAY_POINTS // 3) // (rows * len(knots)))
        gap = max(1, _REPLAY_GAP_S * day // 86_400, -(-(end - begin) // most))
        origins = np.arange(end - gap, begin, -gap)[::-1]
        if origins.size < 24 or self.spread_ is None or self.model_ is None:
            return start[None]
        made = lead_features(working.logs, day, origins.tolist(), knots)
        leads = _with_midpoints(knots)
        path, spread = (
            _between(of.reshape(-1, len(knots)), knots, leads).reshape(rows, len(origins), len(leads))
            for of in (made.logs(self.model_.predict(made.values[:, self.columns_])), self.spread_.spread(made))
        )
        at = origins[:, None] + leads
        truth = ready.logs_seen()[:, np.minimum(at, end - 1)]
        scores = np.where(at < end, (truth - agreed(path, ready)) / spread, np.nan)
        since = end - int((ready.end_s - self.trained_until_s_) * day // 86_400)
        scores = np.where(at < since, scores * self.optimism_, scores).reshape(rows, -1)
        when = ((at - end) // gap).ravel()
        asked_at = np.repeat((origins - end) // gap, len(leads))
        weight = np.tile(_shares(leads), len(origins))
        if not own:
            scores = scores.reshape(1, -1)
            when, asked_at, weight = (np.tile(of, rows) for of in (when, asked_at, weight))
        return track(scores, when, start, levels, asked_at=asked_at, weight=weight)


class _Fitted:
    """A fitted model and the columns it uses; called, it predicts the change of the log."""

    def __init__(self, model: HistGradientBoostingRegressor, columns: NDArray[np.int64]):
        self.model, self.columns = model, columns

    def __call__(self, features: Features) -> Floats:
        out: Floats = self.model.predict(features.values[:, self.columns])
        return out


def _recent(history: ArrivalSeries, days: float) -> ArrivalSeries:
    return history.between(history.end_index - round(days * history.grid.steps_per_day), history.end_index)


def _knots(step_s: int) -> list[int]:
    """Return the leads (0 is the first step) at which the model is asked; others are interpolated."""
    return sorted({max(1, round(s / step_s)) - 1 for s in _KNOTS_S})


def _with_midpoints(knots: list[int]) -> NDArray[np.int64]:
    """Return knots and the leads half-way between them, where what was interpolated is furthest off."""
    return np.array(sorted({*knots, *((a + b) // 2 for a, b in pairwise(knots))}), dtype=np.int64)


def _shares(leads: NDArray[np.int64]) -> Floats:
    """Return how many steps of the horizon each lead stands for: early minutes have more of them than late ones."""
    between = (leads[1:] + leads[:-1]) / 2
    return np.diff([leads[0] - 0.5, *between, leads[-1] + 0.5])


def _between(values: Floats, knots: list[int], wanted: NDArray[np.int64]) -> Floats:
    """Interpolate along leads; shape (rows, knots) to (rows, wanted)."""
    at = np.clip(np.searchsorted(knots, wanted, side="right") - 1, 0, max(len(knots) - 2, 0))
    if len(knots) == 1:
        return np.repeat(values, len(wanted), axis=1)
    left, right = np.asarray(knots)[at], np.asarray(knots)[at + 1]
    share = np.clip((wanted - left) / (right - left), 0.0, 1.0)
    out: Floats = values[:, at] * (1 - share) + values[:, at + 1] * share
    return out
