"""headway merge: a split taken back, by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json
from headway.cli.split import finish

EXAMPLE = "headway merge --topic orders --partition 7"
STOPPED = "a merge that was asked for may still end, or goes on with the next leader of the topic; the table is whole"


def command(
    topic: Annotated[str, typer.Option(help="A routed topic.")],
    partition: Annotated[int, typer.Option(help="The parent: all its lanes return to it.", min=0)],
    within: Annotated[str, typer.Option(help="How long to wait for the end.")] = "5m",
    config: Config = None,
    json: Json = False,
) -> None:
    """Take a split back, and wait for the end.

    Lane by lane: its slots are held until every registered group has drained it, then they go to the parent again. The
    empty partitions stay, ready for the next split; Kafka cannot remove partitions. Exit code 1 for any end but done.
    """
    finish("merge", topic, partition, 2, within, config, json)
