"""Several topics as one: what a group that reads them all is planned by. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.series import ArrivalSeries


def joined_forecast(results: Sequence[ForecastResult]) -> ForecastResult:
    """Return the forecast of all partitions of several topics, or why there is none.

    Parameters
    ----------
    results
        One a topic; at least one. They may begin at different origins, and their steps may divide each other: the
        finest step and the span that all of them cover are kept.

    Returns
    -------
    ForecastResult
        Rows of all topics one after the other; if one topic has no forecast, its reason.

    Notes
    -----
    Each quantile of the total is the sum of the topics' quantiles, as if all of them peaked together. For topics that
    breathe alike, which those of one group mostly do, that is what happens; for others it errs on the safe side.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from forecaster.forecast import Rung
    >>> def told(topic, rate, minutes, steps):
    ...     values = np.full((1, steps, 1), rate)
    ...     start, step = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=minutes)
    ...     return Forecast(topic, start, step, (0,), (0.9,), values, values[0], "grid", Rung.GRID_STATE)
    >>> both = joined_forecast([told("orders", 5.0, 1, 10), told("returns", 2.0, 5, 1)])
    >>> [str(row) for row in both.rows], both.total[:, 0].tolist()
    (['orders:0', 'returns:0'], [7.0, 7.0, 7.0, 7.0, 7.0])
    """
    if len(results) == 1:
        return results[0]
    name = "+".join(r.topic for r in results)
    told: list[Forecast] = []
    for result in results:
        if isinstance(result, NoForecast):
            return replace(result, topic=name, reason=f"{result.topic}: {result.reason}")
        told.append(result)
    step, origin = min(f.step for f in told), max(f.origin for f in told)
    shared = set(told[0].levels).intersection(*(f.levels for f in told))
    levels = tuple(q for q in told[0].levels if q in shared)
    odd = next((f for f in told if f.step % step or (origin - f.origin) % step), None)
    if odd is not None or not levels:
        why = "have no quantile level in common" if odd is None else f"do not fit: {odd.topic} has steps of {odd.step}"
        return NoForecast(name, origin, f"the forecasts of its topics {why}")
    parts = [f.rates[:, :, [f.levels.index(q) for q in levels]].repeat(f.step // step, axis=1) for f in told]
    sums = [f.total[:, [f.levels.index(q) for q in levels]].repeat(f.step // step, axis=0) for f in told]
    begins = [(origin - f.origin) // step for f in told]
    steps = min(part.shape[1] - begin for part, begin in zip(parts, begins, strict=True))
    if steps <= 0:
        return NoForecast(name, origin, "the forecasts of its topics do not overlap")
    worst = max(told, key=lambda f: list(Rung).index(f.rung))
    return Forecast(
        name,
        origin,
        step,
        tuple(p for f in told for p in f.partitions),
        levels,
        np.concatenate([part[:, b : b + steps] for part, b in zip(parts, begins, strict=True)]),
        np.sum([total[b : b + steps] for total, b in zip(sums, begins, strict=True)], axis=0),
        worst.method,
        worst.rung,
        tuple(dict.fromkeys(f"{f.topic}: {reason}" for f in told for reason in f.reasons)),
        tuple(row.topic for f in told for row in f.rows),
    )


def joined_history(histories: Sequence[ArrivalSeries]) -> ArrivalSeries:
    """Return the arrivals of several topics as rows of one series, over the span that all of them cover.

    Parameters
    ----------
    histories
        One a topic; at least one, in one zone. The longest of their steps is kept.

    Raises
    ------
    ValueError
        If the steps do not divide each other.

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> one = ArrivalSeries("orders", TimeGrid(60), 0, (0,), np.ones((1, 4)), np.full((1, 4), True))
    >>> other = ArrivalSeries("returns", TimeGrid(60), 1, (0,), np.ones((1, 4)), np.full((1, 4), True))
    >>> both = joined_history([one, other])
    >>> both.names, both.first_index, both.steps, both.total().counts.tolist()
    (('orders:0', 'returns:0'), 1, 3, [[2.0, 2.0, 2.0]])
    """
    if len(histories) == 1:
        return histories[0]
    step_s = max(h.grid.step_s for h in histories)
    alike = [h if h.grid.step_s == step_s else h.at_step(step_s) for h in histories]
    first, end = max(h.first_index for h in alike), min(h.end_index for h in alike)
    parts = [h.between(first, end) for h in alike]
    rows = sum(len(h.partitions) for h in parts)
    return ArrivalSeries(
        "+".join(h.topic for h in parts),
        parts[0].grid,
        first,
        tuple(range(rows)),
        np.concatenate([h.counts for h in parts]),
        np.concatenate([h.known for h in parts]),
        tuple(f"{h.topic}:{p}" for h in parts for p in h.partitions),
    )


def topic_sizes(history: ArrivalSeries) -> tuple[int, ...] | None:
    """Return how many partitions each topic of a joined history has; None for a history of one topic.

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> def of(topic, rows):
    ...     counts = np.ones((rows, 4))
    ...     return ArrivalSeries(topic, TimeGrid(60), 0, tuple(range(rows)), counts, counts > 0)
    >>> topic_sizes(joined_history([of("orders", 3), of("returns", 2)])), topic_sizes(of("orders", 3))
    ((3, 2), None)
    """
    if history.names is None:
        return None
    return tuple(Counter(name.rpartition(":")[0] for name in history.names).values())
