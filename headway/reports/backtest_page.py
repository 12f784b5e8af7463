"""A backtest as one self-contained page: tables, forecast bands over truth, errors by lead and hour, reliability."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.accuracy import Scores
from forecaster.backtest import BacktestReport, MethodReport
from forecaster.periods import Period
from forecaster.series import ArrivalSeries
from headway.reports.sheet import COLOURS, Cell, bokeh, drawn, figure, legend_below, sheet, table, titled

DASHES = ("solid", "dashed", "dotted", "dotdash")
"""Lines are told apart without any colour too."""

BEFORE_DAYS = 3
"""Days of truth shown before the forecast begins."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


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
    name, method = next(iter(report.methods.items()))
    chosen = _chosen(method)
    bands = {word: _band(series, method, place) for word, place in chosen}
    plots = {"lead": _by_lead(report), "reliability": _reliability(report), "hour": _by_hour(report)}
    boxes, head, script = drawn({**bands, **plots})
    title = f"Backtest of {report.topic}"
    figures = {word: method.series[place] for word, place in chosen}
    over_truth = "".join(
        titled(
            f"{word} series: {report.names[place]} · MASE {_number(figures[word].mase)}, "
            f"WAPE {_percent(figures[word].wape)}",
            boxes[word],
        )
        for word, place in chosen
    )
    body = f"""<h1>{html.escape(title)}</h1>
<p class="quiet">{_summary(report)}</p><p class="quiet">{_periods(periods)}</p>
{_tiles(name, method, report)}
<h2>Methods</h2>{_table(report)}<p class="quiet">{_reading()}</p>
<h2>{html.escape(name)} over the truth, last origin</h2>{over_truth}
<h2>Where the error is</h2>
<div class="pair"><div>{titled("Error by lead time", boxes["lead"])}</div>
<div>{titled("Reliability: above the line covers more than it says", boxes["reliability"])}</div></div>
{titled("Error by local hour of the week", boxes["hour"])}
{_leads(report)}{_notes(report)}"""
    path.write_text(sheet(title, body, head, script), encoding="utf-8")


def _chosen(method: MethodReport) -> list[tuple[str, int]]:
    """Return worst, median and best series by MASE (WAPE where there is none); fewer where there are fewer."""
    figures = [(s.mase if s.mase is not None else s.wape, i) for i, s in enumerate(method.series)]
    ranked = [i for v, i in sorted((v, i) for v, i in figures if v is not None)] or [0]
    named = {ranked[-1]: "Worst", ranked[len(ranked) // 2]: "Median", ranked[0]: "Best"}
    return [(word, place) for place, word in named.items()] if len(ranked) > 1 else [("Only", ranked[0])]


def _band(series: ArrivalSeries, method: MethodReport, place: int) -> Any:
    HoverTool, NumeralTickFormatter, Span = bokeh("models", "HoverTool NumeralTickFormatter Span")

    plot = figure(270, x_axis_type="datetime", y_axis_label="records/s")
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
    legend_below(plot)
    return plot


def _times(series: ArrivalSeries, first: int, count: int) -> Any:
    """Return wall-clock starts: a reader thinks in the hours of the stream's own zone."""
    return (series.grid.local_seconds(first, count) * 1000).astype("datetime64[ms]")


def _by_lead(report: BacktestReport) -> Any:
    plot = figure(320, x_axis_label="hours ahead", y_axis_label=_unit(report))
    for k, (name, method) in enumerate(report.methods.items()):
        hours = (np.arange(len(method.by_lead)) + 1) * report.step_s / 3600
        plot.line(hours, _errors(method.by_lead), legend_label=name, line_width=2, **_pen(k))
    plot.y_range.start = 0
    legend_below(plot)
    return plot


def _by_hour(report: BacktestReport) -> Any:
    BoxAnnotation, FixedTicker = bokeh("models", "BoxAnnotation FixedTicker")

    plot = figure(320, y_axis_label=_unit(report))
    for day in range(1, 7, 2):
        plot.add_layout(BoxAnnotation(left=24 * day, right=24 * day + 24, fill_color="#9aa7b3", fill_alpha=0.1))
    for k, (name, method) in enumerate(report.methods.items()):
        plot.line(np.arange(168.0), _errors(method.by_hour), legend_label=name, line_width=1.6, **_pen(k))
    plot.xaxis.ticker = FixedTicker(ticks=[24 * d + 12 for d in range(7)])
    plot.xaxis.major_label_overrides = {24 * d + 12: name for d, name in enumerate(DAYS)}
    plot.xgrid.grid_line_color = None
    plot.x_range.range_padding = 0.0
    plot.y_range.start = 0
    legend_below(plot)
    return plot


def _reliability(report: BacktestReport) -> Any:
    NumeralTickFormatter = bokeh("models", "NumeralTickFormatter")

    plot = figure(320, x_axis_label="quantile level", y_axis_label="share of truth at or below it")
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
    legend_below(plot)
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
    cells = "".join(f"<div><b>{v}</b><span>{html.escape(text)}</span></div>" for v, text in tiles)
    return f"<div class='tiles'>{cells}</div>"


def _table(report: BacktestReport) -> str:
    levels = [q for q in report.plan.levels if q > 0.5]
    head = ["method", "#MASE", "#WAPE", "#sMAPE %", *(f"#coverage {q:g}" for q in levels), "#ms a series", "#answered"]
    picks: tuple[Callable[[MethodReport], float | None], ...] = (
        lambda m: m.mean.mase,
        lambda m: m.mean.wape,
        lambda m: m.mean.smape,
    )
    best = [min((v for m in report.methods.values() if (v := pick(m)) is not None), default=None) for pick in picks]
    rows: list[list[str | Cell]] = []
    for k, (name, m) in enumerate(report.methods.items()):
        errors = [
            Cell(_number(v), "best" if v is not None and v == least else "")
            for v, least in zip((m.mean.mase, m.mean.wape, m.mean.smape), best, strict=True)
        ]
        rest = [*(_number(m.mean.coverage[q]) for q in levels), _number(m.seconds_per_series * 1000)]
        rows.append([Cell(name, colour=_pen(k)["color"]), *errors, *rest, f"{m.answered:.0%}"])
    return table(head, rows)


def _reading() -> str:
    return (
        "MASE is the mean absolute error in units of the in-sample day-seasonal naive's: below 1 is better than "
        "repeating yesterday was. Coverage should equal its level; less is late records, more is idle members."
    )


def _leads(report: BacktestReport) -> str:
    if not report.plan.lead_steps:
        return ""
    levels = [q for q in report.plan.levels if q > 0.5]
    heads = ["lead", "method", "#WAPE", *(f"#coverage {q:g}" for q in levels)]
    rows = [
        [f"{lead * report.step_s / 60:g} min", name, _number(m.leads[lead].wape)]
        + [_number(m.leads[lead].coverage[q]) for q in levels]
        for lead in report.plan.lead_steps
        for name, m in report.methods.items()
    ]
    return f"<h2>At single leads</h2>{table(heads, rows)}"


def _notes(report: BacktestReport) -> str:
    said = [f"{name}: {reason}" for name, m in report.methods.items() for reason in m.reasons[:5]]
    lines = "".join(f"<li>{html.escape(text)}</li>" for text in said)
    return f"<h2>Notes</h2><ul class='quiet'>{lines}</ul>" if said else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
