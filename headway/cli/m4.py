"""headway m4: the official M4 Hourly scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.output import Json, emit_json, emit_table, say

EXAMPLE = "headway m4 --train ../shared/traces/m4_hourly_train.csv.gz --test ../shared/traces/m4_hourly_test.csv.gz"


def command(
    train: Annotated[Path, typer.Option(help="Training part as a trace file, 414 series.")],
    test: Annotated[Path, typer.Option(help="Test part, 48 steps a series.")],
    json: Json = False,
) -> None:
    """Compute the official M4 Hourly scores.

    Naive2 and the seasonal naive must come out as published (18.383 / 2.395 and 13.912 / 1.193); the blend is trained
    on the training part alone, by one thread. Cost is CPU time.
    """
    import time
    from dataclasses import asdict

    from threadpoolctl import threadpool_limits

    from forecaster.ingest.trace import read_each
    from forecaster.m4 import run

    say(f"reading {train} and {test}")
    past, future = read_each(train), read_each(test)
    say(f"forecasting {len(past)} series")
    with threadpool_limits(1):
        found = run(past, future, time.process_time)
    if json:
        emit_json(asdict(found["blend"]) | {"methods": {name: asdict(s) for name, s in found.items()}})
        return
    emit_table(
        ["method", "sMAPE", "MASE", "OWA", "ms/series"],
        [[name, s.smape, s.mase, s.owa, s.ms_per_series] for name, s in found.items()],
    )
