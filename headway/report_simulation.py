"""A simulation as one self-contained HTML file: members over arrivals, late records, cost. Needs the extra ``page``."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from headway.simulation import Simulation

_COLOURS = ("#0b6e99", "#c2410c", "#6b7280", "#7c3aed", "#15803d", "#b45309", "#0f172a")


def write_report(path: Path, result: Simulation, title: str) -> None:
    """Write the report; its scripts are in the file, so that it opens offline."""
    from bokeh.embed import file_html
    from bokeh.layouts import column
    from bokeh.models import ColumnDataSource, LinearAxis, Range1d
    from bokeh.models.widgets.markups import Div
    from bokeh.models.widgets.tables import DataTable, TableColumn
    from bokeh.plotting import figure
    from bokeh.resources import INLINE

    world = result.world
    every = max(1, world.run_minutes // 4000)
    rate = world.arrivals[: world.run_minutes // every * every].reshape(-1, every).mean(axis=1) / 60
    start = np.datetime64(world.start.replace(tzinfo=None), "ms")
    at = start + np.arange(rate.size) * np.timedelta64(every * 60_000, "ms")
    plot = figure(
        title="Requested members over arrivals", x_axis_type="datetime", height=420, sizing_mode="stretch_width",
        tools="pan,wheel_zoom,box_zoom,reset,save", y_axis_label="members",
    )  # fmt: skip
    most = max(n for o in result.outcomes.values() for _, n in o.changes)
    top: Any = most * 1.1 + 1
    plot.y_range = Range1d(start=0, end=top)
    plot.extra_y_ranges = {"rate": Range1d(start=0, end=top * world.capacity)}
    plot.add_layout(LinearAxis(y_range_name="rate", axis_label="records/s"), "right")
    plot.varea(x=at, y1=np.zeros(rate.size), y2=rate, y_range_name="rate", color="#94a3b8", alpha=0.35)
    for (name, outcome), colour in zip(result.outcomes.items(), _COLOURS, strict=False):
        times = [t.replace(tzinfo=None) for t, _ in outcome.changes] + [world.end.replace(tzinfo=None)]
        sizes = [n for _, n in outcome.changes] + [outcome.changes[-1][1]]
        plot.step(x=times, y=sizes, mode="after", color=colour, legend_label=name, line_width=1.5)
    plot.legend.click_policy = "hide"
    plot.legend.location = "top_left"
    names = list(result.outcomes)
    figures: dict[str, Any] = {
        "policy": names,
        "late": [f"{100 * result.outcomes[n].late_share:.4f} %" for n in names],
        "p99": [_seconds(result.outcomes[n].p99_s) for n in names],
        "hours": [f"{result.outcomes[n].hours:,.1f}" for n in names],
        "changes": [f"{result.outcomes[n].rescales_per_day:.1f}" for n in names],
        "limit": [f"{result.outcomes[n].hours_vs_limit:.3f}" for n in names],
        "notes": ["; ".join(result.outcomes[n].notes) for n in names],
    }
    heads = {
        "policy": "policy", "late": "late records", "p99": "p99 latency", "hours": "member-hours",
        "changes": "changes a day", "limit": "hours / clairvoyant limit", "notes": "tuned or learned",
    }  # fmt: skip
    table = DataTable(
        source=ColumnDataSource(figures),
        columns=[TableColumn(field=key, title=text) for key, text in heads.items()],
        sizing_mode="stretch_width",
        height=40 + 28 * len(names),
        index_position=None,
    )
    intro = Div(
        text=f"<h1>{html.escape(title)}</h1><p>{world.start:%Y-%m-%d %H:%M} to {world.end:%Y-%m-%d %H:%M} UTC, "
        f"capacity {world.capacity:g} records/s, start time {world.start_s:g} s, pause {world.pause_s:g} s, "
        f"SLO {world.slo_s:g} s. Everything a policy knows lies before the run.</p>"
    )
    page = file_html(column(intro, table, plot, sizing_mode="stretch_width"), INLINE, title=f"Simulation of {title}")
    path.write_text(page, encoding="utf-8")


def _seconds(value: float | None) -> str:
    return "never served" if value is None else f"{value:.1f} s"
