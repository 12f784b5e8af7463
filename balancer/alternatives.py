"""What else could have been decided now, at what cost: keep the size, one less, one more, the chosen one. Pure.

Each alternative is the cheapest path over the horizon that begins with its size. Lateness is what cannot be cured any
more: records that more than so many members would have to serve before a request made at the next tick takes effect,
in expectation over the forecast's quantiles.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from balancer.decision import Frame, Wanted
from balancer.demand import forecast_cells
from balancer.plan import Alternative
from balancer.schedule import Schedule
from forecaster.forecast import Forecast

Floats = NDArray[np.float64]


def level_masses(levels: tuple[float, ...]) -> Floats:
    """Return the probability that each quantile level stands for: up to the middle to its neighbours.

    Examples
    --------
    >>> level_masses((0.5, 0.9)).round(3).tolist()
    [0.7, 0.3]
    """
    known = np.array(levels)
    edges = np.concatenate([[0.0], (known[1:] + known[:-1]) / 2, [1.0]])
    return np.diff(edges)


def alternatives(
    want: Wanted, ahead: Schedule, frame: Frame, forecast: Forecast | None, requested: int, chosen: int, now: datetime
) -> tuple[Alternative, ...]:
    """Return what keeping the size, one member less, one more, and the chosen size would cost.

    Parameters
    ----------
    want
        Demand and need of one run.
    ahead
        Costs of its horizon.
    frame
        Limits and capacity.
    forecast
        What is trusted; None takes the demand as it is seen.
    requested, chosen
        Members now and as decided.
    now
        Aware UTC.
    """
    reached = frame.reached
    if forecast is None:
        rates, masses = want.demand[:reached], np.ones(1)
    else:
        rates = forecast_cells(forecast, now, frame.cells)[:reached] + float(want.drain[0])
        masses = level_masses(forecast.levels)
    widths = np.array(frame.cells.widths_s[:reached])[:, None]
    sizes = {"hold": requested, "one_less": requested - 1, "one_more": requested + 1, "chosen": chosen}
    found = []
    for name, size in sizes.items():
        if size < frame.min_replicas or (size > frame.max_replicas and name == "one_more"):
            continue
        path = ahead.path(size)
        until = [*(ahead.until[s.cell] for s in path[1:]), ahead.until[-1]]
        paid = sum(s.replicas * (end - ahead.until[s.cell]) for s, end in zip(path, until, strict=True))
        able = float(frame.curve.rates[min(size, frame.curve.max_members)])
        late = float((np.maximum(rates - able, 0.0) * widths * masses).sum())
        changes = len(path) - 1 + (size != requested)
        found.append(Alternative(name, size, round(paid, 3), changes, round(changes * ahead.price, 3), round(late, 1)))
    return tuple(found)
