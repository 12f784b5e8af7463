"""Pre-scaling: windows with a floor, and named events that multiply the forecast.

A window says "at least so many between these instants", once or by a cron expression on a zone's wall clock. Outside
its windows a schedule is silent: it is never a target, only a floor (and it never caps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from forecaster.timegrid import TimeGrid
from headway.durations import format_duration, parse_duration
from headway.errors import SettingsRefused
from headway.wire import instant, parse_instant

MAX_DURATION = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Prescale:
    """A window or an event. ``id`` names it; ``group`` ``"*"`` is every group.

    Either ``start`` and ``end``, or ``cron``, ``timezone`` and ``duration``. Either ``at_least`` members, or a
    ``factor`` on the forecast under a ``name``.
    """

    id: str
    group: str = "*"
    start: datetime | None = None
    end: datetime | None = None
    cron: str | None = None
    timezone: str = "UTC"
    duration: timedelta | None = None
    at_least: int | None = None
    factor: float | None = None
    name: str | None = None

    def intervals(self, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
        """Return the half-open intervals [start, end) that touch [since, until)."""
        if self.start is not None and self.end is not None:
            return [(self.start, self.end)] if self.start < until and self.end > since else []
        assert self.cron is not None and self.duration is not None
        zone = ZoneInfo(self.timezone)
        found = []
        for at in CronSim(self.cron, (since - self.duration).astimezone(zone) - timedelta(seconds=1)):
            start = at.astimezone(UTC)
            if start >= until:
                break
            if start + self.duration > since:
                found.append((start, start + self.duration))
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the body that makes this again."""
        document: dict[str, Any] = {"id": self.id, "group": self.group}
        if self.start is not None and self.end is not None:
            document |= {"from": instant(self.start), "to": instant(self.end)}
        if self.cron is not None and self.duration is not None:
            document |= {"cron": self.cron, "timezone": self.timezone, "duration": format_duration(self.duration)}
            document["duration_s"] = self.duration.total_seconds()
        if self.at_least is not None:
            document["at_least"] = self.at_least
        if self.factor is not None:
            document |= {"factor": self.factor, "name": self.name}
        return document


def parse_prescale(body: Mapping[str, Any], id: str) -> Prescale:
    """Read a body: ``{group, from, to, replicas}``, ``{cron, timezone, duration, at_least}`` or
    ``{name, from, to, factor}``.

    Raises
    ------
    SettingsRefused
        If it cannot be meant; the message names the key and the remedy.

    Examples
    --------
    >>> w = parse_prescale({"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "2h", "at_least": 9}, "w1")
    >>> [instant(a) for a, _ in w.intervals(datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))]
    ['2026-03-27T07:00:00Z', '2026-03-30T06:00:00Z']
    """  # noqa: D205
    known = {"id", "group", "from", "to", "replicas", "at_least", "cron", "timezone", "duration", "duration_s", "name", "factor"}  # fmt: skip # noqa: E501
    unknown = set(body) - known
    if unknown:
        raise SettingsRefused(f"unknown key {min(unknown)!r}; known: {', '.join(sorted(known))}")
    try:
        return _parse(body, id)
    except (ValueError, TypeError, OverflowError, CronSimError) as exc:
        raise SettingsRefused(f"pre-scaling window: {exc}") from exc


def _parse(body: Mapping[str, Any], id: str) -> Prescale:
    floor, factor = body.get("at_least", body.get("replicas")), body.get("factor")
    if (floor is None) == (factor is None):
        raise ValueError("give either replicas (or at_least) or factor")
    if floor is not None and (isinstance(floor, bool) or not isinstance(floor, int) or not 0 <= floor <= 100_000):
        raise ValueError(f"replicas={floor!r} must be a whole number, 0 or more")
    if factor is not None and (isinstance(factor, bool) or not 0 < float(factor) <= 1000):
        raise ValueError(f"factor={factor!r} must be within (0, 1000]")
    name = body.get("name")
    if factor is not None and not isinstance(name, str):
        raise ValueError("an event needs a name")
    group = body.get("group", "*")
    if not isinstance(group, str) or not group:
        raise ValueError("group must be a name, or * for all")
    common: dict[str, Any] = {"id": id, "group": group, "at_least": floor, "name": name}
    common["factor"] = None if factor is None else float(factor)
    if body.get("cron") is not None:
        if "from" in body or "to" in body:
            raise ValueError("give either cron and duration, or from and to")
        if body.get("duration") is None:
            raise ValueError('cron needs a duration, such as "2h"')
        duration = parse_duration(str(body["duration"]))
        if not timedelta(0) < duration <= MAX_DURATION:
            raise ValueError(f"duration must be longer than 0 and at most {format_duration(MAX_DURATION)}")
        zone = str(body.get("timezone", "UTC"))
        TimeGrid(60, zone)
        CronSim(str(body["cron"]), datetime(2026, 1, 1, tzinfo=UTC))
        return Prescale(**common, cron=str(body["cron"]), timezone=zone, duration=duration)
    if body.get("from") is None or body.get("to") is None:
        raise ValueError("give from and to, or cron and duration")
    start, end = parse_instant(str(body["from"])), parse_instant(str(body["to"]))
    if not start < end:
        raise ValueError(f"from={body['from']} must lie before to={body['to']}")
    return Prescale(**common, start=start, end=end)


def floor_at(windows: Iterable[Prescale], group: str, at: datetime) -> int | None:
    """Return the highest floor of the windows that hold at an instant; None outside every window."""
    floors = [
        w.at_least
        for w in windows
        if w.at_least is not None and w.group in ("*", group) and w.intervals(at, at + timedelta(microseconds=1))
    ]
    return max(floors, default=None)


def factor_at(windows: Iterable[Prescale], group: str, at: datetime) -> float:
    """Return the product of the factors of the events that hold at an instant; 1.0 outside every event."""
    product = 1.0
    for w in windows:
        if w.factor is not None and w.group in ("*", group) and w.intervals(at, at + timedelta(microseconds=1)):
            product *= w.factor
    return product
