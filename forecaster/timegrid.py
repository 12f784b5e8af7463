"""Steps on a clock: aligned intervals, seasons on the local wall clock, clock changes.

A *step* is one sampling interval. Step number ``i`` of a grid covers ``[i * step, (i + 1) * step)`` seconds
since 1970-01-01T00:00Z, so two programs that share a step length share the numbering. Seasons (time of day, hour of
week) are read off the wall clock of the grid's zone: on a clock change the local slot repeats or is left out, while
the step numbers go on evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

DAY_S = 86_400
WEEK_S = 7 * DAY_S
_MONDAY_S = 4 * DAY_S  # 1970-01-01 was a Thursday; the first Monday came four days later


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Aligned steps and the zone whose wall clock their seasons follow.

    Parameters
    ----------
    step_s
        Length of a step in whole seconds; must divide a day, so that seasons are whole steps.
    timezone
        IANA name, such as ``"Europe/Berlin"``.

    Raises
    ------
    ValueError
        If the step does not divide a day, or the zone is unknown.

    Examples
    --------
    >>> grid = TimeGrid(3600, "Europe/Berlin")
    >>> i = grid.index_of(datetime(2026, 3, 29, 0, 59, tzinfo=UTC))
    >>> grid.start_of(i).isoformat()
    '2026-03-29T00:00:00+00:00'
    >>> (grid.local_seconds(i, 3) // 3600 % 24).tolist()  # 02:00 does not exist on that day
    [1, 3, 4]
    """

    step_s: int
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.step_s <= 0 or DAY_S % self.step_s:
            raise ValueError(f"step_s={self.step_s} must be a positive number of seconds that divides a day")
        _zone(self.timezone)

    @property
    def step(self) -> timedelta:
        """Length of a step."""
        return timedelta(seconds=self.step_s)

    @property
    def steps_per_day(self) -> int:
        """Season length of a day, in steps."""
        return DAY_S // self.step_s

    @property
    def steps_per_week(self) -> int:
        """Season length of a week, in steps."""
        return WEEK_S // self.step_s

    def index_of(self, instant: datetime) -> int:
        """Return the number of the step that contains an aware instant.

        Raises
        ------
        ValueError
            If the instant has no zone.
        """
        if instant.tzinfo is None:
            raise ValueError(f"{instant.isoformat()} has no time zone; instants are aware UTC")
        return int((instant - _EPOCH) // self.step)

    def start_of(self, index: int) -> datetime:
        """Return the first instant of a step, in UTC."""
        return _EPOCH + timedelta(seconds=index * self.step_s)

    def starts(self, first: int, count: int) -> NDArray[np.datetime64]:
        """Return the UTC starts of ``count`` steps as ``datetime64[s]``."""
        return (np.arange(first, first + count, dtype=np.int64) * self.step_s).astype("datetime64[s]")

    def local_seconds(self, first: int, count: int) -> NDArray[np.int64]:
        """Return wall-clock seconds of each step's start, counted as if the zone had no offset."""
        utc = np.arange(first, first + count, dtype=np.int64) * self.step_s
        if count <= 0 or self.timezone == "UTC":
            return utc
        edges, offsets = _transitions(self.timezone, int(utc[0]) // _YEAR_S, int(utc[-1]) // _YEAR_S)
        local: NDArray[np.int64] = utc + offsets[np.searchsorted(edges, utc, side="right")]
        return local

    def day_slots(self, first: int, count: int) -> NDArray[np.int64]:
        """Return each step's slot in the local day, ``0 .. steps_per_day - 1``."""
        slots: NDArray[np.int64] = self.local_seconds(first, count) % DAY_S // self.step_s
        return slots

    def week_slots(self, first: int, count: int) -> NDArray[np.int64]:
        """Return each step's slot in the local week, counted from Monday 00:00."""
        slots: NDArray[np.int64] = (self.local_seconds(first, count) - _MONDAY_S) % WEEK_S // self.step_s
        return slots


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_S = 366 * DAY_S


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as exc:
        raise ValueError(f"unknown time zone {name!r}; use an IANA name such as Europe/Berlin") from exc


@lru_cache(maxsize=256)
def _transitions(name: str, first_year: int, last_year: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the instants at which the zone's offset changes, and the offsets between them (seconds).

    ``zoneinfo`` hides its table, so the offset is probed once a day and each change is bisected to the second.
    """
    zone = _zone(name)

    def offset(utc_s: int) -> int:
        delta = datetime.fromtimestamp(utc_s, zone).utcoffset()
        assert delta is not None
        return int(delta.total_seconds())

    lo, hi = first_year * _YEAR_S - DAY_S, (last_year + 1) * _YEAR_S + DAY_S
    edges: list[int] = []
    offsets = [offset(lo)]
    for probe in range(lo, hi, DAY_S):
        after = min(probe + DAY_S, hi)
        if offset(after) == offsets[-1]:
            continue
        left, right = probe, after
        while right - left > 1:
            middle = (left + right) // 2
            if offset(middle) == offsets[-1]:
                left = middle
            else:
                right = middle
        edges.append(right)
        offsets.append(offset(after))
    return np.array(edges, dtype=np.int64), np.array(offsets, dtype=np.int64)
