"""A simulation as one self-contained HTML file: members over arrivals, late records, cost.

Plain SVG, nothing fetched from elsewhere; readable on a phone, on paper and in the dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from balancer.simulator.outcome import Outcome
from headway.reports.sheet import COLOURS, Cell, sheet, table
from headway.reports.simulation import Simulation

LATE_TARGET = 1e-4
"""Share of late records beyond which a policy's figure is marked."""
SHOWN = 3
"""Curves that are drawn at first; the others wait in the legend."""
_WIDTH, _HEIGHT, _LATE, _LEFT, _RIGHT = 1120, 340, 130, 52, 72
_POINTS = 2000


def write_report(path: Path, result: Simulation, title: str, price: float | None = None) -> None:
    """Write the report.

    Parameters
    ----------
    path
        Where to; its folder must exist.
    result
        What was simulated.
    title
        Name of the stream.
    price
        Money per member-hour; None leaves cost to member-hours.
    """
    world = result.world
    names = list(result.outcomes)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class=quiet>{world.start:%Y-%m-%d %H:%M} to {world.end:%Y-%m-%d %H:%M} UTC</p>",
        f"<p class=lead>{html.escape(_sentence(result, price))}</p>",
        _table(result, names, price),
        "<h2>Requested members over arrivals</h2>",
        _legend(names),
        _members(result, names),
        "<h2>Late records by hour of arrival</h2>",
        _late(result, names),
        f"<p class=quiet>One member carries {world.capacity:g} records/s and works {world.start_s:g} s after its "
        f"request; each change stalls {'what moves' if world.pause_moved_only else 'the group'} for {world.pause_s:g} "
        f"s; a record is late beyond {world.slo_s:g} s. Whatever a policy knows lies before the run: knobs and rivals' "
        "settings were learned there. The limit is the cheapest path that knows the future, at 24 changes a day.</p>",
    ]
    path.write_text(sheet(f"Simulation of {title}", "\n".join(body), script=_SCRIPT), encoding="utf-8")


def _sentence(result: Simulation, price: float | None) -> str:
    """Say in a sentence what came of it."""
    name = "headway" if "headway" in result.outcomes else next(iter(result.outcomes))
    ours = result.outcomes[name]
    cost = "" if price is None else f" at a cost of {price * ours.hours:,.2f}"
    text = f"{name}: {ours.hours:,.0f} member-hours{cost}, {_share(ours.late_share)} of the records late, "
    text += f"{ours.rescales_per_day:.1f} changes a day"
    peak = result.outcomes.get("static_peak")
    if peak is not None and peak is not ours and peak.hours > 0:
        text += f"; {1 - ours.hours / peak.hours:.0%} less than static peak".replace("%", " %")
    return text + "."


def _table(result: Simulation, names: Sequence[str], price: float | None) -> str:
    heads = ["policy", "#late", "#p50", "#p99", "#p99.9", "#member-hours", "#÷ limit", "#changes a day"]
    heads += ["#cost"] if price is not None else []
    heads += ["tuned or learned"]
    rows: list[list[str | Cell]] = []
    for name, colour in zip(names, _colours(names), strict=True):
        o = result.outcomes[name]
        row: list[str | Cell] = [
            Cell(name, colour=colour),
            Cell(_share(o.late_share), "bad" if o.late_share > LATE_TARGET else ""),
            *(_seconds(v) for v in (o.p50_s, o.p99_s, o.p999_s)),
            f"{o.hours:,.1f}",
            "" if o.hours_vs_limit is None else f"{o.hours_vs_limit:.3f}",
            f"{o.rescales_per_day:.1f}",
        ]
        rows.append([*row, *([f"{price * o.hours:,.2f}"] if price is not None else []), "; ".join(o.notes)])
    return table(heads, rows, ours="headway")


def _legend(names: Sequence[str]) -> str:
    boxes = [
        f'<label><input type=checkbox data-of="{html.escape(n)}"{" checked" if k < SHOWN else ""}>'
        f'<i style="background:{colour}"></i>{html.escape(n)}</label>'
        for k, (n, colour) in enumerate(zip(names, _colours(names), strict=True))
    ]
    return f"<div class=legend>{''.join(boxes)}<label><i class=area></i>arrivals, in members</label></div>"


def _members(result: Simulation, names: Sequence[str]) -> str:
    """Draw each policy's steps over the arrivals, both in members: where a step lies below the area, records wait."""
    world = result.world
    every = max(1, -(-world.run_minutes // _POINTS))
    whole = world.arrivals[: max(world.run_minutes // every, 1) * every].reshape(-1, every).mean(axis=1)
    load = whole / 60 / world.capacity
    most = max(max(n for o in result.outcomes.values() for _, n in o.changes), float(load.max())) * 1.08
    minutes = (np.arange(load.size) + 0.5) * every
    area = " ".join(
        f"{_x(m, world.run_minutes):.1f},{_y(v, most, _HEIGHT):.1f}" for m, v in zip(minutes, load, strict=True)
    )
    left, right = _x(minutes[0], world.run_minutes), _x(minutes[-1], world.run_minutes)
    parts = [_axes(result, most, _HEIGHT, "members")]
    parts.append(f'<polygon class=area points="{left:.1f},{_HEIGHT} {area} {right:.1f},{_HEIGHT}"/>')
    for k, (name, colour) in enumerate(zip(names, _colours(names), strict=True)):
        hidden = "" if k < SHOWN else " style=display:none"
        path = _steps(result.outcomes[name], result, most)
        parts.append(f'<path class=curve data-of="{html.escape(name)}"{hidden} stroke="{colour}" d="{path}"/>')
    parts.append(f"<line class=hair x1=0 x2=0 y1=8 y2={_HEIGHT} visibility=hidden />")
    hover = {
        n: [[int((t - world.start).total_seconds()) // 60, size] for t, size in result.outcomes[n].changes]
        for n in names
    }
    data = {
        "start": world.start.isoformat(),
        "minutes": world.run_minutes,
        "every": every,
        "load": [round(float(v), 2) for v in load],
        "changes": hover,
        "left": _LEFT,
        "width": _WIDTH - _LEFT - _RIGHT,
    }
    text = json.dumps(data).replace("<", "\\u003c")
    return (
        _svg(parts, _HEIGHT)
        + f'<p id=readout class=quiet>&nbsp;</p><script type="application/json" id=data>{text}</script>'
    )


def _late(result: Simulation, names: Sequence[str]) -> str:
    """Draw late records per hour as a share of that hour's arrivals; nothing to draw is said in words."""
    hours = max(o.late_per_hour.size for o in result.outcomes.values())
    world = result.world
    padded = np.zeros(hours * 60)
    padded[: world.run_minutes] = world.arrivals[: hours * 60]
    arrived = np.maximum(padded.reshape(hours, 60).sum(axis=1), 1.0)
    shares: dict[str, NDArray[np.float64]] = {}
    for name in names:
        late = result.outcomes[name].late_per_hour
        if late.size and float(late.sum()) > 0:
            shares[name] = np.pad(late, (0, hours - late.size)) / arrived * 100
    if not shares:
        return "<p class=good>No record was late under any policy.</p>"
    most = max(float(s.max()) for s in shares.values()) * 1.08
    parts = [_axes(result, most, _LATE, "% late")]
    for k, (name, colour) in enumerate(zip(names, _colours(names), strict=True)):
        if name not in shares:
            continue
        hidden = "" if k < SHOWN else " style=display:none"
        bars = "".join(
            f"M{_x(h * 60 + 30, world.run_minutes):.1f} {_LATE}V{_y(v, most, _LATE):.1f}"
            for h, v in enumerate(shares[name].tolist())
            if v > 0
        )
        parts.append(f'<path class=bars data-of="{html.escape(name)}"{hidden} stroke="{colour}" d="{bars}"/>')
    on_time = [n for n in names if n not in shares]
    said = f"<p class=good>No late record: {html.escape(', '.join(on_time))}.</p>" if on_time else ""
    return _svg(parts, _LATE) + said


def _axes(result: Simulation, most: float, height: int, unit: str) -> str:
    world = result.world
    step = next(s for s in (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e9) if most / s <= 6)
    parts = []
    value = 0.0
    while value <= most:
        y = _y(value, most, height)
        parts.append(f"<line class=grid x1={_LEFT} x2={_WIDTH - _RIGHT} y1={y:.1f} y2={y:.1f} />")
        parts.append(f"<text x={_LEFT - 8} y={y + 4:.1f} text-anchor=end>{value:g}</text>")
        value += step
    parts.append(f"<text x={_WIDTH - _RIGHT + 8} y=16>{unit}</text>")
    days = world.run_minutes / 1440
    gap = (
        timedelta(hours=2)
        if days <= 1
        else timedelta(hours=6)
        if days <= 3
        else timedelta(days=max(1, round(days / 10)))
    )
    tick = world.start.replace(hour=0, minute=0, second=0, microsecond=0)
    while tick < world.start:
        tick += gap
    while tick <= world.end:
        x = _x((tick - world.start).total_seconds() / 60, world.run_minutes)
        text = f"{tick:%H:%M}" if gap < timedelta(days=1) and tick.hour else f"{tick:%a %d %b}"
        parts.append(f"<line class=grid x1={x:.1f} x2={x:.1f} y1=8 y2={height} />")
        parts.append(f"<text x={x:.1f} y={height + 18} text-anchor=middle>{text}</text>")
        tick += gap
    return "".join(parts)


def _steps(outcome: Outcome, result: Simulation, most: float) -> str:
    world = result.world
    path = ""
    for at, size in outcome.changes:
        x = _x((at - world.start).total_seconds() / 60, world.run_minutes)
        y = _y(size, most, _HEIGHT)
        path += f"M{x:.1f} {y:.1f}" if not path else f"H{x:.1f}V{y:.1f}"
    return path + f"H{_WIDTH - _RIGHT}"


def _x(minute: float, minutes: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * minute / max(minutes, 1)


def _y(value: float, most: float, height: int) -> float:
    return height - (height - 8) * value / max(most, 1e-9)


def _svg(parts: Sequence[str], height: int) -> str:
    drawing = "".join(parts)
    return f'<div class=drawing><svg viewBox="0 0 {_WIDTH} {height + 28}" role=img>{drawing}</svg></div>'


def _colours(names: Sequence[str]) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(len(names))]


def _share(share: float) -> str:
    return f"{100 * share:.4f} %" if share < 0.001 else f"{100 * share:.2f} %"


def _seconds(value: float | None) -> str:
    return "never served" if value is None else f"{value:.1f} s"


_SCRIPT = """<script>
const d=JSON.parse(document.getElementById("data").textContent),svg=document.querySelector("svg"),
hair=svg.querySelector(".hair"),out=document.getElementById("readout"),boxes=[...document.querySelectorAll("[type=checkbox]")];
boxes.forEach(b=>b.onchange=()=>document.querySelectorAll("path[data-of]").forEach(p=>{
if(p.dataset.of===b.dataset.of)p.style.display=b.checked?"":"none"}));
svg.onmousemove=e=>{const r=svg.getBoundingClientRect(),x=(e.clientX-r.left)/r.width*svg.viewBox.baseVal.width,
m=(x-d.left)/d.width*d.minutes;if(m<0||m>d.minutes)return;
hair.setAttribute("x1",x);hair.setAttribute("x2",x);hair.setAttribute("visibility","visible");
const at=new Date(Date.parse(d.start)+m*6e4).toISOString().slice(0,16).replace("T"," ");
const load=d.load[Math.min(Math.floor(m/d.every),d.load.length-1)];
const sizes=boxes.filter(b=>b.checked).map(b=>{let n=0;for(const[t,s]of d.changes[b.dataset.of]){if(t>m)break;n=s}
return b.dataset.of+" "+n});
out.textContent=at+" UTC: arrivals worth "+load+" members; "+sizes.join(", ")};
svg.onmouseleave=()=>{hair.setAttribute("visibility","hidden");out.innerHTML="&nbsp;"};
</script>"""
