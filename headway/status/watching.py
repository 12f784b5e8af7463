"""The overview in a terminal: what ``headway watch`` shows, from the same document that the page draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.status.wire import parse_instant
from headway.status.words import DASH, SIGNS, duration, number, sentence, when

BARS = "▁▂▃▄▅▆▇█"
STYLES = {"fine": "cyan", "attention": "bold red", "acting": "yellow"}
DAY_CELLS, AHEAD_CELLS = 20, 5
"""Of the curve: both of 72 minutes."""


def binned(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return means of so many equal parts; a part of which nothing is known is None."""
    per = max(1, -(-len(values) // width))
    cells: list[float | None] = []
    for k in range(0, len(values), per):
        known = [v for v in values[k : k + per] if v is not None]
        cells.append(sum(known) / len(known) if known else None)
    return cells


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """Return a row of bars; a gap is a blank, never a low bar. ``top`` is what the highest bar stands for.

    Examples
    --------
    >>> sparkline([0.0, 5.0, None, 10.0], 4), sparkline([5.0], 1, 10.0)
    ('▁▅ █', '▅')
    """
    cells = binned(values, width)
    most = top or max((v for v in cells if v is not None), default=0.0) or 1.0
    return "".join(" " if v is None else BARS[min(int(v / most * 7 + 0.5), 7)] for v in cells)


def curve(spark: Mapping[str, Any]) -> Text:
    """Return a day of arrivals, and after a bar the hours ahead at their upper quantile, on one scale."""
    past, ahead = spark["arrivals"], spark["ahead"]
    if all(v is None for v in past):
        return Text(spark["why"] or "nothing recorded yet", style="dim")
    high = [] if ahead is None else ahead["high"]
    top = max(v for v in [*binned(past, DAY_CELLS), *binned(high, AHEAD_CELLS)] if v is not None)
    text = Text(sparkline(past, DAY_CELLS, top))
    return text if ahead is None else text.append("│", "red").append(sparkline(high, AHEAD_CELLS, top), "blue")


def screen(
    document: Mapping[str, Any], *, selected: int = 0, trouble: str | None = None, width: int = 120, keys: str = ""
) -> Group:
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
    keys
        What can be pressed; the last line.
    """
    now = parse_instant(document["now"])
    groups = list(document["groups"])
    parts: list[RenderableType] = [_headline(document["figures"], now, width)]
    if trouble is not None:
        parts.append(Text(trouble, style="bold red"))
    if not groups:
        parts.append(Text("No group is configured yet: headway init lists the groups of your cluster."))
        return Group(*parts)
    wide, roomy, tight = width >= 150, width >= 100, width < 72
    table = Table(expand=True, box=None, pad_edge=False, header_style="dim")
    table.add_column("state", no_wrap=True)
    table.add_column("group", no_wrap=True, style="bold", max_width=28)
    if roomy:
        table.add_column("24 h of arrivals│6 h", no_wrap=True)
    for name in ("rec/s", "members"):
        table.add_column(name, justify="right", no_wrap=True)
    if not tight:  # of the chosen group it stands below
        table.add_column("next", ratio=1, no_wrap=not wide, overflow="ellipsis")
    if roomy:
        for name in ("delay", "lag"):
            table.add_column(name, justify="right", no_wrap=True)
    if wide:
        for name in ("saved 7 d", "error", "q95"):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for k, group in enumerate(groups):
        table.add_row(
            *_cells(group, now, tight, roomy, wide), style="reverse" if k == selected and len(groups) > 1 else None
        )
    parts += [table, Text(""), _details(groups[min(selected, len(groups) - 1)], now)]
    if keys:
        parts += [Text(""), Text(keys, style="dim")]
    return Group(*parts)


def _cells(group: Mapping[str, Any], now: datetime, tight: bool, roomy: bool, wide: bool) -> list[RenderableType]:
    snapshot, counts = group["snapshot"] or {}, group["replicas"]
    trio = [counts[key] for key in ("working", "requested", "planned")]
    shown = [DASH if n is None else str(n) for n in (trio[:1] if len(set(trio)) == 1 else trio)]
    late = group["latency_p99_s"] is not None and group["latency_p99_s"] > group["slo_s"]
    closed = group["mode"] == "act" and not group["gate"]["may_act"]
    cells: list[RenderableType] = [
        Text(f"{SIGNS[group['state']]} {group['state']}", style=STYLES[group["state"]]),
        group["group"],
    ]
    if roomy:
        cells.append(curve(group["spark"]))
    cells += [number(snapshot.get("arrival_rate")), "/".join(shown), *([] if tight else [sentence(group, now)])]
    if roomy:
        cells += [Text(duration(group["latency_p99_s"]), "bold red" if late else ""), number(snapshot.get("lag"))]
    if wide:
        saved, scores = group["day"]["saved_vs_static"], group["scores"]
        cells += [_percent(saved, 0), _percent(scores.get("wape"), 1), _percent(scores.get("coverage"), 1)]
    mode = f"{group['mode']}, paused" if group["paused"] else group["mode"]
    return [*cells, Text(f"{mode}, ▲ gate", "bold red") if closed else mode]


def _percent(value: float | None, digits: int) -> str:
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def _headline(figures: Mapping[str, Any], now: datetime, width: int) -> Text:
    late, records = figures["late_records"], figures["records"]
    share = f" ({100 * late / records:.3g} %)" if late is not None and records else ""
    parts = [
        f"{now:%Y-%m-%d %H:%M:%S} UTC",
        f"late 24 h {number(late)}{share}",
        f"member-hours {number(figures['member_hours'])}, reactive rule {number(figures['reactive_member_hours'])}",
        f"rescales {number(figures['rescales'])} of {number(figures['rescale_budget'])}",
    ]
    if figures["oldest_input"] is not None:
        oldest = figures["oldest_input"]
        parts.append(f"oldest input {duration(oldest['age_s'])} ({oldest['group']})")
    lines = [parts[0]]
    for part in parts[1:]:  # a figure stays on one line with its name
        longer = f"{lines[-1]}  ·  {part}"
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, part]
    return Text("\n".join(lines), style="dim")


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
        lines.append(f"  error {_percent(scores['wape'], 1)}, q95 covered {_percent(scores['coverage'], 1)}")
    return Text("\n".join(lines))
