"""headway route: a routed producer that reads JSON lines."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import say

EXAMPLE = "headway route --topic orders < records.jsonl"


def command(
    topic: Annotated[str, typer.Option(help="The routed topic; it is adopted if it has no slot table yet.")],
    name: Annotated[str | None, typer.Option(help="Unique, the same after a restart; host-pid by default.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Relay this topic instead: for producers that cannot be routed.")
    ] = None,
    linger: Annotated[str, typer.Option(help="Longest wait for more lines of a transaction.")] = "20ms",
    config: Config = None,
) -> None:
    """Run a routed producer from standard input.

    With --from it carries another topic into the routed one instead, exactly once and in order of each key, until
    SIGTERM.

    Each line is {"key": ..., "value": ...}; a missing key is null and not routed. Each acknowledged record is one line
    {"key", "partition", "offset", "epoch"} on standard output, after its transaction has been committed. A line that
    is no such object ends the command with exit code 1; everything before it has been acknowledged.
    """
    import os
    import socket
    import sys

    from headway.configuration.durations import parse_duration
    from headway.configuration.settings import load
    from headway.consumers.routed_topics import open_producer, relay
    from headway.consumers.routing_lines import lines_in_batches, send_batch

    try:
        wait_s = parse_duration(linger).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--linger") from error
    if source is not None:
        relay(load(config), topic, source, name or f"relay-{source}-{socket.gethostname()}-{os.getpid()}", say)
        return
    with open_producer(load(config), topic, name or f"{socket.gethostname()}-{os.getpid()}") as producer:
        producer.init_transactions()
        say(f"routing to {topic} by table {producer.epochs[topic]}")
        for batch in lines_in_batches(sys.stdin, wait_s):
            for line in send_batch(producer, topic, batch):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()
