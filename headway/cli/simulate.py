"""headway simulate: what would the control tick, and its rivals, have done and cost on a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import sources
from headway.cli.options import writable
from headway.cli.output import Json, emit_json, emit_table, say
from headway.configuration.durations import instant

if TYPE_CHECKING:
    from headway.reports.simulation import Simulation

EXAMPLE = (
    "headway simulate --input data/nyc_taxi_30min.csv.gz --capacity 0.5 "
    "--from 2014-12-20T00:00:00Z --to 2014-12-22T00:00:00Z --policies headway,static_peak,perfect"
)


def command(
    capacity: Annotated[float, typer.Option(help="Records/s that one member sustains.")],
    start: Annotated[str, typer.Option("--from", help="Start of the run; what lies before is history.")],
    end: Annotated[str, typer.Option("--to", help="End of the run.")],
    input: Annotated[Path, typer.Option("--input", help="Trace file: CSV timestamp,series,value, gzip or plain.")],
    start_time: Annotated[str, typer.Option(help="From a member's request to its work.")] = "120s",
    pause: Annotated[str, typer.Option(help="Stall at each change of the working set.")] = "6s",
    pause_scope: Annotated[str, typer.Option(help="group: everybody stalls; moved: moved partitions only.")] = "group",
    slo: Annotated[str, typer.Option(help="A record is late beyond this latency.")] = "60s",
    max_replicas: Annotated[int, typer.Option(min=1, help="Upper limit for every policy.")] = 64,
    min_replicas: Annotated[
        int, typer.Option(min=0, help="Lower limit for every policy; 0 lets Headway's group sleep, rules keep one.")
    ] = 1,
    partitions: sources.Partitions = None,
    skew: sources.Skew = "zipf:1.0",
    keys: Annotated[
        int | None, typer.Option(min=2, help="A topic of so many keys (Zipf) that may be split; needs --partitions.")
    ] = None,
    key_skew: Annotated[float, typer.Option(min=0.0, help="Exponent of Zipf's law over the keys.")] = 1.1,
    drift: Annotated[str, typer.Option(help="With --keys: after so long another key is the hottest.")] = "6h",
    max_partitions: Annotated[int | None, typer.Option(min=1, help="With --keys: how many lanes may be made.")] = None,
    poisson: Annotated[bool, typer.Option("--poisson", help="Draw arrivals instead of spreading them evenly.")] = False,
    seed: sources.Seed = 0,
    series: sources.SeriesName = None,
    policies: Annotated[
        str,
        typer.Option(help="Names by commas, or all. With --partitions also packing algorithms: mwf, bfd, …"),
    ] = "headway,rate_reactive,static_peak,perfect",
    decisions: Annotated[
        Path | None, typer.Option(help="Write policy,timestamp,replicas at each change.", callback=writable)
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", "--html", help="Write a self-contained HTML report.", callback=writable)
    ] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Money per member-hour, to tell the cost.")] = None,
    late_target: Annotated[float, typer.Option(help="Share of records that may be late.")] = 1e-4,
    rescales_per_day: Annotated[int, typer.Option(min=1, help="Budget of changes a day.")] = 24,
    timezone: sources.Timezone = "UTC",
    missing: sources.Missing = None,
    json: Json = False,
) -> None:
    """Run the control tick and rival policies over simulated members.

    Only what lies before --from is known when the run begins: knobs and rivals' settings are learned there. Capacity is
    deterministic; a member is paid from its request on and works a start time later; late is what waits beyond the SLO.
    """
    import time

    from balancer.simulator.packers import PACKERS
    from balancer.simulator.world import World
    from headway.errors import HeadwayError
    from headway.reports.simulation import POLICIES, arrivals_of, run_span, simulate

    names = list(POLICIES) if policies == "all" else [n.strip() for n in policies.split(",") if n.strip()]
    unknown = [n for n in names if n not in (*POLICIES, *PACKERS)]
    if unknown or not names:
        there = f"there are {', '.join(POLICIES)}; over partitions also {', '.join(PACKERS)}"
        raise typer.BadParameter(f"no policy {', '.join(unknown) or 'named'}; {there}", param_hint="--policies")
    if pause_scope not in ("group", "moved"):
        raise typer.BadParameter("group or moved", param_hint="--pause-scope")
    if not 0 < capacity < float("inf"):
        raise HeadwayError(f"--capacity {capacity:g} must be a positive number of records/s")
    begin, stop = sources.instant(start, "--from"), sources.instant(end, "--to")
    spread = None if keys is not None else partitions
    found = sources.arrivals_of_file(input, series, spread, skew, seed, timezone, missing)
    trace, gaps = arrivals_of(found, spread is not None or len(found.partitions) > 1)
    if not trace.partitioned and (alone := [n for n in names if n in PACKERS]):
        raise typer.BadParameter(f"{', '.join(alone)}: packs partitions; say --partitions N", param_hint="--policies")
    splits = None
    if keys is not None:
        from headway.reports.keyed_simulation import keyed

        every = sources.duration(drift, "--drift")
        splits = keyed(trace, partitions, keys, key_skew, every, seed, max_partitions, capacity, (begin, stop))
        trace = splits.run.split
    if gaps:
        say(f"{gaps} missing values were bridged in a straight line: a gap is not zero")
    if poisson:
        trace = trace.poisson(seed)
    run_span(trace, begin, stop)
    try:
        world = World(
            trace,
            begin,
            stop,
            capacity,
            sources.duration(start_time, "--start-time").total_seconds(),
            sources.duration(pause, "--pause").total_seconds(),
            sources.duration(slo, "--slo").total_seconds(),
            max_replicas,
            pause_scope == "moved",
            min_replicas,
        )
    except ValueError as refused:
        raise HeadwayError(str(refused)) from refused
    result = simulate(world, names, clock=time.perf_counter, say=say, late_target=late_target, budget=rescales_per_day)
    if decisions is not None:
        _write_decisions(decisions, result)
    if report is not None:
        from headway.reports.simulation_page import write_report

        write_report(report, result, title=found.topic, price=price)
        say(f"report: {report}")
    if json:
        more = {} if splits is None else splits.document()
        emit_json({**result.document(price), "step_s": found.grid.step_s, "gaps": gaps, **more})
    else:
        _print(result, price)
        if splits is not None:
            splits.tell(say)


def _write_decisions(path: Path, result: Simulation) -> None:
    lines = ["policy,timestamp,replicas"]
    for name, outcome in result.outcomes.items():
        lines += [f"{name},{instant(at)},{replicas}" for at, replicas in outcome.changes]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _print(result: Simulation, price: float | None) -> None:
    rows = [
        [
            name,
            f"{100 * o.late_share:.4f} %",
            o.p50_s,
            o.p99_s,
            o.p999_s,
            round(o.hours, 1),
            o.rescales_per_day,
            o.hours_vs_limit,
            *([] if price is None else [round(price * o.hours, 2)]),
        ]
        for name, o in result.outcomes.items()
    ]
    header = ["policy", "late", "p50 s", "p99 s", "p99.9 s", "hours", "changes/day", "hours / limit"]
    emit_table([*header, *([] if price is None else ["cost"])], rows)
    for name, outcome in result.outcomes.items():
        for note in outcome.notes:
            say(f"{name}: {note}")
