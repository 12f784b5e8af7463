"""headway move: one partition to another instance, by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_record

EXAMPLE = "headway move --group orders --partition orders:7 --to 2"
STOPPED = "a move that was asked for may still end: headway plan --group GROUP shows who owns what"


def command(
    group: Annotated[str, typer.Option(help="The planned group.")],
    partition: Annotated[str, typer.Option(help="Which partition, as topic:partition.")],
    to: Annotated[int, typer.Option(help="Instance that should own it.", min=1)],
    within: Annotated[str, typer.Option(help="How long to wait for the end.")] = "90s",
    config: Config = None,
    json: Json = False,
) -> None:
    """Move a partition to another instance, and wait for the end.

    The move is carried out by whoever leads the group, or by this command if nobody does. Exit code 1 for any end but
    done; the partition then stays with, or goes to, an owner that works.
    """
    from forecaster.topics import TopicPartition
    from headway.configuration.durations import parse_duration
    from headway.configuration.settings import load
    from headway.consumers.moving import move, open_planned_group, some_mover

    try:
        wanted, limit = TopicPartition.parse(partition), parse_duration(within)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    parts = open_planned_group(load(config), group)
    with some_mover(parts):
        ended = move(parts, wanted, to, limit.total_seconds())
    result = {"state": ended.state, "seconds": ended.seconds, "epoch": ended.epoch, "detail": ended.detail}
    emit_record(result, json)
    if ended.state != "done":
        raise typer.Exit(1)
