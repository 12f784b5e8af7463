"""headway import: recorded series from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_record

EXAMPLE = "headway import --topic orders --file orders.csv.gz"
STOPPED = "what was written so far stays, and the same command completes it"


def command(
    topic: Annotated[str, typer.Option(help="Topic whose history it becomes.")],
    file: Annotated[Path, typer.Option(help="A file of headway export: .parquet, .csv.gz or .csv.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Read recorded series from a file.

    The file is read to its end before anything is written, so that a refused file changes nothing; importing it
    again changes nothing either. Values that are there already are replaced.
    """
    from forecaster.exchange import import_series
    from headway.configuration.settings import load
    from headway.wiring import open_series, store_url, utc_now

    settings = load(config)
    with store_url(settings) as url:
        store = open_series(settings, url)
        try:
            done = import_series(store, topic, file, utc_now())
        finally:
            store.close()
    result = {"rows": done.rows, "series": done.series, "topic": topic, "file": str(file)}
    emit_record(result, json)
