"""Figures and states as people read them, for the terminal and the first paint: the page's scripts say the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from headway.status.wire import parse_instant

DASH = "–"
SIGNS = {"fine": "●", "attention": "▲", "acting": "◆"}


def number(value: float | None) -> str:
    """Return a figure with three significant digits and an SI prefix.

    Examples
    --------
    >>> number(1234.0), number(12345.0), number(4.567e6), number(0.5), number(None)
    ('1,230', '12.3 k', '4.57 M', '0.5', '–')
    """
    if value is None:
        return DASH
    for scale, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= scale:
            scaled = value / (1e3 if unit == " k" else scale)
            return f"{float(f'{scaled:.3g}'):,g}{unit}"
    return f"{float(f'{value:.3g}'):,g}"


def duration(seconds: float | None) -> str:
    """Return a duration as people say it.

    Examples
    --------
    >>> [duration(s) for s in (0.4, 3, 12, 600, 9000, 82_700, 400_000, None)]
    ['400 ms', '3.0 s', '12 s', '10 min', '2 h 30 min', '23 h', '4.6 days', '–']
    """
    if seconds is None:
        return DASH
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if 36_000 <= seconds < 172_800:
        return f"{seconds / 3600:.0f} h"
    if seconds < 172_800:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{seconds / 86_400:.1f} days"


def when(text: str, zone: str, now: datetime) -> str:
    """Return a local time, with its day unless that is today."""
    at, today = parse_instant(text).astimezone(ZoneInfo(zone)), now.astimezone(ZoneInfo(zone)).date()
    return f"{at:%H:%M}" if at.date() == today else f"{at:%a} {at.day} {at:%b %H:%M}"


def members(count: int) -> str:
    """Return a number of members in words.

    Examples
    --------
    >>> members(1), members(4)
    ('1 member', '4 members')
    """
    return f"{count} member{'' if count == 1 else 's'}"


def gate_word(group: Mapping[str, Any]) -> str:
    """Return how the gate stands; closed while acting is marked."""
    if group["gate"]["may_act"]:
        return "gate open"
    return "▲ gate closed" if group["mode"] == "act" else "gate closed"


def sentence(group: Mapping[str, Any], now: datetime) -> str:
    """Return what comes next for a group, or what is in the way and until when."""
    if group["problems"]:
        kind, why = next(iter(group["problems"].items()))
        return f"{kind}: {why}"
    counts, coming, not_yet = group["replicas"], group["next"], group["not_yet"]
    if counts["planned"] is None:
        if not_yet is None:
            return "no plan yet; the first comes with the next tick"
        at = not_yet["possible_from"]
        until = "" if at is None else f"; possible from {when(at, group['timezone'], now)}"
        return f"no forecast yet: {not_yet['reason']}{until}"
    why = group["reasons"][0] if group["reasons"] else "no reason was given"
    if group["hold"]:
        return f"holds {members(counts['requested'] or counts['planned'])}: {why}"
    if counts["requested"] is not None and counts["requested"] != counts["planned"]:
        return f"{counts['requested']} → {members(counts['planned'])} now: {why}"
    if coming is None or coming["replicas"] == counts["planned"]:
        return f"stays at {members(counts['planned'])} as far as the forecast reaches"
    at = when(coming["from"], group["timezone"], now)
    return f"{counts['planned']} → {members(coming['replicas'])} at {at}, for {number(coming['demand'])} records/s"
