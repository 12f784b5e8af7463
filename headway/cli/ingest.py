"""headway ingest: a trace file into the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table
from headway.cli.sources import Partitions, Seed, SeriesName, Skew

EXAMPLE = "headway ingest --input data/nyc_taxi_30min.csv.gz --topic taxi"


def command(
    file: Annotated[Path, typer.Option("--input", help="Trace file: CSV timestamp,series,value, gzip or plain.")],
    topic: Annotated[str, typer.Option(help="Topic whose history it becomes.")],
    series: SeriesName = None,
    round_: Annotated[
        bool, typer.Option("--round", help="Round decimals to whole records instead of refusing.")
    ] = False,
    partitions: Partitions = None,
    skew: Skew = "zipf:1.0",
    seed: Seed = 0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Load a trace into the store.

    The file is read whole before anything is written, so that a refused file changes nothing; loading the same file
    again changes nothing either. Several series become the partitions of the topic.
    """
    from forecaster.ingest.replay import load
    from forecaster.ingest.trace import read_trace, spread
    from headway.cli.output import say
    from headway.settings import load as load_settings
    from headway.wiring import open_series, store_url, utc_now

    settings = load_settings(config)
    found = read_trace(file, series, integers=True, round_=round_)
    say(
        f"{file}: {len(found.partitions)} series, step {found.grid.step_s} s, "
        f"{found.start:%Y-%m-%dT%H:%MZ} to {found.end:%Y-%m-%dT%H:%MZ}"
    )
    if partitions is not None:
        found = spread(found, partitions, skew, seed)
    with store_url(settings) as url:
        store = open_series(settings, url)
        try:
            loaded = load(store, found, topic, utc_now())
        finally:
            store.close()
    if loaded.rejected:
        say(f"{loaded.rejected} values lie in the future and were left out")
    result = {
        "rows": loaded.rows,
        "steps": loaded.steps,
        "partitions": loaded.partitions,
        "gaps": loaded.gaps,
        "rejected": loaded.rejected,
    }
    if json:
        emit_json(result)
    else:
        emit_table(list(result), [list(result.values())])
