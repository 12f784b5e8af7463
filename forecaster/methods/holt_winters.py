"""Holt-Winters as statsmodels fits it: the reference for the fast grid, a row at a time on logs.

Additive season, and a damped additive trend or none. [1]_ A trend that is not damped runs away, and a multiplicative
season on zeros multiplies nothing by much: neither can be asked for. Parameters are optimised for each row, which
takes tens of milliseconds a row.

References
----------
.. [1] R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and Practice", 3rd edition (2021), chapter 8.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from forecaster.cleaning import known_since
from forecaster.forecast import ForecastResult, NoForecast, Rung
from forecaster.methods.base import DEFAULT_LEVELS, LogPanel
from forecaster.methods.pathwise import PathwiseMethod
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

_HEADROOM = 2.0  # logs above the row's highest: more than the bound of every forecast, and safe to take the exp of


class FitRejected(ArithmeticError):
    """A fit gave something that is no number."""


class HoltWinters(PathwiseMethod):
    """Exponential smoothing with an additive season; see the module.

    The season is a week where two are known, else a day. How far off a path is, is measured at past origins with
    parameters that were fitted before them.

    Parameters
    ----------
    trend
        ``"damped"`` or ``"none"``.

    Examples
    --------
    >>> HoltWinters("none").days_needed()
    2.0
    """

    name = "holt_winters"
    rung = Rung.GRID_STATE

    def __init__(self, trend: Literal["damped", "none"] = "damped"):
        self.trend = trend

    def days_needed(self) -> float:
        """Two seasons of a day."""
        return 2.0

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Forecast from the end of a history; a fit that gives no numbers is rejected, with the reason."""
        try:
            return super().predict(history, horizon_steps, levels)
        except FitRejected as rejected:
            return NoForecast(history.topic, history.end, f"{self.name}: {rejected}; another method can answer")

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Fit each row at the last origin; earlier ones share the parameters of the earliest with the same season.

        Raises
        ------
        FitRejected
            If a row that is old enough has no finite path at the last origin.
        """
        out = np.full((panel.logs.shape[0], len(origins), horizon), np.nan)
        last = max(range(len(origins)), key=lambda k: origins[k], default=0)
        for row, first in enumerate(known_since(panel.logs)):
            shared: dict[int, list[int]] = {}
            for k, origin in enumerate(origins):
                season = season_at(int(origin - first), panel.steps_per_day)
                if season is None:
                    continue
                if k == last:
                    values = panel.logs[row, first:origin]
                    out[row, k] = self._path(values, values.size, season, horizon)[0]
                    if not np.isfinite(out[row, k]).all():
                        raise FitRejected(f"the fit of row {row} is not finite")
                else:
                    shared.setdefault(season, []).append(k)
            for season, group in shared.items():
                ends = np.array([origins[k] - first for k in group])
                values = panel.logs[row, first : first + ends.max()]
                out[row, group] = self._path(values, int(ends.min()), season, horizon, ends)
        return out

    def _path(
        self, values: Floats, fit_until: int, season: int, horizon: int, ends: NDArray[np.int64] | None = None
    ) -> Floats:
        """Return paths, shape (ends, horizon), from parameters fitted on ``values[:fit_until]``; NaN if that fails."""
        ends = np.array([values.size]) if ends is None else ends
        if np.ptp(values[:fit_until]) == 0:  # nothing to fit; the season of a constant is zero
            return np.repeat(values[ends - 1][:, None], horizon, axis=1)
        try:
            fitted = self._fitted(values, fit_until, season)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return np.full((ends.size, horizon), np.nan)
        # By the formula rather than `fitted.forecast`, which leaves out the last value's correction of its season slot
        # and knows no earlier origin.
        lead = np.arange(horizon)
        slots = ends[:, None] - season + lead[None, :] % season
        paths = np.asarray(fitted.level)[ends - 1][:, None] + np.asarray(fitted.season)[slots]
        if self.trend == "damped":
            reach = np.cumsum(float(fitted.params["damping_trend"]) ** (lead + 1.0))
            paths = paths + np.asarray(fitted.trend)[ends - 1][:, None] * reach
        bounded: Floats = np.clip(paths, 0.0, values[:fit_until].max() + _HEADROOM)
        return bounded

    def _fitted(self, values: Floats, fit_until: int, season: int) -> Any:
        """Fit on a part, and run over all with those parameters."""
        options: dict[str, Any] = {
            "trend": "add" if self.trend == "damped" else None,
            "damped_trend": self.trend == "damped",
            "seasonal": "add",
            "seasonal_periods": season,
        }
        with warnings.catch_warnings():
            # An optimiser that stopped early has still found parameters; what is no number is rejected by the caller.
            warnings.simplefilter("ignore")
            model = ExponentialSmoothing(values[:fit_until], initialization_method="heuristic", **options)
            fitted = model.fit(use_brute=False)
            if fit_until == values.size:
                return fitted
            known = fitted.params
            start = {"initial_level": known["initial_level"], "initial_seasonal": known["initial_seasons"]}
            smoothing = {"smoothing_level": known["smoothing_level"], "smoothing_seasonal": known["smoothing_seasonal"]}
            if self.trend == "damped":
                start["initial_trend"] = known["initial_trend"]
                smoothing |= {"smoothing_trend": known["smoothing_trend"], "damping_trend": known["damping_trend"]}
            model = ExponentialSmoothing(values, initialization_method="known", **start, **options)
            return model.fit(optimized=False, **smoothing)


def season_at(age: int, steps_per_day: int) -> int | None:
    """Return the season of a row of that age, in positions: a week, else a day, else None.

    statsmodels starts a season from two of them, and from no fewer than ``10 + 2 * (season // 2)`` values.

    Examples
    --------
    >>> season_at(336, 24), season_at(335, 24), season_at(47, 24)
    (168, 24, None)
    """
    for season in (7 * steps_per_day, steps_per_day):
        if season > 1 and age >= max(2 * season, 10 + 2 * (season // 2)):
            return season
    return None
