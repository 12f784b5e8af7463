"""The overview in a terminal: what ``headway watch`` shows, from the same document that the page draws."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.status.wire import parse_instant

BARS = "▁▂▃▄▅▆▇█"
STATES = {"fine": ("●", "cyan"), "attention": ("▲", "bold red"), "acting": ("◆", "yellow")}
DASH = "–"


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
    >>> [duration(s) for s in (0.4, 12, 600, 9000, 400_000, None)]
    ['400 ms', '12 s', '10 min', '2 h 30 min', '4.6 days', '–']
    """
    if seconds is None:
        return DASH
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{seconds / 86_400:.1f} days"


def sparkline(values: list[float | None], width: int) -> str:
    """Return a row of bars; a gap is a blank, never a low bar.

    Examples
    --------
    >>> sparkline([0.0, 5.0, None, 10.0], 4)
    '▁▅ █'
    """
    per = max(1, -(-len(values) // width))
    cells: list[float | None] = []
    for k in range(0, len(values), per):
        known = [v for v in values[k : k + per] if v is not None]
        cells.append(sum(known) / len(known) if known else None)
    top = max((v for v in cells if v is not None), default=0.0) or 1.0
    return "".join(" " if v is None else BARS[min(int(v / top * 7 + 0.5), 7)] for v in cells)


def when(text: str, zone: str, now: datetime) -> str:
    """Return a local time, with its day unless that is today."""
    at, today = parse_instant(text).astimezone(ZoneInfo(zone)), now.astimezone(ZoneInfo(zone)).date()
    return f"{at:%H:%M}" if at.date() == today else f"{at:%a %d %b %H:%M}"


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
        return f"holds {counts['requested'] or counts['planned']}: {why}"
    if counts["requested"] is not None and counts["requested"] != counts["planned"]:
        return f"{counts['requested']} → {counts['planned']} now: {why}"
    if coming is None or coming["replicas"] == counts["planned"]:
        return f"stays at {counts['planned']} as far as the forecast reaches"
    at = when(coming["from"], group["timezone"], now)
    return f"{counts['planned']} → {coming['replicas']} at {at}, for {number(coming['demand'])} records/s"


def screen(document: Mapping[str, Any], *, selected: int = 0, trouble: str | None = None, width: int = 120) -> Group:
    """Return the whole view.

    Parameters
    ----------
    document
        Of ``GET /v1/overview``.
    selected
        Row whose details are shown below.
    trouble
        Why the document is old, if it is.
    width
        Columns of the terminal: narrow ones leave the lesser columns out.
    """
    now = parse_instant(document["now"])
    groups = list(document["groups"])
    parts: list[RenderableType] = [_headline(document["figures"], now)]
    if trouble is not None:
        parts.append(Text(trouble, style="bold red"))
    if not groups:
        parts.append(Text("No group is configured yet: headway init lists the groups of your cluster."))
        return Group(*parts)
    wide, roomy = width >= 150, width >= 100
    table = Table(expand=True, box=None, pad_edge=False, header_style="dim")
    table.add_column("state", no_wrap=True)
    table.add_column("group", no_wrap=True, style="bold", max_width=28)
    if roomy:
        table.add_column("arrivals, 24 h", no_wrap=True)
    for name in ("rec/s", "members"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("next", ratio=1, no_wrap=not wide, overflow="ellipsis")
    if roomy:
        for name in ("delay", "lag"):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for k, group in enumerate(groups):
        icon, style = STATES[group["state"]]
        snapshot, counts = group["snapshot"] or {}, group["replicas"]
        trio = [counts[key] for key in ("working", "requested", "planned")]
        same = len(set(trio)) == 1
        shown = [DASH if n is None else str(n) for n in (trio[:1] if same else trio)]
        cells: list[RenderableType] = [Text(f"{icon} {group['state']}", style=style), group["group"]]
        cells += [Text(sparkline(group["spark"]["arrivals"], 24), style="blue")] if roomy else []
        cells += [number(snapshot.get("arrival_rate")), "/".join(shown), sentence(group, now)]
        cells += [duration(group["latency_p99_s"]), number(snapshot.get("lag"))] if roomy else []
        cells += [f"{group['mode']}, paused" if group["paused"] else group["mode"]]
        table.add_row(*cells, style="reverse" if k == selected and len(groups) > 1 else None)
    parts += [table, Text(""), _details(groups[min(selected, len(groups) - 1)], now)]
    return Group(*parts)


def _headline(figures: Mapping[str, Any], now: datetime) -> Text:
    late, records = figures["late_records"], figures["records"]
    share = f" ({late / records:.3%})" if late is not None and records else ""
    parts = [
        f"{now:%Y-%m-%d %H:%M:%S} UTC",
        f"late 24 h {number(late)}{share}",
        f"member-hours {number(figures['member_hours'])}, reactive rule {number(figures['reactive_member_hours'])}",
        f"rescales {number(figures['rescales'])} of {number(figures['rescale_budget'])}",
    ]
    if figures["oldest_input"] is not None:
        oldest = figures["oldest_input"]
        parts.append(f"oldest input {duration(oldest['age_s'])} ({oldest['group']})")
    return Text("  ·  ".join(parts), style="dim")


def _details(group: Mapping[str, Any], now: datetime) -> Text:
    bound = group["bound_by"] or {"kind": "none"}
    lines = [f"{group['group']}: {sentence(group, now)}"]
    lines += [f"  {reason}" for reason in group["reasons"][:3]]
    if bound["kind"] != "none":
        since = f" from {when(bound['from'], group['timezone'], now)}" if bound["from"] else ""
        lines.append(f"  bound by {bound['kind']} {bound['id'] or ''}{since}")
    may = "may act" if group["gate"]["may_act"] else "does not act yet"
    lines.append(f"  the forecast {may}: {'; '.join(group['gate']['reasons'])}")
    scores = group["scores"]
    if scores.get("wape") is not None and scores.get("coverage") is not None:
        lines.append(f"  error {scores['wape']:.1%}, q95 covered {scores['coverage']:.1%}")
    return Text("\n".join(lines))
