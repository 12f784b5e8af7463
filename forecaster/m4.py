"""The M4 competition's Hourly task: its official scores, its benchmarks, and our blend on it.

The scores are those of the competition [1]_: sMAPE and MASE (seasonal differences of 24 hours) averaged over series,
and OWA, the mean of both relative to Naive2. The task is univariate and has no clock: seasons are 24 and 168 steps.

References
----------
.. [1] S. Makridakis, E. Spiliotis, V. Assimakopoulos, "The M4 competition: 100,000 time series and 61 forecasting
   methods", International Journal of Forecasting 36 (2020), 54-74.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import InputRefused
from forecaster.methods.base import LogPanel
from forecaster.methods.blend import median_of
from forecaster.methods.boosting import Boosting
from forecaster.methods.grid import Grid
from forecaster.methods.kernel_ridge import KernelRidge
from forecaster.scaling import LogScale
from forecaster.series import ArrivalSeries

Floats = NDArray[np.float64]

HORIZON, SEASON = 48, 24
NAIVE2_OFFICIAL = (18.383, 2.395)
"""Published sMAPE (percent) and MASE of Naive2 on Hourly: what OWA is relative to."""
SEASONAL_NAIVE_OFFICIAL = (13.912, 1.193)


@dataclass(frozen=True, slots=True)
class M4Scores:
    """Official figures: sMAPE in percent, MASE, OWA; and what the forecasts cost (ms a series)."""

    smape: float
    mase: float
    owa: float
    ms_per_series: float


def scores(train: Sequence[Floats], test: Floats, forecast: Floats, seconds: float = 0.0) -> M4Scores:
    """Score forecasts.

    Parameters
    ----------
    train
        One array a series.
    test, forecast
        Shape (series, 48).
    seconds
        What all forecasts cost together.

    Examples
    --------
    >>> wave = np.tile(np.arange(24.0) + 1, 10)
    >>> scores([wave], wave[None, :48], wave[None, :48]).owa  # a constant season leaves no scale but no error either
    0.0
    """
    size = np.abs(test) + np.abs(forecast)
    error = np.abs(test - forecast)
    smape = float(np.where(size > 0, 200.0 * error / np.where(size > 0, size, 1.0), 0.0).mean())
    scale = np.array([np.abs(x[SEASON:] - x[:-SEASON]).mean() for x in train])
    own = error.mean(axis=1)
    mase = float(np.where(own > 0, own / np.where(scale > 0, scale, 1.0), 0.0).mean())
    owa = 0.5 * (smape / NAIVE2_OFFICIAL[0] + mase / NAIVE2_OFFICIAL[1])
    return M4Scores(smape, mase, owa, 1000.0 * seconds / max(len(train), 1))


def is_seasonal(x: Floats, season: int = SEASON) -> bool:
    """Say whether a series is seasonal by the competition's test.

    The autocorrelation at the season exceeds the 90 % limit of Bartlett's formula, of at least three seasons.

    Examples
    --------
    >>> is_seasonal(np.tile(np.arange(24.0), 5)), is_seasonal(np.ones(200))
    (True, False)
    """
    n = len(x)
    centred = x - x.mean()
    variance = float(centred @ centred)
    if n < 3 * season or variance == 0:
        return False
    acf = np.array([centred[k:] @ centred[:-k] for k in range(1, season + 1)]) / variance
    limit = 1.645 / np.sqrt(n) * np.sqrt(1.0 + 2.0 * (acf[:-1] ** 2).sum())
    return bool(abs(acf[-1]) > limit)


def seasonal_factors(x: Floats, season: int = SEASON) -> Floats:
    """Return multiplicative factors by phase, by classical decomposition, as R's ``decompose`` computes them.

    Examples
    --------
    >>> seasonal_factors(np.tile([1.0, 3.0], 6), 2)
    array([0.5, 1.5])
    """
    half = season // 2
    weights = np.ones(season + 1)
    weights[[0, -1]] = 0.5
    trend = np.convolve(x, weights / season, mode="valid")
    ratio = x[half : half + len(trend)] / trend
    phase = np.arange(half, half + len(trend)) % season
    factors = np.bincount(phase, ratio, season) / np.bincount(phase, minlength=season)
    out: Floats = factors / factors.mean()
    return out


def naive2(x: Floats, horizon: int = HORIZON) -> Floats:
    """Repeat the last value, seasonally adjusted where the series is seasonal.

    Examples
    --------
    >>> naive2(np.tile(np.arange(1.0, 25), 10), 3).round(6)
    array([1., 2., 3.])
    """
    if not is_seasonal(x):
        return np.full(horizon, x[-1])
    factors = seasonal_factors(x)
    out: Floats = x[-1] / factors[(len(x) - 1) % SEASON] * factors[(len(x) + np.arange(horizon)) % SEASON]
    return out


def seasonal_naive(x: Floats, horizon: int = HORIZON) -> Floats:
    """Repeat the last day."""
    out: Floats = x[len(x) - SEASON + np.arange(horizon) % SEASON]
    return out


@dataclass(frozen=True, slots=True)
class BlendRecipe:
    """What the blend of the M4 run is made of; the defaults were chosen on the last 48 hours of the training part.

    Parameters
    ----------
    ridges
        (window in days, kernel width, seed) of each kernel ridge.
    iterations, leaves, rate, origins, points
        Of the boosting model.
    """

    ridges: tuple[tuple[int, float, int], ...] = ((14, 0.5, 0), (7, 0.35, 5))
    iterations: int = 100
    leaves: int = 31
    rate: float = 0.15
    origins: int = 16
    points: int = 80_000


def blend(train: Sequence[Floats], recipe: BlendRecipe | None = None) -> Floats:
    """Forecast 48 steps of every series: the median of grid, global boosting and global kernel ridges on logs.

    Parameters
    ----------
    train
        One array a series; a global model is trained over all of them.
    recipe
        See :class:`BlendRecipe`.

    Returns
    -------
    Floats
        Shape (series, 48).
    """
    recipe = recipe or BlendRecipe()
    length = max(len(x) for x in train)
    values = np.full((len(train), length), np.nan)
    for row, x in enumerate(train):
        values[row, length - len(x) :] = x
    scale = LogScale.of(values)
    panel = LogPanel(scale.forward(values), SEASON)
    days = HORIZON / SEASON
    boosting = Boosting(
        days, recipe.iterations, recipe.leaves, recipe.rate, recipe.origins, SEASON, recipe.points
    ).fit_panels([panel])
    ridges = [
        KernelRidge(days, window, width=width, seed=seed).fit_panels([panel]) for window, width, seed in recipe.ridges
    ]
    drawn = [m.paths(panel, [length], HORIZON)[:, 0] for m in (Grid(), boosting, *ridges)]
    return scale.inverse(median_of(drawn))


def run(
    train: Sequence[ArrivalSeries], test: Sequence[ArrivalSeries], clock: Callable[[], float]
) -> dict[str, M4Scores]:
    """Score Naive2, seasonal naive and the blend on the official split.

    Parameters
    ----------
    train, test
        One series each, of the same names.
    clock
        Seconds; CPU time of this process makes the cost comparable on a shared machine.

    Raises
    ------
    InputRefused
        If names differ, a value is missing, or a test series has not 48 steps.
    """
    past, future = _arrays(train), _arrays(test)
    if set(past) != set(future):
        odd = sorted(set(past) ^ set(future))
        raise InputRefused(f"training and test part name different series, such as {odd[0]}; take both from one source")
    names = list(past)
    short = [n for n in names if len(future[n]) != HORIZON or len(past[n]) < 16 * SEASON]
    if short:
        raise InputRefused(f"series {short[0]} has not 48 test steps and 16 days of training; M4 Hourly has")
    x, y = [past[n] for n in names], np.stack([future[n] for n in names])
    out = {}
    for name, draw in (("naive2", naive2), ("seasonal_naive", seasonal_naive)):
        began = clock()
        out[name] = scores(x, y, np.stack([draw(row) for row in x]), clock() - began)
    began = clock()
    drawn = blend(x)
    out["blend"] = scores(x, y, drawn, clock() - began)
    return out


def _arrays(series: Sequence[ArrivalSeries]) -> dict[str, Floats]:
    out = {}
    for one in series:
        name = one.names[0] if one.names else one.topic
        if not one.known.all():
            raise InputRefused(f"series {name} has a gap; M4 Hourly has none")
        out[name] = one.counts[0]
    return out
