"""A group's evidence as one self-contained HTML file: it opens offline, in light and dark, and prints."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from headway import __version__
from headway.reports.report import Report
from headway.reports.sheet import bokeh, dated, drawn, figure, legend_below, sheet, styled, table, titled
from headway.status.wire import parse_instant
from headway.status.words import number

_NAMES = {
    "headway": "Headway", "keda_lag": "KEDA by lag", "rate_reactive": "reactive rate rule",
    "cron_last_week": "cron, last week", "flink": "Flink's autoscaler", "static_peak": "static peak",
    "perfect": "clairvoyant limit",
}  # fmt: skip
_RELIABILITY = "Reliability: a point above the line covers more than it says"
_DRAWN = {
    "headway": ("#1f63a8", 2.2, "solid"), "rate_reactive": ("#767d86", 1.0, "solid"),
    "perfect": ("#8f5b00", 1.0, "dotted"),
}  # fmt: skip
"""What is drawn over the arrivals: colour, width, dash. The table has all policies."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_INK, _BLUE, _GREY, _AMBER, _RED = "#1c1f23", "#1f63a8", "#767d86", "#8f5b00", "#b23a17"


def write_page(path: Path, report: Report) -> None:
    """Write the page.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    document = report.document()
    plots: dict[str, Any] = {"members": _members(report)}
    if report.pairs is not None:
        plots["forecast"] = _forecast(report)
        plots["leads"] = _leads(document)
        plots["reliability"] = _reliability(document)
        plots["hours"] = _hours(document)
    boxes, head, script = drawn(plots)
    zone = ZoneInfo(document["timezone"])
    title = f"{report.group}: what Headway would have done"
    body = "".join(
        [
            f"<h1>{html.escape(title)}</h1>",
            f"<p class='quiet'>{_facts(document, zone)}</p>",
            f"<p class='lead'>{html.escape(verdict(document))}</p>",
            "<h2>Policies on the same arrivals</h2>",
            _policies(document),
            f"<p class='quiet'>{html.escape(_did_note(document))}</p>",
            f"<h2>Requested members over arrivals</h2>{boxes['members']}",
        ]
    )
    if report.pairs is not None:
        body += (
            f"<h2>The forecast</h2>{titled('Said an hour before, and what came', boxes['forecast'])}"
            f"{titled('Error by lead time (WAPE)', boxes['leads'])}{_leads_table(document)}"
            f"<div class='pair'><div>{titled(_RELIABILITY, boxes['reliability'])}</div>"
            f"<div>{titled('Error by hour of the week, forecasts up to an hour old', boxes['hours'])}</div></div>"
        )
    body += _wrong(document, zone)
    body += "".join(f"<p class='quiet'>{html.escape(note)}</p>" for note in document["notes"])
    body += (
        "<p class='quiet'>Every policy knew only what lay before each instant; settings were learned on the history "
        "before the first day shown. Members are simulated: capacity is constant, starts take their time. "
        f"Headway {__version__}.</p>"
    )
    path.write_text(sheet(title, body, head, script), encoding="utf-8")


def percent(share: float) -> str:
    """Return a share in three significant digits; what is below a millionth is said to be that.

    Examples
    --------
    >>> [percent(share) for share in (0.0, 0.027417, 0.000017, 1e-9)]
    ['0 %', '2.74 %', '0.0017 %', '< 0.0001 %']
    """
    return "< 0.0001 %" if 0 < share < 1e-6 else f"{100 * share:.3g} %"


def verdict(document: dict[str, Any]) -> str:
    """Return what a reader should take away, in two sentences.

    Examples
    --------
    >>> figures = {"late_share": 0.0, "hours": 90.0, "rescales_per_day": 8.0, "cost": 45.0}
    >>> rival = {"late_share": 0.01, "hours": 100.0, "rescales_per_day": 40.0, "cost": 50.0}
    >>> verdict({"policies": {"headway": figures, "rate_reactive": rival}, "did": None})
    'Headway would have used 10 % fewer member-hours than the reactive rate rule (45 instead of 50 in money) and rescaled 8 times a day instead of 40. No record would have been late, instead of 1 %.'
    """  # noqa: E501
    policies = document["policies"]
    ours = policies.get("headway")
    rival, name = policies.get("rate_reactive"), "the reactive rate rule"
    if document["did"] is not None:
        rival, name = {**document["did"], "rescales_per_day": None}, "the group did"
    if ours is None or rival is None:
        return "Only part of the policies was played; the table has their figures."
    change = 1 - ours["hours"] / rival["hours"] if rival["hours"] else 0.0
    less = f"{abs(change):.0%}".replace("%", " %")
    said = f"Headway would have used {less} {'fewer' if change >= 0 else 'more'} member-hours than {name}"
    if ours["cost"] is not None and rival["cost"] is not None:
        said += f" ({number(ours['cost'])} instead of {number(rival['cost'])} in money)"
    if rival["rescales_per_day"] is not None:
        said += f" and rescaled {ours['rescales_per_day']:.0f} times a day instead of {rival['rescales_per_day']:.0f}"
    return f"{said}. {_lateness(ours['late_share'], rival['late_share'])}"


def _lateness(ours: float, theirs: float | None) -> str:
    if theirs == 0 and ours == 0:
        return "No record would have been late, with either."
    said = "No record" if ours == 0 else f"{percent(ours)} of the records"
    instead = "" if theirs is None else f", instead of {'none' if theirs == 0 else percent(theirs)}"
    return f"{said} would have been late{instead}."


def _facts(document: dict[str, Any], zone: ZoneInfo) -> str:
    return (
        f"{_when(document['from'], zone)} to {_when(document['to'], zone)} ({document['timezone']}) · "
        f"{number(document['records'])} records · a member takes {document['capacity_per_member']:g} records/s and "
        f"starts in {document['start_time_s']:g} s · late after {document['slo_s']:g} s"
    )


def _when(text: str, zone: ZoneInfo) -> str:
    return parse_instant(text).astimezone(zone).strftime("%a %d %b %Y %H:%M")


def _policies(document: dict[str, Any]) -> str:
    priced = document["price_per_member_hour"] is not None
    heads = [
        "",
        "#Late records",
        "#p99",
        "#Member-hours",
        "#Of static peak",
        "#Rescales a day",
        *([f"#Cost, at {document['price_per_member_hour']:g} a member-hour"] if priced else []),
    ]
    static = document["policies"].get("static_peak", {}).get("hours")
    rows = []
    if document["did"] is not None:
        did = document["did"]
        late = "not measured" if did["late_share"] is None else percent(did["late_share"])
        days = (parse_instant(document["to"]) - parse_instant(document["from"])) / timedelta(days=1)
        share = f"{did['hours'] / static:.2f}" if static else "–"
        row = ["what the group did", late, "–", f"{did['hours']:,.1f}", share, f"{did['rescales'] / days:.1f}"]
        rows.append([*row, *([f"{did['cost']:,.2f}"] if priced else [])])
    for name, f in document["policies"].items():
        p99 = "never served" if f["p99_s"] is None else f"{f['p99_s']:.1f} s"
        share = f"{f['hours'] / static:.2f}" if static else "–"
        row = [
            _NAMES[name],
            percent(f["late_share"]),
            p99,
            f"{f['hours']:,.1f}",
            share,
            f"{f['rescales_per_day']:.1f}",
        ]
        rows.append([*row, *([f"{f['cost']:,.2f}"] if priced else [])])
    return table(heads, rows, "Headway")


def _did_note(document: dict[str, Any]) -> str:
    if document["did"] is not None:
        return "What the group did: members that were seen working at each tick."
    return f"What the group itself did is not known: {document['did_why']}."


def _wrong(document: dict[str, Any], zone: ZoneInfo) -> str:
    text = "<h2>Where it was wrong, and why</h2>"
    if document["wrong"]:
        rows = [
            [_when(w["from"], zone), number(w["records_beyond"]), number(w["peak"]), str(w["members"]), w["cause"]]
            for w in document["wrong"]
        ]
        heads = ["Hour from", "#Records beyond capacity", "#Peak, records/s", "#Members", "Why"]
        text += f"<p>Hours in which more arrived than Headway's members could serve at once.</p>{table(heads, rows)}"
    else:
        text += "<p>In no hour did more arrive than Headway's members could serve at once.</p>"
    if document["forecast"]["worst"]:
        rows = [
            [_when(w["from"], zone), number(w["came"]), number(w["expected"]), w["cause"]]
            for w in document["forecast"]["worst"]
        ]
        heads = ["Hour from", "#Came, records/s", "#Expected", "What was different"]
        text += f"<p>Hours in which the forecast, made up to an hour before, erred most.</p>{table(heads, rows)}"
    return text


def _leads_table(document: dict[str, Any]) -> str:
    def share(v: float | None) -> str:
        return "–" if v is None else f"{100 * v:.1f} %"

    rows = [
        [_lead(f["lead_s"]), share(f["wape"]), share(f["bias"]), share(f["coverage"].get("0.95")),
         *(share(f["naive_wape"].get(n)) for n in ("last value", "yesterday", "last week"))]
        for f in document["forecast"]["leads"]
    ]  # fmt: skip
    heads = ["Lead up to", "#Error (WAPE)", "#Bias", "#q95 covered", "#Last value", "#Yesterday", "#Last week"]
    return table(heads, rows)


def _lead(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def _local(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def _members(report: Report) -> Any:
    from bokeh.models import LinearAxis, Range1d

    world, zone = report.result.world, ZoneInfo(report.series.grid.timezone)
    plot = figure(380, x_axis_type="datetime", y_axis_label="members")
    every = max(1, world.run_minutes // 4000)
    rate = world.arrivals[: world.run_minutes // every * every].reshape(-1, every).mean(axis=1) / 60
    at = [_local(world.start + timedelta(minutes=every * k), zone) for k in range(rate.size)]
    shown = [report.result.outcomes[name].changes for name in _DRAWN if name in report.result.outcomes]
    if report.did is not None:
        shown.append(report.did.changes)
    most = max([n for changes in shown for _, n in changes] + [float(rate.max()) / world.capacity])
    top: Any = most * 1.15
    plot.y_range = Range1d(start=0, end=top)
    plot.extra_y_ranges = {"rate": Range1d(start=0, end=top * world.capacity)}
    plot.add_layout(styled(LinearAxis(y_range_name="rate", axis_label="records/s")), "right")
    dated(plot)
    plot.varea(x=at, y1=np.zeros(rate.size), y2=rate, y_range_name="rate", color="#c9d3dc", alpha=0.7)
    for name, (colour, width, dash) in _DRAWN.items():
        outcome = report.result.outcomes.get(name)
        if outcome is None:
            continue
        times = [_local(t, zone) for t, _ in outcome.changes] + [_local(world.end, zone)]
        sizes = [n for _, n in outcome.changes] + [outcome.changes[-1][1]]
        plot.step(
            x=times, y=sizes, mode="after", color=colour, line_width=width, line_dash=dash, legend_label=_NAMES[name]
        )
    if report.did is not None:
        times = [_local(t, zone) for t, _ in report.did.changes] + [_local(world.end, zone)]
        sizes = [n for _, n in report.did.changes] + [report.did.changes[-1][1]]
        plot.step(x=times, y=sizes, mode="after", color=_INK, line_width=1.4, legend_label="what the group did")
    legend_below(plot)
    return plot


def _forecast(report: Report) -> Any:
    """Draw what was said an hour before over what came."""
    assert report.pairs is not None
    pairs, zone = report.pairs, ZoneInfo(report.series.grid.timezone)
    step = int(3600 // pairs.step_s[0]) - 1
    instants = pairs.origins + step * pairs.step_s
    at = [_local(datetime.fromtimestamp(float(t), UTC), zone) for t in instants]
    plot = figure(300, x_axis_type="datetime", y_axis_label="records/s")
    dated(plot)
    plot.varea(
        x=at,
        y1=pairs.expected[:, step, 1],
        y2=pairs.expected[:, step, 3],
        color="#a9cbec",
        legend_label="median to q95",
    )
    plot.line(at, pairs.expected[:, step, 1], color=_BLUE, legend_label="median")
    plot.line(at, pairs.came[:, step], color=_INK, line_width=1.2, legend_label="came")
    legend_below(plot)
    return plot


def _leads(document: dict[str, Any]) -> Any:
    leads = document["forecast"]["leads"]
    names = [_lead(f["lead_s"]) for f in leads]
    plot = figure(240, x_range=names)
    nan = float("nan")
    for key, colour in (("last value", _GREY), ("yesterday", _AMBER), ("last week", _RED)):
        values = [nan if f["naive_wape"].get(key) is None else f["naive_wape"][key] for f in leads]
        plot.line(names, values, color=colour, line_dash="dashed", legend_label=key)
    ours = [nan if f["wape"] is None else f["wape"] for f in leads]
    plot.line(names, ours, color=_BLUE, line_width=2, legend_label="Headway")
    plot.scatter(names, ours, color=_BLUE, size=7)
    plot.y_range.start = 0
    _in_percent(plot.yaxis[0])
    legend_below(plot)
    return plot


def _in_percent(axis: Any) -> None:
    axis.formatter = bokeh("models", "NumeralTickFormatter")(format="0 %")


def _reliability(document: dict[str, Any]) -> Any:
    """Draw which share of arrivals came at or below each level."""
    levels = document["forecast"]["reliability"]
    plot = figure(260, x_range=(0, 1.04), y_range=(0, 1.04), x_axis_label="level", y_axis_label="came at or below it")
    plot.line([0, 1], [0, 1], color=_GREY, line_dash="dashed")
    said, came = [float(level) for level in levels], list(levels.values())
    plot.line(said, came, color=_BLUE, line_width=2)
    plot.scatter(said, came, color=_BLUE, size=8)
    for axis in (plot.xaxis[0], plot.yaxis[0]):
        _in_percent(axis)
    return plot


def _hours(document: dict[str, Any]) -> Any:
    """Draw the error in each hour of the week; red where q95 covered less than 90 %."""
    rows = [row for row in document["forecast"]["hours"] if row["wape"] is not None]
    plot = figure(260, x_range=(0, 168), y_axis_label="WAPE")
    for colour, thin, name in ((_BLUE, False, "q95 held"), (_RED, True, "q95 covered less than 90 %")):
        chosen = [row for row in rows if (row["coverage"] < 0.9) is thin]
        at, tops = [row["hour"] + 0.5 for row in chosen], [row["wape"] for row in chosen]
        hatch = "right_diagonal_line" if thin else None
        plot.vbar(at, 0.9, tops, color=colour, legend_label=name, hatch_pattern=hatch, hatch_color="white")
    plot.y_range.start = 0
    plot.xaxis[0].ticker = [24 * day + 12 for day in range(7)]
    plot.xaxis[0].major_label_overrides = {24 * day + 12: name for day, name in enumerate(_DAYS)}
    _in_percent(plot.yaxis[0])
    legend_below(plot)
    return plot
