"""Pre-scaling: windows by cron or by instants, named events with a factor, overrides with an expiry.

A rule acts from its first instant on, and no longer at its last: windows are half open, to the second. Outside its
windows a rule is neutral: it says nothing, not one and not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from cronsim import CronSim, CronSimError
from numpy.typing import NDArray

from balancer.errors import PolicyRefused

LONGEST = timedelta(days=366)
"""Longest window of a cron rule."""
MAX_FACTOR = 1000.0
"""Largest factor of an event: whoever writes more has mistyped, and would ask for every member there may be."""

UNLIMITED = 2**31
"""More members than anybody has."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pre-scaling rule, as a person wrote it.

    Parameters
    ----------
    start, end
        Instants, aware; ``start`` None is "from the beginning". None for cron rules.
    cron, timezone, duration
        Five-field cron expression, the zone in which it is read, and how long each window lasts (real time, clock
        changes or not).
    replicas, at_least, at_most
        Exact size, floor, ceiling.
    factor
        Demand is this many times what is forecast.
    name
        Of an event, or of any rule.
    override
        Beats every other rule, and has an end.

    Raises
    ------
    PolicyRefused
        If the rule cannot be meant; the message names field, value and bound.

    Examples
    --------
    >>> Rule(cron="0 8 * * 1-5", timezone="Europe/Berlin", duration=timedelta(hours=2), at_least=9).text
    'at least 9 from 0 8 * * 1-5 (Europe/Berlin) for 2:00:00'
    """

    start: datetime | None = None
    end: datetime | None = None
    cron: str | None = None
    timezone: str = "UTC"
    duration: timedelta | None = None
    replicas: int | None = None
    at_least: int | None = None
    at_most: int | None = None
    factor: float | None = None
    name: str | None = None
    override: bool = False

    def __post_init__(self) -> None:
        if self.cron is not None:
            self._check_cron()
        else:
            if self.duration is not None:
                raise PolicyRefused("duration goes with cron; give from and to, or cron and duration")
            if self.end is None:
                raise PolicyRefused("to is missing: a rule without cron needs an end")
            for field, value in (("from", self.start), ("to", self.end)):
                if value is not None and value.tzinfo is None:
                    raise PolicyRefused(f"{field}={value.isoformat()} must name its zone, such as {value.isoformat()}Z")
            if self.start is not None and self.start >= self.end:
                raise PolicyRefused(f"to={self.end.isoformat()} must be later than from={self.start.isoformat()}")
        if all(v is None for v in (self.replicas, self.at_least, self.at_most, self.factor)):
            raise PolicyRefused("nothing is asked for: give replicas, at_least, at_most or factor")
        for field in ("replicas", "at_least", "at_most"):
            size = getattr(self, field)
            if size is not None and size < 0:
                raise PolicyRefused(f"{field}={size} must be 0 or more")
        if self.replicas is not None and (self.at_least is not None or self.at_most is not None):
            raise PolicyRefused("replicas is exact; give it or at_least and at_most, not both")
        if self.at_least is not None and self.at_most is not None and self.at_most < self.at_least:
            raise PolicyRefused(f"at_most={self.at_most} must be at least at_least={self.at_least}")
        if self.factor is not None and not (0 < self.factor <= MAX_FACTOR):
            raise PolicyRefused(f"factor={self.factor} must be a positive number of at most {MAX_FACTOR:g}")
        if self.override and (self.replicas is None or self.end is None):
            raise PolicyRefused("an override needs replicas and an expiry")

    def _check_cron(self) -> None:
        if self.start is not None or self.end is not None:
            raise PolicyRefused("cron goes with duration; give from and to, or cron and duration")
        if self.duration is None or not timedelta(0) < self.duration <= LONGEST:
            raise PolicyRefused(f"duration={self.duration} must be longer than zero and at most {LONGEST.days} days")
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise PolicyRefused(f"timezone={self.timezone!r} must be an IANA name, such as Europe/Berlin") from error
        expression = self.cron or ""
        try:
            if len(expression.split()) != 5:  # the library also takes seconds
                raise CronSimError("Wrong number of fields")
            next(CronSim(expression, datetime(2024, 1, 1, tzinfo=zone)))
        except (CronSimError, StopIteration) as error:
            why = str(error) or "It never comes"
            raise PolicyRefused(f"cron={expression!r} must be five fields, such as 0 8 * * 1-5: {why}") from error

    @property
    def text(self) -> str:
        """What the rule does, in a line."""
        asks = [f"exactly {self.replicas}"] if self.replicas is not None else []
        asks += [f"at least {self.at_least}"] if self.at_least is not None else []
        asks += [f"at most {self.at_most}"] if self.at_most is not None else []
        asks += [f"{self.factor:g} times the forecast"] if self.factor is not None else []
        what = ("override " if self.override else "") + " and ".join(asks)
        if self.cron is not None:
            when = f"from {self.cron} ({self.timezone}) for {self.duration}"
        else:
            begins = f"from {self.start.isoformat()} " if self.start else ""
            when = f"{begins}to {self.end.isoformat() if self.end else ''}"
        return f"{self.name}: {what} {when}" if self.name else f"{what} {when}"


@dataclass(frozen=True, slots=True)
class Span:
    """One window of a rule: acts at ``start``, no longer at ``end``."""

    start: datetime
    end: datetime
    rule: Rule


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """What the rules ask for at each of some instants.

    Parameters
    ----------
    exact, floor, ceiling
        Shape (instants,), members; -1 where nothing is asked for (use :attr:`low` and :attr:`high`).
    factor
        Shape (instants,), by which the forecast is multiplied; 1 where nothing is asked for.

    Examples
    --------
    >>> e = Effects(np.array([-1, 3, -1]), np.array([-1, 4, 9]), np.array([4, -1, 8]), np.ones(3))
    >>> np.clip([5, 5, 5], e.low, e.high)
    array([4, 3, 9])
    """

    exact: NDArray[np.intp]
    floor: NDArray[np.intp]
    ceiling: NDArray[np.intp]
    factor: NDArray[np.float64]

    @property
    def low(self) -> NDArray[np.intp]:
        """Fewest members, shape (instants,): the exact size where one is asked for, else the floor; -1 is none."""
        return np.where(self.exact >= 0, self.exact, self.floor)

    @property
    def high(self) -> NDArray[np.intp]:
        """Most members, shape (instants,): the exact size, else the ceiling unless a floor lies above; or UNLIMITED."""
        most = np.where(self.ceiling >= 0, np.maximum(self.ceiling, self.floor), UNLIMITED)
        return np.where(self.exact >= 0, self.exact, most)


def spans(rules: Iterable[Rule], start: datetime, end: datetime) -> tuple[Span, ...]:
    """List the windows that touch an interval, in order of time.

    Parameters
    ----------
    rules
        Of one group.
    start, end
        The interval, aware. Windows that began before it and still act are among them.

    Examples
    --------
    Eight o'clock in Berlin is seven o'clock UTC in winter, six in summer:

    >>> rule = Rule(cron="0 8 * * *", timezone="Europe/Berlin", duration=timedelta(hours=2), at_least=9)
    >>> day = datetime(2026, 3, 28, tzinfo=UTC)
    >>> [s.start.isoformat() for s in spans([rule], day, day + timedelta(days=2))]
    ['2026-03-28T07:00:00+00:00', '2026-03-29T06:00:00+00:00']
    """
    found = []
    for rule in rules:
        if rule.cron is None:
            if rule.end is not None and rule.end > start and (rule.start is None or rule.start < end):
                first = rule.start if rule.start is not None else min(start, rule.end)
                found.append(Span(first.astimezone(UTC), rule.end.astimezone(UTC), rule))
            continue
        duration = rule.duration or timedelta(0)
        merged: list[Span] = []  # windows of one rule that touch are one window: it acts once
        since = (start - duration - timedelta(seconds=60)).astimezone(ZoneInfo(rule.timezone))
        for instant in CronSim(rule.cron, since):
            begins = instant.astimezone(UTC)
            if begins >= end:
                break
            if merged and begins <= merged[-1].end:
                merged[-1] = Span(merged[-1].start, begins + duration, rule)
            elif begins + duration > start:
                merged.append(Span(begins, begins + duration, rule))
        found += merged
    return tuple(sorted(found, key=lambda s: (s.start, s.end)))


def effects(windows: Sequence[Span], instants: Sequence[datetime]) -> Effects:
    """Lay windows over instants.

    Where several ask, the safest is taken: of floors the highest, of exact sizes the highest, of ceilings the highest;
    factors multiply. An override beats them all; of several the one that ends last.

    Parameters
    ----------
    windows
        As :func:`spans` gives them for an interval that holds the instants.
    instants
        Aware.

    Examples
    --------
    >>> day = datetime(2026, 1, 5, tzinfo=UTC)
    >>> rule = Rule(start=day, end=day + timedelta(hours=1), at_least=4)
    >>> effects(spans([rule], day, day + timedelta(days=1)), [day, day + timedelta(hours=1)]).floor
    array([ 4, -1])
    """
    at = np.array([i.timestamp() for i in instants])
    exact = np.full(at.size, -1, dtype=np.intp)
    floor, ceiling, factor = exact.copy(), exact.copy(), np.ones(at.size)
    for span in sorted(windows, key=lambda s: (s.rule.override, s.end)):
        inside = (at >= span.start.timestamp()) & (at < span.end.timestamp())
        rule = span.rule
        if rule.override and rule.replicas is not None:
            exact[inside] = rule.replicas
            continue
        if rule.replicas is not None:
            exact[inside] = np.maximum(exact[inside], rule.replicas)
        if rule.at_least is not None:
            floor[inside] = np.maximum(floor[inside], rule.at_least)
        if rule.at_most is not None:
            ceiling[inside] = np.maximum(ceiling[inside], rule.at_most)
        if rule.factor is not None:
            factor[inside] *= rule.factor
    return Effects(exact, floor, ceiling, factor)


def active(windows: Sequence[Span], at: datetime) -> tuple[Rule, ...]:
    """Return the rules that act at an instant."""
    return tuple(s.rule for s in windows if s.start <= at < s.end)


def is_over(rule: Rule, now: datetime) -> bool:
    """Whether a rule can never act again, so that it may be dropped from a list."""
    return rule.cron is None and rule.end is not None and rule.end <= now


_FIELDS = ("from", "to", "expires", "cron", "timezone", "duration", "replicas", "at_least", "at_most", "factor", "name")


def rule_from_json(body: Mapping[str, Any]) -> Rule:
    """Read a rule as HTTP and the settings write it; ``group`` and ``id`` may be there and are not looked at.

    Raises
    ------
    PolicyRefused
        With field, value and bound.

    Examples
    --------
    >>> rule_from_json({"name": "sale", "from": "2026-01-05T09:00:00Z", "to": "2026-01-05T11:00Z", "factor": 2.5}).text
    'sale: 2.5 times the forecast from 2026-01-05T09:00:00+00:00 to 2026-01-05T11:00:00+00:00'
    >>> rule_from_json({"cron": "0 8 * * 1-5", "duration": "2h", "at_last": 9})
    Traceback (most recent call last):
    balancer.errors.PolicyRefused: at_last is not known; a rule may have from, to, expires, cron, ...
    """
    for key in body:
        if key not in _FIELDS and key not in ("group", "id"):
            raise PolicyRefused(f"{key} is not known; a rule may have {', '.join(_FIELDS)}")
    if body.get("to") is not None and body.get("expires") is not None:
        raise PolicyRefused("to and expires are both given; an override has expires, a window has to")
    return Rule(
        start=_instant("from", body.get("from")),
        end=_instant("to", body.get("to")) or _instant("expires", body.get("expires")),
        cron=_text("cron", body.get("cron")),
        timezone=_text("timezone", body.get("timezone")) or "UTC",
        duration=_duration(body.get("duration")),
        replicas=_count("replicas", body.get("replicas")),
        at_least=_count("at_least", body.get("at_least")),
        at_most=_count("at_most", body.get("at_most")),
        factor=_number("factor", body.get("factor")),
        name=_text("name", body.get("name")),
        override=body.get("expires") is not None,
    )


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Write a rule as :func:`rule_from_json` reads it.

    Examples
    --------
    >>> rule = Rule(cron="0 8 * * 1-5", timezone="Europe/Berlin", duration=timedelta(hours=2), at_least=9)
    >>> rule_to_json(rule)
    {'cron': '0 8 * * 1-5', 'timezone': 'Europe/Berlin', 'duration': '7200s', 'at_least': 9}
    >>> rule_from_json(rule_to_json(rule)) == rule
    True
    """
    body: dict[str, Any] = {"name": rule.name, "cron": rule.cron}
    if rule.cron is not None and rule.duration is not None:
        body |= {"timezone": rule.timezone, "duration": f"{rule.duration.total_seconds():g}s"}
    if rule.start is not None:
        body["from"] = rule.start.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if rule.end is not None:
        body["expires" if rule.override else "to"] = rule.end.astimezone(UTC).isoformat().replace("+00:00", "Z")
    body |= {"replicas": rule.replicas, "at_least": rule.at_least, "at_most": rule.at_most, "factor": rule.factor}
    return {key: value for key, value in body.items() if value is not None}


def _instant(field: str, value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError as error:
        raise PolicyRefused(f"{field}={value!r} must be an instant such as 2026-01-05T09:00:00Z") from error


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(value: Any) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    text = str(value).lower().removeprefix("p").replace("t", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise PolicyRefused(f"duration={value!r} must have a unit, such as 2h, 90m, 1h30m or PT2H")
    return timedelta(seconds=sum(float(n) * _UNITS[u] for n, u in parts))


def _count(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyRefused(f"{field}={value!r} must be a whole number of members")
    return value


def _number(field: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyRefused(f"{field}={value!r} must be a number")
    return float(value)


def _text(field: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise PolicyRefused(f"{field}={value!r} must be text")
    return value
