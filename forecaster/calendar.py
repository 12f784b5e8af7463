"""Days that are not like others: public holidays in the stream's own zone, and named events with a factor.

A holiday that is over is no pattern for the same time tomorrow or next week: :meth:`Calendar.usual` turns it into a
gap, which every method fills from an ordinary day. A holiday ahead is forecast like an ordinary day, which asks for
too much capacity rather than too little; an event says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import InputRefused
from forecaster.forecast import Forecast, ForecastResult
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.series import ArrivalSeries
from forecaster.timegrid import DAY_S, TimeGrid

KEPT = timedelta(hours=2)
"""So much before the origin stays known, whatever day it was: the level of now is read off it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Event:
    """Something named, with an end, during which demand is a multiple of what is usual.

    Parameters
    ----------
    name
        What people call it.
    start, end
        Aware instants; half open.
    factor
        Demand is this many times the usual.

    Raises
    ------
    InputRefused
        If an instant has no zone, the end is not after the start, or the factor is not a positive number.
    """

    name: str
    start: datetime
    end: datetime
    factor: float

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InputRefused(f"event {self.name}: start and end need a time zone; add Z or an offset")
        if self.end <= self.start:
            raise InputRefused(f"event {self.name}: it ends at {self.end.isoformat()}, not after its start")
        if not 0 < self.factor < math.inf:
            raise InputRefused(f"event {self.name}: factor={self.factor} must be a positive number")


@dataclass(frozen=True, slots=True)
class Calendar:
    """Holidays of a region and named events of a stream.

    Parameters
    ----------
    region
        ISO 3166 country, with a subdivision or without: ``"DE-BE"``, ``"US"``. None knows no holidays.
    events
        Named events.

    Raises
    ------
    InputRefused
        If the region is not known.

    Examples
    --------
    >>> berlin = Calendar("DE-BE")
    >>> grid = TimeGrid(3600, "Europe/Berlin")
    >>> eve = grid.index_of(datetime(2026, 4, 30, 21, tzinfo=UTC))  # 23:00 in Berlin; 1 May is a holiday
    >>> berlin.holidays(grid, eve, 3).tolist()
    [False, True, True]
    """

    region: str | None = None
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if self.region is not None:
            _holiday_days(self.region, 2026)

    def holidays(self, grid: TimeGrid, first: int, count: int) -> NDArray[np.bool_]:
        """Return which steps begin on a holiday by the wall clock of the grid's zone, shape (count,)."""
        if self.region is None or count <= 0:
            return np.zeros(max(count, 0), dtype=np.bool_)
        days = grid.local_seconds(first, count) // DAY_S
        years = range(_year(int(days[0])), _year(int(days[-1])) + 1)
        known = np.concatenate([_holiday_days(self.region, year) for year in years])
        return np.isin(days, known)

    def factors(self, grid: TimeGrid, first: int, count: int) -> NDArray[np.float64]:
        """Return what events multiply each step by, shape (count,); see :func:`factors_of`."""
        return factors_of(self.events, grid, first, count)

    def usual(self, history: ArrivalSeries) -> ArrivalSeries:
        """Return a history in which holidays and events that are over are not known.

        A day or an event that still goes on at the end of the history stays, and so do the last two hours: they say
        what the level is now. Where nothing would be left, the history stays as it is.
        """
        grid, first, count = history.grid, history.first_index, history.steps
        odd = self.holidays(grid, first, count)
        if odd.any():
            days = grid.local_seconds(first, count + 1) // DAY_S
            odd &= days[:-1] < days[-1]
        at = np.arange(first, first + count) * grid.step_s
        for event in self.events:
            if event.end <= history.end:
                odd |= (at + grid.step_s > _seconds(event.start)) & (at < _seconds(event.end))
        odd[max(0, count - -(-KEPT // grid.step)) :] = False
        known = history.known & ~odd
        if not odd.any() or not known.any():
            return history
        return replace(history, known=known, counts=np.where(known, history.counts, 0.0))

    def forecast(
        self, method: Method, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Ask a method with what is over left out of its history, and with what is ahead multiplied in."""
        result = method.predict(self.usual(history), horizon_steps, levels)
        return apply_events(result, self.events) if isinstance(result, Forecast) else result

    def to_dict(self) -> dict[str, Any]:
        """Return what a card keeps of it.

        Examples
        --------
        >>> Calendar("DE-BE").to_dict()
        {'holidays': 'DE-BE', 'events': []}
        >>> Calendar.from_dict(Calendar("DE-BE").to_dict()) == Calendar("DE-BE")
        True
        """
        events = [
            {"name": e.name, "from": e.start.isoformat(), "to": e.end.isoformat(), "factor": e.factor}
            for e in self.events
        ]
        return {"holidays": self.region, "events": events}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Calendar:
        """Return the calendar that :meth:`to_dict` wrote."""
        at = datetime.fromisoformat
        events = (Event(e["name"], at(e["from"]), at(e["to"]), e["factor"]) for e in kept.get("events", ()))
        return cls(kept.get("holidays"), tuple(events))


NO_CALENDAR = Calendar()
"""No holidays and no events: every day is like the others."""


def factors_of(events: Iterable[Event], grid: TimeGrid, first: int, count: int) -> NDArray[np.float64]:
    """Return what events multiply each step by, shape (count,); one where there is none.

    Factors of events at the same time multiply. A step that an event covers in part gets a factor above one whole,
    and a factor below one not at all: doubt asks for more capacity.

    Examples
    --------
    >>> sale = Event("sale", datetime(2026, 1, 5, 9, 30, tzinfo=UTC), datetime(2026, 1, 5, 11, tzinfo=UTC), 3.0)
    >>> hours = TimeGrid(3600)
    >>> factors_of([sale], hours, hours.index_of(datetime(2026, 1, 5, 8, tzinfo=UTC)), 4).tolist()
    [1.0, 3.0, 3.0, 1.0]
    """
    start = np.arange(first, first + count) * grid.step_s
    end = start + grid.step_s
    out = np.ones(count)
    for event in events:
        begins, ends = _seconds(event.start), _seconds(event.end)
        inside = (end > begins) & (start < ends) if event.factor >= 1 else (start >= begins) & (end <= ends)
        out[inside] *= event.factor
    return out


def apply_events(forecast: Forecast, events: Iterable[Event]) -> Forecast:
    """Return a forecast in which events count: every level of partitions and topic times the factor of the step.

    Examples
    --------
    >>> from forecaster.forecast import Rung
    >>> noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    >>> f = Forecast("orders", noon, timedelta(hours=1), (0,), (0.5,), np.ones((1, 2, 1)), np.ones((2, 1)), "m",
    ...              Rung.GRID_STATE)
    >>> apply_events(f, [Event("final", noon + timedelta(hours=1), noon + timedelta(hours=2), 4.0)]).total.tolist()
    [[1.0], [4.0]]
    """
    step = forecast.step
    ends = forecast.origin + forecast.horizon
    mine = [e for e in events if e.start < ends and e.end > forecast.origin]
    grid = TimeGrid(int(step.total_seconds()))
    factors = factors_of(mine, grid, grid.index_of(forecast.origin), forecast.steps)
    if (factors == 1).all():
        return forecast
    said = tuple(f"event {e.name}: {e.factor:g} times the usual" for e in mine)
    return replace(
        forecast,
        rates=forecast.rates * factors[None, :, None],
        total=forecast.total * factors[:, None],
        reasons=(*forecast.reasons, *said),
    )


def _seconds(at: datetime) -> float:
    return (at - _EPOCH).total_seconds()


def _year(day: int) -> int:
    return (_EPOCH + timedelta(days=day)).year


@lru_cache(maxsize=256)
def _holiday_days(region: str, year: int) -> NDArray[np.int64]:
    """Return the holidays of a year, in days since 1970."""
    import holidays  # slow to import, and seldom needed

    country, _, part = region.partition("-")
    known = holidays.list_supported_countries(include_aliases=False)
    if country not in known:
        raise InputRefused(f"no holidays of {region!r} are known; write an ISO 3166 code such as DE-BE or US")
    if part and part not in known[country]:
        there = ", ".join(known[country]) or "no subdivisions"
        raise InputRefused(f"no holidays of {region!r} are known; {country} has {there}")
    found = holidays.country_holidays(country, subdiv=part or None, years=year)
    return np.array(sorted((day - _EPOCH.date()).days for day in found), dtype=np.int64)
