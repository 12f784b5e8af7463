"""A backtest as one self-contained page: tables, forecast bands over truth, errors by lead and hour, reliability.

bokeh's JavaScript is written into the page, so it opens without any network, in a light and a dark room.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.accuracy import Scores
from forecaster.backtest import BacktestReport, MethodReport
from forecaster.periods import Period
from forecaster.series import ArrivalSeries

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b")
"""Okabe and Ito: told apart with any colour vision; the last two in place of its black."""

DASHES = ("solid", "dashed", "dotted", "dotdash")
"""Lines are told apart without any colour too."""

BEFORE_DAYS = 3
"""Days of truth shown before the forecast begins."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

STYLE = """
:root{--ink:#1b2733;--soft:#5b6b7b;--line:#dde3e9;--paper:#fff;--ground:#f4f6f8;--best:#0072b2}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px} h2{font-size:18px;margin:34px 0 10px} p{margin:4px 0;color:var(--soft);max-width:80ch}
.card{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:14px;margin:10px 0}
.card{overflow-x:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:12px}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:10px 16px;min-width:130px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums} .tile span{color:var(--soft);font-size:13px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);font-size:13px;border-bottom:1px solid var(--line)}
th,td{padding:5px 12px;text-align:right;white-space:nowrap} th:first-child,td:first-child{text-align:left}
tbody tr:hover{background:var(--ground)} td.best{color:var(--best);font-weight:700}
i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px}
ul{margin:6px 0;color:var(--soft)}
@media (prefers-color-scheme:dark){:root{--ink:#e8edf2;--soft:#9fb0c0;--line:#2c3947;--ground:#10161d;--best:#56b4e9}
:root{--paper:#18212b}.plot{background:#fff;border-radius:6px;padding:6px}}
"""


def write_page(path: Path, series: ArrivalSeries, report: BacktestReport, periods: Sequence[Period] = ()) -> None:
    """Write the page.

    Parameters
    ----------
    path
        Where to; its folder must exist.
    series
        What was backtested.
    report
        What came of it; the first method is drawn in full, all of them are compared.
    periods
        Periods that the data show.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    components = _bokeh("embed", "components")
    INLINE = _bokeh("resources", "INLINE")

    name, method = next(iter(report.methods.items()))
    bands = [_band(series, method, word, place, report.names[place]) for word, place in _chosen(method)]
    plots = [*bands, _by_lead(report), _reliability(report), _by_hour(report)]
    script, places = components(plots, wrap_script=True)
    drawn = [f"<div class='plot'>{place}</div>" for place in places]
    title = html.escape(f"Backtest of {report.topic}")
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style>{INLINE.render()}</head>
<body><main><h1>{title}</h1><p>{_summary(report)}</p><p>{_periods(periods)}</p>{_tiles(name, method, report)}
<h2>Methods</h2><div class="card">{_table(report)}</div>
<p>{_reading()}</p>
<h2>{html.escape(name)} over the truth, last origin</h2>
{"".join(f"<div class='card'>{plot}</div>" for plot in drawn[: len(bands)])}
<h2>Where the error is</h2>
<div class="pair"><div class="card">{drawn[-3]}</div><div class="card">{drawn[-2]}</div></div>
<div class="card">{drawn[-1]}</div>
{_leads(report)}{_notes(report)}</main>{script}</body></html>"""
    path.write_text(page, encoding="utf-8")


def _bokeh(module: str, names: str) -> Any:
    """Return what is named of a module of bokeh, imported when it is needed; one thing, or a tuple of them."""
    found = import_module(f"bokeh.{module}")
    parts = tuple(getattr(found, name) for name in names.split())
    return parts if len(parts) > 1 else parts[0]


def _chosen(method: MethodReport) -> list[tuple[str, int]]:
    """Return worst, median and best series by MASE (WAPE where there is none); fewer where there are fewer."""
    figures = [(s.mase if s.mase is not None else s.wape, i) for i, s in enumerate(method.series)]
    ranked = [i for v, i in sorted((v, i) for v, i in figures if v is not None)] or [0]
    named = {ranked[-1]: "Worst", ranked[len(ranked) // 2]: "Median", ranked[0]: "Best"}
    return [(word, place) for place, word in named.items()] if len(ranked) > 1 else [("Only", ranked[0])]


def _figure(title: str, height: int, **options: Any) -> Any:
    WheelZoomTool = _bokeh("models", "WheelZoomTool")
    figure = _bokeh("plotting", "figure")

    plot = figure(
        title=title, height=height, sizing_mode="stretch_width", tools="pan,xwheel_zoom,box_zoom,reset,save",
        active_drag="box_zoom", toolbar_location="above", **options,
    )  # fmt: skip
    plot.title.text_font_size = "15px"
    plot.title.text_color = "#1b2733"
    plot.outline_line_color = None
    plot.grid.grid_line_color = "#e6eaee"
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = "#9aa7b3"
    plot.axis.minor_tick_line_color = None
    plot.axis.major_label_text_color = plot.axis.axis_label_text_color = "#5b6b7b"
    plot.axis.axis_label_text_font_style = "normal"
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    assert plot.select(WheelZoomTool)
    return plot


def _legend(plot: Any) -> None:
    """Put the legend under the plot, where it hides nothing; a click takes a line away."""
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.orientation, legend.click_policy = "horizontal", "hide"
    legend.border_line_color = legend.background_fill_color = None
    legend.label_text_font_size, legend.ncols, legend.padding = "12px", 5, 2


def _band(series: ArrivalSeries, method: MethodReport, word: str, place: int, name: str) -> Any:
    HoverTool, NumeralTickFormatter, Span = _bokeh("models", "HoverTool NumeralTickFormatter Span")

    figures = method.series[place]
    plot = _figure(
        f"{word} series: {name} · MASE {_number(figures.mase)}, WAPE {_percent(figures.wape)}",
        270, x_axis_type="datetime", y_axis_label="records/s",
    )  # fmt: skip
    plot.yaxis.formatter = NumeralTickFormatter(format="0[.]0[00] a")
    plot.y_range.start = 0
    forecast = method.last
    horizon = 0 if forecast is None else forecast.steps
    start = max(series.first_index, series.end_index - horizon - BEFORE_DAYS * series.grid.steps_per_day)
    shown = series.between(start, series.end_index)
    truth = np.where(shown.known[place], shown.rates()[place], np.nan)
    partition = series.partitions[place]
    if forecast is not None and partition in forecast.partitions:
        at = _times(series, series.end_index - horizon, horizon)
        rates = forecast.rates[forecast.partitions.index(partition)]
        middle = forecast.level_index(0.5)
        for k in range(len(forecast.levels) - 1, middle, -1):
            label = f"to the {forecast.levels[k]:g} quantile"
            plot.varea(at, rates[:, middle], rates[:, k], color=COLOURS[0], alpha=0.16, legend_label=label)
        median = plot.line(at, rates[:, middle], color=COLOURS[0], line_width=2.2, legend_label="median forecast")
        tips = [("at", "$x{%a %d %b %H:%M}"), ("median", "$y{0[.]000}")]
        plot.add_tools(HoverTool(renderers=[median], tooltips=tips, formatters={"$x": "datetime"}))
        plot.add_layout(Span(location=at[0], dimension="height", line_color="#9aa7b3", line_dash="dashed"))
    plot.line(_times(series, start, shown.steps), truth, color="#1b2733", legend_label="truth", line_width=1.4)
    _legend(plot)
    return plot


def _times(series: ArrivalSeries, first: int, count: int) -> Any:
    """Return wall-clock starts: a reader thinks in the hours of the stream's own zone."""
    return (series.grid.local_seconds(first, count) * 1000).astype("datetime64[ms]")


def _by_lead(report: BacktestReport) -> Any:
    plot = _figure("Error by lead time", 320, x_axis_label="hours ahead", y_axis_label=_unit(report))
    for k, (name, method) in enumerate(report.methods.items()):
        hours = (np.arange(len(method.by_lead)) + 1) * report.step_s / 3600
        plot.line(hours, _errors(method.by_lead), legend_label=name, line_width=2, **_pen(k))
    plot.y_range.start = 0
    _legend(plot)
    return plot


def _by_hour(report: BacktestReport) -> Any:
    BoxAnnotation, FixedTicker = _bokeh("models", "BoxAnnotation FixedTicker")

    plot = _figure("Error by local hour of the week", 320, y_axis_label=_unit(report))
    for day in range(1, 7, 2):
        plot.add_layout(BoxAnnotation(left=24 * day, right=24 * day + 24, fill_color="#9aa7b3", fill_alpha=0.1))
    for k, (name, method) in enumerate(report.methods.items()):
        plot.line(np.arange(168.0), _errors(method.by_hour), legend_label=name, line_width=1.6, **_pen(k))
    plot.xaxis.ticker = FixedTicker(ticks=[24 * d + 12 for d in range(7)])
    plot.xaxis.major_label_overrides = {24 * d + 12: name for d, name in enumerate(DAYS)}
    plot.xgrid.grid_line_color = None
    plot.x_range.range_padding = 0.0
    plot.y_range.start = 0
    _legend(plot)
    return plot


def _reliability(report: BacktestReport) -> Any:
    NumeralTickFormatter = _bokeh("models", "NumeralTickFormatter")

    plot = _figure(
        "Reliability: above the line covers more than it says",
        320, x_axis_label="quantile level", y_axis_label="share of truth at or below it",
    )  # fmt: skip
    seen = [c for m in report.methods.values() for c in m.mean.coverage.values() if c is not None]
    low = min([*report.plan.levels, *seen], default=0.0)
    plot.line([low, 1], [low, 1], color="#9aa7b3", line_dash="dashed", legend_label="as it says")
    for k, (name, method) in enumerate(report.methods.items()):
        pairs = [(q, c) for q, c in method.mean.coverage.items() if c is not None]
        levels, covered = [q for q, _ in pairs], [c for _, c in pairs]
        pen = _pen(k)
        plot.line(levels, covered, legend_label=name, line_width=2, **pen)
        plot.scatter(levels, covered, color=pen["color"], size=7, legend_label=name)
    plot.axis.formatter = NumeralTickFormatter(format="0%")
    _legend(plot)
    return plot


def _pen(k: int) -> dict[str, str]:
    return {"color": COLOURS[k % len(COLOURS)], "line_dash": DASHES[k // 2 % len(DASHES)]}


def _unit(report: BacktestReport) -> str:
    scaled = any(m.mean.mase is not None for m in report.methods.values())
    return "MASE" if scaled else "WAPE"


def _errors(groups: Sequence[Scores]) -> list[float]:
    """Return MASE by group (WAPE where there is none); NaN is a gap in a line, and only there."""
    values = [s.mase if s.mase is not None else s.wape for s in groups]
    return [float("nan") if v is None else v for v in values]


def _summary(report: BacktestReport) -> str:
    hours = report.plan.horizon_steps * report.step_s / 3600
    origins = len(report.origins)
    return (
        f"{len(report.names)} series in steps of {report.step_s:,} s, {origins} origin{'s' * (origins > 1)}, "
        f"horizon {hours:g} h. No method saw anything after its origin."
    )


def _periods(periods: Sequence[Period]) -> str:
    if not periods:
        return "The data show no period."
    said = ", ".join(f"{p.hours:g} h ({p.share:.0%} of what was left to explain)" for p in periods)
    return f"Periods that the data show: {said}."


def _tiles(name: str, method: MethodReport, report: BacktestReport) -> str:
    level = max((q for q in report.plan.levels if q > 0.5), default=None)
    tiles = [
        (_number(method.mean.mase), f"MASE of {name}"),
        (_percent(method.mean.wape), "WAPE"),
        ("-" if level is None else _percent(method.mean.coverage[level]), f"covered by the {level or 0:g} quantile"),
        (_number(method.seconds_per_series * 1000), "ms a series and origin"),
        (f"{method.answered:.0%}", "of origins answered"),
    ]
    cells = "".join(f"<div class='tile'><b>{v}</b><span>{html.escape(text)}</span></div>" for v, text in tiles)
    return f"<div class='tiles'>{cells}</div>"


def _table(report: BacktestReport) -> str:
    levels = [q for q in report.plan.levels if q > 0.5]
    head = ["method", "MASE", "WAPE", "sMAPE %", *(f"coverage {q:g}" for q in levels), "ms a series", "answered"]
    picks: tuple[Callable[[MethodReport], float | None], ...] = (
        lambda m: m.mean.mase,
        lambda m: m.mean.wape,
        lambda m: m.mean.smape,
    )
    best = [min((v for m in report.methods.values() if (v := pick(m)) is not None), default=None) for pick in picks]
    rows = []
    for k, (name, m) in enumerate(report.methods.items()):
        errors = [
            f"<td{' class=best' if v is not None and v == least else ''}>{_number(v)}</td>"
            for v, least in zip((m.mean.mase, m.mean.wape, m.mean.smape), best, strict=True)
        ]
        rest = [*(_number(m.mean.coverage[q]) for q in levels), _number(m.seconds_per_series * 1000)]
        cells = "".join(f"<td>{c}</td>" for c in [*rest, f"{m.answered:.0%}"])
        dot = f"<i style='background:{_pen(k)['color']}'></i>"
        rows.append(f"<tr><td>{dot}{html.escape(name)}</td>{''.join(errors)}{cells}</tr>")
    titles = "".join(f"<th scope='col'>{h}</th>" for h in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _reading() -> str:
    return (
        "MASE is the mean absolute error in units of the in-sample day-seasonal naive's: below 1 is better than "
        "repeating yesterday was. Coverage should equal its level; less is late records, more is idle members."
    )


def _leads(report: BacktestReport) -> str:
    if not report.plan.lead_steps:
        return ""
    levels = [q for q in report.plan.levels if q > 0.5]
    head = "".join(
        f"<th scope='col'>{h}</th>" for h in ("lead", "method", "WAPE", *(f"coverage {q:g}" for q in levels))
    )
    rows = "".join(
        f"<tr><td>{lead * report.step_s / 60:g} min</td><td>{html.escape(name)}</td>"
        f"<td>{_number(m.leads[lead].wape)}</td>"
        + "".join(f"<td>{_number(m.leads[lead].coverage[q])}</td>" for q in levels)
        + "</tr>"
        for lead in report.plan.lead_steps
        for name, m in report.methods.items()
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>At single leads</h2><div class='card'>{table}</div>"


def _notes(report: BacktestReport) -> str:
    said = [f"{name}: {reason}" for name, m in report.methods.items() for reason in m.reasons[:5]]
    lines = "".join(f"<li>{html.escape(text)}</li>" for text in said)
    return f"<h2>Notes</h2><div class='card'><ul>{lines}</ul></div>" if said else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
