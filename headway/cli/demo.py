"""headway demo: the whole loop on a real trace, in a minute or two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import Json, bar, emit_json, emit_table, say

if TYPE_CHECKING:
    from headway.demo import Replay

EXAMPLE = "headway demo --once"
STOPPED = "the same command goes on from the last minute that the store has"


def command(
    once: Annotated[bool, typer.Option("--once", help="End with the summary instead of keeping the page up.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Another trace file; ten days or more.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of page and API; 0 takes a free one.")] = 8765,
    json: Json = False,
) -> None:
    """Run the whole loop on a real trace with an embedded store, and show the page.

    Five weeks of the 1998 World Cup's web site are the history; its last days are replayed fast: recorded into the
    store, forecast, planned, and carried out on simulated members, beside rival rules on the same arrivals. A run
    that was cut off goes on where it stopped.
    """
    import signal
    import threading
    import time

    from headway.demo_setup import demo_settings, read_scene, running, served

    began = time.perf_counter()
    scene = read_scene(trace)
    settings = demo_settings(scene, port)
    if port not in (0, settings.api.port):
        say(f"port {port} is taken, the page gets a free one; --port names another")
    with running(settings, scene) as replay, served(replay.app, settings) as url:
        say(f"page and API: {url}")
        summary = _play(replay, url, began)
        if json:
            emit_json(summary)
        else:
            _tables(summary)
        if not once:
            say(f"the page stays at {url}; Ctrl-C ends")
            stop = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: stop.set())
            try:
                stop.wait()
            except KeyboardInterrupt:
                say("")


def _play(replay: Replay, url: str, began: float) -> dict[str, Any]:
    import sys
    import time
    from datetime import timedelta

    world = replay.scene.world
    start = replay.prepare()
    if start > world.start:
        say(f"an earlier run was cut off: everything until {start:%a %d %b %H:%M} is there, going on from it")
    else:
        days = (world.start - world.trace.start).days
        say(f"{days} days of history are in the store; replaying {world.start:%d %b} to {world.end:%d %b %Y}")
    with bar("tuning the rivals and learning from the history"):
        outcomes = replay.rivals()
        replay.learn()
    replay.reactive = outcomes["rate_reactive"].changes
    replay.app.ready = True
    minutes = int((world.end - start).total_seconds() // 60)
    told = world.start
    with bar("replaying", minutes) as progress:
        for minute in range(minutes + 1):
            tick = replay.step()
            if minute % 15 == 0 and tick.snapshot is not None:
                rate, _ = tick.snapshot.arrival_rate
                note = f"{tick.at:%a %H:%M}  {rate:,.0f} records/s, {tick.snapshot.working} members"
                progress.advance(15, note)
                if not sys.stderr.isatty() and tick.at - told >= timedelta(hours=6):
                    told = tick.at
                    say(note)
    ours = replay.outcome()
    outcomes = {"headway": ours, **outcomes}
    static = outcomes["static_peak"].hours
    figures = {
        name: {**outcome.figures(), "hours_vs_peak_static": outcome.hours / static}
        for name, outcome in outcomes.items()
    }
    score = replay.score
    return {
        "late_share": ours.late_share,
        "hours": ours.hours,
        "hours_vs_peak_static": ours.hours / static,
        "rescales_per_day": ours.rescales_per_day,
        "wape": score.wape("headway"),
        "coverage": score.coverage,
        "url": url,
        "from": world.start,
        "to": world.end,
        "resumed_at": start if start > world.start else None,
        "policies": figures,
        "forecast_wape": {name: score.wape(name) for name in score.errors},
        "seconds": round(time.perf_counter() - began, 1),
    }


def _tables(summary: dict[str, Any]) -> None:
    rows = [
        [name, f"{100 * f['late_share']:.3f} %", _seconds(f["p99_s"]), round(f["hours"], 1),
         f"{f['hours_vs_peak_static']:.2f}", round(f["rescales_per_day"], 1)]
        for name, f in summary["policies"].items()
    ]  # fmt: skip
    emit_table(["policy", "late", "delay p99", "member-hours", "of static peak", "rescales/day"], rows)
    typer.echo("")
    errors = summary["forecast_wape"]
    emit_table(["forecast of the next hour", "WAPE"], [[name, f"{100 * v:.1f} %"] for name, v in errors.items() if v])
    if summary["coverage"] is not None:
        typer.echo(f"arrivals at or below the forecast q95: {100 * summary['coverage']:.1f} %")
    ours, rule = summary["policies"]["headway"], summary["policies"]["rate_reactive"]
    typer.echo(
        f"beside the rate rule on the same arrivals: {100 * (ours['hours'] / rule['hours'] - 1):+.0f} % member-hours, "
        f"{ours['rescales_per_day']:.0f} rescales a day instead of {rule['rescales_per_day']:.0f}"
    )
    late = {name: f["late_share"] for name, f in summary["policies"].items() if name != "perfect"}
    better = [name for name, share in late.items() if name != "headway" and share <= late["headway"]]
    if better:
        typer.echo(f"no fewer late records than: {', '.join(better)}")
    typer.echo(f"{summary['seconds']} s")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
