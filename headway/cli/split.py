"""headway split: a hot partition into lanes, by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_record

EXAMPLE = "headway split --topic orders --partition 7 --lanes 3"
STOPPED = "a split that was asked for may still end, or is taken back by whoever leads the topic; the table is whole"


def command(
    topic: Annotated[str, typer.Option(help="A routed topic.")],
    partition: Annotated[int, typer.Option(help="The hot partition.", min=0)],
    lanes: Annotated[int, typer.Option(help="Partitions that it becomes, itself included.", min=2)] = 2,
    within: Annotated[str, typer.Option(help="How long to wait for the end.")] = "5m",
    config: Config = None,
    json: Json = False,
) -> None:
    """Split a hot partition into lanes, and wait for the end.

    Carried out by whoever leads the topic, or by this command if nobody does. Producers hold the moving slots for the
    switch; each registered group reads a lane only when it has drained the old place. Exit code 1 for any end but done;
    the table then is as before, and the detail says why.
    """
    finish("split", topic, partition, lanes, within, config, json)


def finish(kind: str, topic: str, partition: int, lanes: int, within: str, config: Config, json: bool) -> None:
    """Ask, wait, print, and end with the right exit code."""
    from headway.configuration.durations import parse_duration
    from headway.configuration.settings import load
    from headway.consumers.routed_topics import carry_out, new_request

    try:
        limit = parse_duration(within).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--within") from error
    ended = carry_out(load(config), new_request(kind, topic, partition, lanes), limit)
    result = {"state": ended.state, "seconds": ended.seconds, "epoch": ended.epoch, "detail": ended.detail}
    emit_record(result, json)
    if ended.state != "done":
        raise typer.Exit(1)
