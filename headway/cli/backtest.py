"""headway backtest: what each method would have said, scored against what came."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.bundles import Days, Trace, Workers
from headway.cli.options import writable
from headway.cli.output import Json, bar, emit_json, emit_table, say
from headway.configuration.durations import instant

if TYPE_CHECKING:
    from datetime import datetime

    from forecaster.backtest import BacktestPlan, BacktestReport
    from forecaster.methods.base import Method

EXAMPLE = "headway backtest --input data/nyc_taxi_30min.csv.gz --horizon 24h --origins 7 --timezone America/New_York"


def command(
    horizon: Annotated[str, typer.Option(help="How far each origin is forecast.")],
    origins: Annotated[int, typer.Option(min=1, help="How many origins; the last horizon ends with the data.")],
    input: sources.InputFile = None,
    topic: sources.Topic = None,
    every: Annotated[str, typer.Option(help="Time between origins.")] = "24h",
    methods: Annotated[
        str, typer.Option(help="Names, or all; peers come by name alone.")
    ] = "auto,median_blend,grid,last_week,yesterday",
    lead: Annotated[str | None, typer.Option(help="Leads with figures of their own, such as 15m,60m.")] = None,
    levels: Annotated[str, typer.Option(help="Quantile levels.")] = ".5,.9,.95,.99",
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit at each origin instead of once before the first.")
    ] = False,
    step: Annotated[str | None, typer.Option(help="Longer steps than the recorded ones.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained page with plots.", callback=writable)
    ] = None,
    *,
    trace: Trace,
    days: Days,
    workers: Workers,
    seed: sources.Seed = 0,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Score forecasting methods on a trace with rolling origins.

    No method sees anything after its origin. MASE is scaled by the in-sample day-seasonal naive up to each origin;
    figures are means over origins, steps and series; WAPE and coverage are fractions, sMAPE is percent as in M4,
    pinball is in records/s. Peers of the extra `peers` are asked by name (statsforecast_mstl, prophet …) and fitted at
    each origin; the same holidays and events are left out of what everybody sees.
    """
    import time

    from forecaster.backtest import backtest
    from forecaster.periods import found_periods

    sources.exactly_one(input, topic)
    if input is not None:
        history, calendar = trace.read(input, seed), days.calendar()
    else:
        with sources.recorded(config, days) as store:
            history, calendar = store.history(str(topic)), store.service.calendar(str(topic))
    history = sources.in_steps(history, step)
    plan = replace(_plan(history.grid.step_s, horizon, origins, every, lead, levels, refit), calendar=calendar)
    chosen = _methods(methods, seed)
    total = len(chosen) * origins
    with workers.open() as run, bar(f"{len(chosen)} methods x {origins} origins", total) as progress:
        report = backtest(
            history, chosen, plan, map=run, clock=time.perf_counter, on_progress=lambda *_: progress.advance()
        )
    periods = found_periods(history)
    if html is not None:
        from headway.reports.backtest_page import write_page

        write_page(html, history, report, periods)
        say(f"{html}: a self-contained page with plots")
    if json:
        emit_json(document(report) | {"periods": [p.to_dict() for p in periods]})
    else:
        _print(report)
        sources.say_periods(periods)


def document(report: BacktestReport) -> dict[str, Any]:
    """Return a report as plain values; levels and leads are text."""
    from forecaster.training import score_document

    step_s = report.step_s

    def figures(name: str, row: int | None) -> dict[str, Any]:
        method = report.methods[name]
        return score_document(method.mean if row is None else method.series[row]) | {
            "seconds_per_series": method.seconds_per_series
        }

    return {
        "topic": report.topic,
        "step_s": step_s,
        "horizon_s": report.plan.horizon_steps * step_s,
        "origins": [instant(_start(origin, step_s)) for origin in report.origins],
        "levels": list(report.plan.levels),
        "methods": {
            name: figures(name, None)
            | {
                "leads": {str(lead * step_s): score_document(scores) for lead, scores in method.leads.items()},
                "answered": method.answered,
                "rungs": method.rungs,
                "reasons": list(method.reasons[:20]),
            }
            for name, method in report.methods.items()
        },
        "series": [
            {"series": name, "methods": {method: figures(method, row) for method in report.methods}}
            for row, name in enumerate(report.names)
        ],
    }


def _start(index: int, step_s: int) -> datetime:
    from forecaster.timegrid import TimeGrid

    return TimeGrid(step_s).start_of(index)


def _plan(
    step_s: int, horizon: str, origins: int, every: str, lead: str | None, levels: str, refit: bool
) -> BacktestPlan:
    from datetime import timedelta

    from forecaster.backtest import BacktestPlan

    step = timedelta(seconds=step_s)

    def steps(text: str, option: str) -> int:
        length = sources.duration(text, option)
        count, rest = divmod(length, step)
        if rest or count < 1:
            raise typer.BadParameter(f"{text} is not a whole number of steps of {step_s} s", param_hint=option)
        return count

    leads = () if lead is None else tuple(steps(part, "--lead") for part in lead.split(",") if part)
    try:
        return BacktestPlan(
            steps(horizon, "--horizon"), origins, steps(every, "--every"), sources.levels(levels), leads, refit
        )
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--lead") from exc


def _methods(text: str, seed: int) -> dict[str, Method]:
    from forecaster.methods.catalogue import METHODS
    from forecaster.peers.catalogue import make_method_or_peer

    names = [n.strip() for n in text.split(",") if n.strip()]
    if names == ["all"]:
        names = ["auto", *METHODS]
    return {n: sources.auto(seed) if n == "auto" else make_method_or_peer(n) for n in dict.fromkeys(names)}


def _print(report: BacktestReport) -> None:
    levels = [q for q in report.plan.levels if q > 0.5]
    headers = [
        "method",
        "mase",
        "wape",
        "smape",
        *(f"cover {q:g}" for q in levels),
        "pinball*",
        "ms/series",
        "answered",
    ]
    rows: list[list[object]] = []
    for name, method in report.methods.items():
        mean = method.mean
        losses = [v for v in mean.scaled_pinball.values() if v is not None]
        rows.append(
            [
                name,
                mean.mase,
                mean.wape,
                mean.smape,
                *(mean.coverage[q] for q in levels),
                sum(losses) / len(losses) if losses else None,
                method.seconds_per_series * 1000,
                method.answered,
            ]
        )
    rows.sort(key=lambda row: (row[1] is None, row[1]))
    emit_table(headers, rows)
    for lead in report.plan.lead_steps:
        say(f"at {lead * report.step_s} s:")
        emit_table(
            ["method", "wape", *(f"cover {q:g}" for q in levels)],
            [
                [name, method.leads[lead].wape, *(method.leads[lead].coverage[q] for q in levels)]
                for name, method in report.methods.items()
            ],
        )
    say("pinball* is the mean over levels in units of the MASE scale")
    for name, method in report.methods.items():
        for reason in method.reasons[:3]:
            say(f"  {name}: {reason}")
