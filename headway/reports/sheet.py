"""The sheet that every report is written on: one self-contained HTML file, one style, one way to draw and tabulate.

It opens without any network, in a light and a dark room, on a phone and on paper. bokeh's core alone is written into
it, and only where something is drawn with it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

STYLE = Path(__file__).parents[1] / "page" / "report.css"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f", "#a6761d")
"""Okabe and Ito's, somewhat darker where white would swallow them: told apart with any colour vision."""


def bokeh(module: str, names: str) -> Any:
    """Return what is named of a module of bokeh, imported when it is needed; one thing, or a tuple of them."""
    found = import_module(f"bokeh.{module}")
    parts = tuple(getattr(found, name) for name in names.split())
    return parts if len(parts) > 1 else parts[0]


def sheet(title: str, body: str, head: str = "", script: str = "") -> str:
    """Return the page; ``head`` and ``script`` are what :func:`drawn` gave.

    Examples
    --------
    >>> page = sheet("Orders & more", "<p>Nothing was late.</p>")
    >>> "<title>Orders &amp; more</title>" in page, "http" in page
    (True, False)
    """
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE.read_text('utf-8')}</style>{head}</head><body><main>{body}</main>{script}</body></html>\n"
    )


def drawn(plots: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
    """Return each plot's place in the body by its name, what the head needs and the script that draws them."""
    Resources, components = bokeh("resources", "Resources"), bokeh("embed", "components")
    script, places = components(dict(plots))
    boxes = {name: f"<div class='plot'>{place}</div>" for name, place in places.items()}
    return boxes, Resources(mode="inline", components=["bokeh"]).render(), script


def figure(height: int, **options: Any) -> Any:
    """Return an empty plot as wide as its box; what it shows is said by a heading over it, which wraps on a phone."""
    plot = bokeh("plotting", "figure")(
        height=height, sizing_mode="stretch_width", tools="xpan,xwheel_zoom,box_zoom,reset,save",
        active_drag="box_zoom", toolbar_location="above", **options,
    )  # fmt: skip
    plot.outline_line_color = None
    plot.grid.grid_line_color = "#e3e6ea"
    for axis in plot.axis:
        styled(axis)
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    return plot


def styled(axis: Any) -> Any:
    """Return an axis as all of them look."""
    axis.minor_tick_line_color = None
    axis.axis_line_color = axis.major_tick_line_color = "#9aa7b3"
    axis.major_label_text_color = axis.axis_label_text_color = "#5b626b"
    axis.axis_label_text_font_style = "normal"
    return axis


def dated(plot: Any) -> None:
    """Write times as on the page: 08:00, and the day under midnight."""
    hours, days = "%H:%M", "%a %d %b"
    plot.xaxis[0].formatter = bokeh("models", "DatetimeTickFormatter")(
        minutes=hours, hourmin=hours, hours=hours, days=days, months="%b %Y", context=None
    )
    plot.xaxis[0].ticker.desired_num_ticks = 5


def legend_below(plot: Any) -> None:
    """Put the legend under the plot, where it hides nothing; a click takes a line away."""
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.orientation, legend.click_policy = "horizontal", "hide"
    legend.border_line_color = legend.background_fill_color = None
    legend.label_text_font_size, legend.ncols, legend.padding = "12px", 5, 2


def titled(title: str, plot: str) -> str:
    """Return a plot under its heading."""
    return f"<h3>{html.escape(title)}</h3>{plot}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than its text."""

    text: str
    kind: str = ""
    """``best`` or ``bad``; empty: as any other."""
    colour: str = ""
    """Of a mark before the text, as in the plots; empty: none."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], ours: str | None = None) -> str:
    """Return a table; a head that begins with ``#`` is a column of numbers, the row named ``ours`` stands out.

    Examples
    --------
    >>> print(table(["Policy", "#Late"], [["Headway", "0.1 %"]], ours="Headway"))
    <div class='scroll' tabindex='0'>
    <table><thead><tr><th scope='col'>Policy</th><th scope='col' class='n'>Late</th></tr></thead>
    <tbody><tr class='ours'><td>Headway</td><td class='n'>0.1 %</td></tr></tbody></table></div>
    """
    marks = [" class='n'" if h.startswith("#") else "" for h in heads]
    top = "".join(f"<th scope='col'{m}>{html.escape(h.lstrip('#'))}</th>" for h, m in zip(heads, marks, strict=True))
    lines = []
    for row in rows:
        whole = [c if isinstance(c, Cell) else Cell(c) for c in row]
        cells = "".join(f"<td{mark}>{_inner(c)}</td>" for c, mark in zip(whole, marks, strict=True))
        lines.append(f"<tr{' class=' + repr('ours') if whole[0].text == ours else ''}>{cells}</tr>")
    body = f"<thead><tr>{top}</tr></thead>\n<tbody>{''.join(lines)}</tbody>"
    return f"<div class='scroll' tabindex='0'>\n<table>{body}</table></div>"


def _inner(cell: Cell) -> str:
    dot = f"<i style='background:{cell.colour}'></i>" if cell.colour else ""
    text = html.escape(cell.text)
    return dot + (f"<b class='{cell.kind}'>{text}</b>" if cell.kind else text)
