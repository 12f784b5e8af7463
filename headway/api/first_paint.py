"""The overview as it stands in the document itself: read before any script has come, and without one.

The page draws the same words over it, so that nothing moves when it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Any

from headway.status.wire import parse_instant
from headway.status.words import DASH, SIGNS, duration, gate_word, number, sentence

WORDS = {"fine": "fine", "attention": "attention", "acting": "acting now"}
WHOLE_WEEK_H = 160
"""Savings over fewer hours than these say of how many."""


def painted(html: bytes, document: Mapping[str, Any]) -> bytes:
    """Return the page with the overview in its places.

    Parameters
    ----------
    html
        The page, with marks such as ``<!--rows-->…<!--/rows-->`` around what stands for it.
    document
        Of ``GET /v1/overview``.

    Examples
    --------
    >>> figures = dict.fromkeys(("late_records", "records", "member_hours", "reactive_member_hours"))
    >>> figures |= dict.fromkeys(("rescales", "rescale_budget", "oldest_input"))
    >>> document = {"now": "2026-01-05T09:00:00Z", "groups": [], "figures": figures}
    >>> painted(b"<p><!--summary-->reading<!--/summary--></p>", document)
    b'<p>no groups</p>'
    """
    parts = {"summary": summary(document), "figures": _figures(document["figures"])}
    parts["link"] = f"○ reading · {parse_instant(document['now']):%H:%M} UTC"
    if document["groups"]:
        now = parse_instant(document["now"])
        parts["rows"] = "".join(_row(group, now) for group in document["groups"])
    for name, text in parts.items():
        start, end = f"<!--{name}-->".encode(), f"<!--/{name}-->".encode()
        before, found, rest = html.partition(start)
        if found:
            html = before + text.encode() + rest.partition(end)[2]
    return html


def summary(document: Mapping[str, Any]) -> str:
    """Return the one line that answers "is anything wrong?"."""
    groups = document["groups"]
    states = [group["state"] for group in groups]
    if not groups:
        return "no groups"
    if "attention" in states:
        return f"{states.count('attention')} of {len(groups)} need attention"
    if "acting" in states:
        return f"{states.count('acting')} acting now"
    return f"{'1 group' if len(groups) == 1 else f'all {len(groups)}'} fine"


def _share(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return DASH
    percent = 100 * value
    if digits is None:
        digits = (
            0 if percent == 0 or abs(percent) >= 10 else 1 if abs(percent) >= 1 else 2 if abs(percent) >= 0.1 else 3
        )
    return f"{percent:.{digits}f} %"


def _count(value: float | None) -> str:
    return DASH if value is None else f"{round(value)}"


def _figures(f: Mapping[str, Any]) -> str:
    oldest = f["oldest_input"]
    budget = f["rescale_budget"]
    cells = [
        ("Late records, 24 h", number(f["late_records"])),
        ("Member-hours, 24 h", number(f["member_hours"])),
        ("Rescales, 24 h", _count(f["rescales"])),
        ("Oldest input", DASH if oldest is None else duration(oldest["age_s"])),
    ]
    notes = [
        _late_note(f["late_records"], f["records"]),
        _rule_note(f["member_hours"], f["reactive_member_hours"]),
        f"budget {budget} a day" if budget else "no group yet",
        "nothing was read yet" if oldest is None else f"{oldest['input']} of {oldest['group']}",
    ]
    return "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd><dd class='note'>{escape(note)}</dd></div>"
        for (name, value), note in zip(cells, notes, strict=True)
    )


def _late_note(late: float | None, records: float | None) -> str:
    if late is None:
        return "delay is not measured yet"
    return f"{_share(late / records)} of {number(records)} records" if records else "no records yet"


def _rule_note(hours: float | None, rule: float | None) -> str:
    if rule is None:
        return "the reactive rule is not known yet"
    if hours is None or not rule:
        return f"the reactive rule: {number(rule)}"
    saved = 1 - hours / rule
    return f"the reactive rule: {number(rule)}, {_share(abs(saved), 0)} {'less' if saved >= 0 else 'more'}"


def _row(g: Mapping[str, Any], now: datetime) -> str:
    counts, day, snapshot = g["replicas"], g["day"], g["snapshot"] or {}
    trio = [_count(counts[key]) for key in ("working", "requested", "planned")]
    topics = "" if ",".join(g["topics"]) == g["group"] else f"<span class='two'>{escape(', '.join(g['topics']))}</span>"
    lag = DASH if snapshot.get("lag") is None else f"{number(snapshot['lag'])} rec"
    saved, over = day["saved_vs_static"], day["saved_over_h"]
    part = f"<span class='two'>of {duration(over * 3600)}</span>" if over is not None and over < WHOLE_WEEK_H else ""
    mode = f"{g['mode']}, paused" if g["paused"] else g["mode"]
    cells = [
        ("State", "c-state", f"<span class='state {g['state']}'>{SIGNS[g['state']]} {WORDS[g['state']]}</span>"),
        ("Arrivals", "c-spark", _spark(g["spark"])),
        ("Arrivals now, records/s", "n", number(snapshot.get("arrival_rate"))),
        ("Members", "n c-members", trio[0] if len(set(trio)) == 1 else " / ".join(trio)),
        ("Next", "c-next", escape(sentence(g, now))),
        ("Delay and lag", "n", _two(duration(g["latency_p99_s"]), lag)),
        ("Saved, 7 days", "n", f"<span class='one'>{_share(saved, 0)}</span>{part}"),
        ("Forecast error, q95", "n quiet", _two(*(_share(g["scores"].get(k), 1) for k in ("wape", "coverage")))),
        ("Mode, gate", "c-mode", _two(escape(mode), gate_word(g))),
    ]
    drawn = [f"<td role='cell' data-label='{name}' class='{kind}'>{inner}</td>" for name, kind, inner in cells]
    link = f"<a href='#group={escape(g['group'], quote=True)}'>{escape(g['group'])}</a>"
    head = f"<th scope='row' role='rowheader' class='c-group'>{link}{topics}</th>"
    return f"<tr role='row' class='row-{g['state']}'>{drawn[0]}{head}{''.join(drawn[1:])}</tr>"


def _spark(spark: Mapping[str, Any]) -> str:
    """Return the place of a sparkline, which scripts draw; where nothing is known why."""
    if all(v is None for v in spark["arrivals"]):
        return f"<span class='quiet'>{escape(spark['why'] or 'nothing is recorded yet')}</span>"
    return "<svg class='spark' viewBox='0 0 168 34' aria-hidden='true'></svg>"


def _two(first: str, second: str) -> str:
    return f"<span class='one'>{first}</span><span class='two'>{second}</span>"
