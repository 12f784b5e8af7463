"""A backtest as one self-contained page: tables, forecast bands over truth, errors by lead and hour, reliability.

bokeh's JavaScript is written into the page, so it opens without any network.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.accuracy import Scores
from forecaster.backtest import BacktestReport, MethodReport
from forecaster.series import ArrivalSeries

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")
"""Okabe and Ito: told apart with any colour vision."""


def write_page(path: Path, series: ArrivalSeries, report: BacktestReport) -> None:
    """Write the page.

    Parameters
    ----------
    path
        Where to; its folder must exist.
    series
        What was backtested.
    report
        What came of it; the first method is drawn in full, all of them are compared.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    from bokeh import embed
    from bokeh.layouts import column, row
    from bokeh.models.widgets import Div
    from bokeh.resources import INLINE

    first = next(iter(report.methods))
    method = report.methods[first]
    bands = [
        _band(
            series, method, place, f"{word} series: {report.names[place]} ({_number(method.series[place].mase)} MASE)"
        )
        for word, place in _chosen(method)
    ]
    heading = Div(text=f"<h1>Backtest of {html.escape(report.topic)}</h1><p>{_summary(report)}</p>{_table(report)}")
    body = column(
        heading,
        Div(text=f"<h2>{html.escape(first)} over the truth, last origin</h2>"),
        *bands,
        Div(text="<h2>All methods</h2>"),
        row(_by_lead(report), _reliability(report)),
        _by_hour(report),
        sizing_mode="stretch_width",
    )
    path.write_text(embed.file_html(body, INLINE, title=f"Backtest of {report.topic}"), encoding="utf-8")


def _chosen(method: MethodReport) -> list[tuple[str, int]]:
    """Return worst, median and best series by MASE (WAPE where there is none); fewer where there are fewer."""
    figures = [(s.mase if s.mase is not None else s.wape, i) for i, s in enumerate(method.series)]
    ranked = [i for v, i in sorted((v, i) for v, i in figures if v is not None)] or [0]
    named = {ranked[-1]: "Worst", ranked[len(ranked) // 2]: "Median", ranked[0]: "Best"}
    return [(word, place) for place, word in named.items()] if len(ranked) > 1 else [("Only", ranked[0])]


def _band(series: ArrivalSeries, method: MethodReport, place: int, title: str) -> Any:
    from bokeh.plotting import figure

    plot = figure(
        title=title, x_axis_type="datetime", height=260, y_axis_label="records/s", sizing_mode="stretch_width"
    )
    forecast = method.last
    steps = series.grid.steps_per_day
    horizon = 0 if forecast is None else forecast.steps
    start = max(series.first_index, series.end_index - horizon - 2 * steps)
    shown = series.between(start, series.end_index)
    truth = np.where(shown.known[place], shown.rates()[place], np.nan)
    plot.line(_times(series, start, shown.steps), truth, color="#000000", legend_label="truth", line_width=1.2)
    partition = series.partitions[place]
    if forecast is not None and partition in forecast.partitions:
        at = _times(series, series.end_index - horizon, horizon)
        rates = forecast.rates[forecast.partitions.index(partition)]
        middle = forecast.level_index(0.5)
        for k in range(len(forecast.levels) - 1, middle, -1):
            label = f"{forecast.levels[k]:g}"
            plot.varea(at, rates[:, middle], rates[:, k], color=COLOURS[0], alpha=0.18, legend_label=label)
        plot.line(at, rates[:, middle], color=COLOURS[0], line_width=2, legend_label="median")
    plot.legend.location = "top_left"
    plot.legend.orientation = "horizontal"
    return plot


def _times(series: ArrivalSeries, first: int, count: int) -> Any:
    return series.grid.starts(first, count).astype("datetime64[ms]")


def _by_lead(report: BacktestReport) -> Any:
    from bokeh.plotting import figure

    plot = figure(title="Error by lead", height=320, x_axis_label="hours ahead", y_axis_label=_unit(report))
    for colour, (name, method) in zip(COLOURS, report.methods.items(), strict=False):
        hours = (np.arange(len(method.by_lead)) + 1) * report.step_s / 3600
        plot.line(hours, _errors(method.by_lead), color=colour, legend_label=name, line_width=2)
    plot.legend.click_policy = "hide"
    return plot


def _by_hour(report: BacktestReport) -> Any:
    from bokeh.models import FixedTicker
    from bokeh.plotting import figure

    plot = figure(
        title="Error by local hour of the week", height=300, y_axis_label=_unit(report), sizing_mode="stretch_width"
    )
    for colour, (name, method) in zip(COLOURS, report.methods.items(), strict=False):
        plot.line(np.arange(168.0), _errors(method.by_hour), color=colour, legend_label=name, line_width=1.5)
    plot.xaxis.ticker = FixedTicker(ticks=[24 * d for d in range(7)])
    plot.xaxis.major_label_overrides = {
        24 * d: name for d, name in enumerate(("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"))
    }
    plot.legend.click_policy = "hide"
    return plot


def _reliability(report: BacktestReport) -> Any:
    from bokeh.plotting import figure

    plot = figure(
        title="Reliability: a point above the line covers more than it says",
        height=320,
        x_axis_label="quantile level",
        y_axis_label="share of truth at or below",
    )
    plot.line([0, 1], [0, 1], color="#999999", line_dash="dashed")
    for colour, (name, method) in zip(COLOURS, report.methods.items(), strict=False):
        pairs = [(q, c) for q, c in method.mean.coverage.items() if c is not None]
        levels, covered = [q for q, _ in pairs], [c for _, c in pairs]
        plot.line(levels, covered, color=colour, legend_label=name, line_width=2)
        plot.scatter(levels, covered, color=colour, size=7)
    plot.legend.location = "top_left"
    plot.legend.click_policy = "hide"
    return plot


def _unit(report: BacktestReport) -> str:
    scaled = any(m.mean.mase is not None for m in report.methods.values())
    return "error / day-seasonal naive's" if scaled else "WAPE"


def _errors(groups: Sequence[Scores]) -> list[float]:
    """Return MASE by group (WAPE where there is none); NaN is a gap in a line, and only there."""
    values = [s.mase if s.mase is not None else s.wape for s in groups]
    return [float("nan") if v is None else v for v in values]


def _summary(report: BacktestReport) -> str:
    hours = report.plan.horizon_steps * report.step_s / 3600
    return (
        f"{len(report.names)} series, step {report.step_s} s, {len(report.origins)} origins, horizon {hours:g} h. "
        "No method saw anything after its origin. MASE is scaled by the in-sample day-seasonal naive."
    )


def _table(report: BacktestReport) -> str:
    levels = [q for q in report.plan.levels if q > 0.5]
    head = ["method", "MASE", "WAPE", "sMAPE %", *(f"coverage {q:g}" for q in levels), "ms a series", "answered"]
    rows = [
        [
            html.escape(name),
            _number(m.mean.mase),
            _number(m.mean.wape),
            _number(m.mean.smape),
            *(_number(m.mean.coverage[q]) for q in levels),
            _number(m.seconds_per_series * 1000),
            f"{m.answered:.0%}",
        ]
        for name, m in report.methods.items()
    ]
    cells = "".join("<tr>" + "".join(f"<td style='padding:2px 10px'>{c}</td>" for c in r) + "</tr>" for r in rows)
    return "<table><tr>" + "".join(f"<th style='padding:2px 10px'>{h}</th>" for h in head) + f"</tr>{cells}</table>"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
