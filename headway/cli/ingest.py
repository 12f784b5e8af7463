"""headway ingest: a trace file into the store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_record
from headway.cli.sources import Missing, Partitions, Seed, SeriesName, Skew

if TYPE_CHECKING:
    from forecaster.ingest.replay import Loaded

EXAMPLE = "headway ingest --input data/nyc_taxi_30min.csv.gz --topic taxi"
STOPPED = "what was written so far stays, and the same command completes it"


def command(
    topic: Annotated[str, typer.Option(help="Topic whose history it becomes.")],
    file: Annotated[
        Path | None, typer.Option("--input", help="Trace file: CSV timestamp,series,value, gzip or plain.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="URL of a Prometheus that scrapes a Kafka exporter, instead of a file.")
    ] = None,
    since: Annotated[str, typer.Option(help="With --prometheus: how far back.")] = "56d",
    step: Annotated[str, typer.Option(help="With --prometheus: step of the topic.")] = "60s",
    selector: Annotated[str, typer.Option(help="With --prometheus: further label matchers.")] = "",
    series: SeriesName = None,
    round_: Annotated[
        bool, typer.Option("--round", help="Round decimals to whole records instead of refusing.")
    ] = False,
    partitions: Partitions = None,
    skew: Skew = "zipf:1.0",
    seed: Seed = 0,
    missing: Missing = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Load a trace into the store.

    With --prometheus, what a Prometheus knows of a topic's offsets becomes its history instead. A file is read whole
    before anything is written, so that a refused file changes nothing; loading the same again changes nothing
    either. Several series become the partitions of the topic.
    """
    if (file is None) == (prometheus is None):
        raise typer.BadParameter("say either --input FILE or --prometheus URL", param_hint="--input")
    if file is not None:
        loaded = _from_file(file, topic, series, round_, partitions, skew, seed, missing, config)
    else:
        loaded = _from_prometheus(str(prometheus), topic, since, step, selector, config)
    result = {
        "rows": loaded.rows,
        "steps": loaded.steps,
        "partitions": loaded.partitions,
        "gaps": loaded.gaps,
        "rejected": loaded.rejected,
    }
    emit_record(result, json)


def _from_file(
    file: Path,
    topic: str,
    series: str | None,
    round_: bool,
    partitions: int | None,
    skew: str,
    seed: int,
    missing: float | None,
    config: Path | None,
) -> Loaded:
    from forecaster.ingest.replay import load
    from forecaster.ingest.trace import read_trace, spread
    from headway.cli.output import say
    from headway.configuration.settings import load as load_settings
    from headway.wiring import open_series, store_url, utc_now

    settings = load_settings(config)
    found = read_trace(file, series, integers=True, round_=round_, missing=missing)
    say(
        f"{file}: {len(found.partitions)} series, step {found.grid.step_s} s, "
        f"{found.start:%Y-%m-%dT%H:%MZ} to {found.end:%Y-%m-%dT%H:%MZ}"
    )
    if partitions is not None:
        found = spread(found, partitions, skew, seed)
    with store_url(settings) as url, closing(open_series(settings, url)) as store:
        loaded = load(store, found, topic, utc_now())
    if loaded.rejected:
        say(f"{loaded.rejected} values lie in the future and were left out")
    return loaded


def _from_prometheus(url: str, topic: str, since: str, step: str, selector: str, config: Path | None) -> Loaded:
    from forecaster.errors import InputRefused
    from forecaster.ingest.prometheus import PrometheusSource, backfill
    from forecaster.ingest.replay import Loaded
    from forecaster.timegrid import TimeGrid
    from headway.cli.output import say
    from headway.cli.sources import duration
    from headway.configuration.settings import load as load_settings
    from headway.wiring import open_series, store_url, utc_now

    settings, now = load_settings(config), utc_now()
    try:
        grid = TimeGrid(int(duration(step, "--step").total_seconds()))
    except ValueError as exc:
        raise InputRefused(f"--step {step}: {exc}") from exc
    with (
        closing(PrometheusSource(url, selector=selector)) as source,
        store_url(settings) as where,
        closing(open_series(settings, where)) as store,
    ):
        exporter = source.exporter_of([topic], now).name
        say(f"{source.url}: {topic} by {exporter}, {since} back in steps of {grid.step_s} s")
        done = backfill(store, source, topic, now - duration(since, "--since"), now, grid.step_s)
    cells = done.steps * done.partitions
    rows = round(done.known * cells)
    return Loaded(rows, done.steps, done.partitions, cells - rows, 0)
