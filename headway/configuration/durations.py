"""Durations as people write them, always with a unit: ``120s``, ``5m``, ``1h30m``, ``PT5M``; and instants."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)\s*")
_ISO = re.compile(
    r"P(?:(?P<w>\d+(?:\.\d+)?)W)?(?:(?P<d>\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Read a duration. A number without a unit is refused: seconds and minutes have been mixed up before.

    Raises
    ------
    ValueError
        If there is no unit, or the text is something else.

    Examples
    --------
    >>> parse_duration("1h30m"), parse_duration("PT90M") == parse_duration("90min")
    (datetime.timedelta(seconds=5400), True)
    >>> parse_duration("120")
    Traceback (most recent call last):
    ValueError: '120' has no unit; write 120s, 120m or 120h
    """
    plain = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        raise ValueError(f"{text!r} has no unit; write {plain}s, {plain}m or {plain}h")
    seconds = _seconds(plain)
    if seconds is None or seconds > 1e10:
        raise ValueError(f"{text!r} is not a duration such as 120s, 5m, 1h30m, 7d or PT5M")
    return timedelta(seconds=seconds)


def _seconds(text: str) -> float | None:
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groupdict().values()):
        return sum(float(value) * _UNITS[unit] for unit, value in iso.groupdict().items() if value)
    position, seconds = 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return seconds if text else None


def format_duration(duration: timedelta) -> str:
    """Write a duration as people say it, to its two largest units.

    Examples
    --------
    >>> format_duration(timedelta(seconds=5400)), format_duration(timedelta(milliseconds=250))
    ('1h30m', '250ms')
    """
    seconds = duration.total_seconds()
    if seconds < 0:
        return "-" + format_duration(-duration)
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    whole = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return "".join(parts[:2]) or "0s"


def instant(at: datetime) -> str:
    """Return an instant as ISO 8601 UTC with ``Z``.

    Examples
    --------
    >>> instant(datetime(2026, 1, 5, 9, 30, tzinfo=UTC))
    '2026-01-05T09:30:00Z'
    """
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
