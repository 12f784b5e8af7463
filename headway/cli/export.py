"""headway export: recorded series to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Config, writable
from headway.cli.output import Json, emit_record

EXAMPLE = "headway export --topic orders --file orders.csv.gz"
STOPPED = "no file was written"


def command(
    topic: Annotated[str, typer.Option(help="A recorded topic.")],
    file: Annotated[Path, typer.Option(help="Where to: .parquet, .csv.gz or .csv.", callback=writable)],
    config: Config = None,
    json: Json = False,
) -> None:
    """Write recorded series to a file.

    One row a known value: timestamp, metric, group, step_s, partition, value. What is missing has no row. The file
    appears whole or not at all, and headway import reads it back.
    """
    from forecaster.exchange import export_series
    from headway.configuration.settings import load
    from headway.wiring import open_series, store_url

    settings = load(config)
    with store_url(settings) as url:
        store = open_series(settings, url)
        try:
            done = export_series(store, topic, file)
        finally:
            store.close()
    result = {"rows": done.rows, "series": done.series, "topic": topic, "file": str(file)}
    emit_record(result, json)
