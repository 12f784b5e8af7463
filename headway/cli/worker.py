"""headway worker: a planned consumer around a handler of yours."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import say

EXAMPLE = "headway worker --group orders --topics orders --handler app:handle --output-topic invoices"


def command(
    group: Annotated[str, typer.Option(help="Group whose offsets are committed.")],
    topics: Annotated[str, typer.Option(help="Topics to consume, separated by commas.")],
    handler: Annotated[str, typer.Option(help="Your function, as module:function.")],
    output_topic: Annotated[str | None, typer.Option(help="Where results go.")] = None,
    instance: Annotated[int | None, typer.Option(help="Numbered place; the lowest free one if absent.", min=1)] = None,
    mode: Annotated[str, typer.Option(help="transactional, at_least_once or membership.")] = "transactional",
    batch: Annotated[bool, typer.Option("--batch", help="The handler takes lists of records.")] = False,
    start_at: Annotated[str, typer.Option(help="Without a commit: earliest, latest or error.")] = "earliest",
    tries: Annotated[int, typer.Option(help="How often a failing record is run.", min=1)] = 5,
    give_up: Annotated[str, typer.Option(help="And then: block, skip, stop or dead_letter.")] = "block",
    dead_letter_topic: Annotated[str | None, typer.Option(help="Where dead letters go.")] = None,
    poll_records: Annotated[int, typer.Option(help="Records handled at a time, at most; see commits.", min=1)] = 500,
    membership_topic: Annotated[str | None, typer.Option(help="Membership mode: a topic with one partition.")] = None,
    config: Config = None,
) -> None:
    """Run a planned consumer.

    The handler gets a record and returns nothing, bytes, or (key, value) pairs for the output topic, in one
    transaction with the offsets. SIGTERM hands every partition over and ends with exit code 0; exit code 1 means that
    this life is over (fenced, refused, or the handler failed for good) and a supervisor may start a new one.
    """
    import logging
    import signal
    import socket
    import sys

    from balancer.consumer import FailurePolicy, GiveUp, Mode, PlannedConsumer, StartAt, WorkerSettings
    from headway.configuration.settings import load
    from headway.consumers.handlers import load_handler
    from headway.errors import HeadwayError

    settings = load(config)
    if not settings.kafka.bootstrap_servers:
        raise HeadwayError("no brokers: set [kafka] bootstrap_servers, or HEADWAY_KAFKA__BOOTSTRAP_SERVERS")
    url = settings.store_url()
    if url is None:
        raise HeadwayError("a worker needs the planner's store: set [store] url, or HEADWAY_STORE__URL")
    properties = settings.kafka_properties()
    own = settings.group(group)
    durations = {
        name: getattr(own, name)
        for name in ("lease_ttl", "commit_interval")
        if own is not None and getattr(own, name) is not None
    }
    try:
        kinds = Mode(mode), StartAt(start_at), GiveUp(give_up)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    made = WorkerSettings(
        group=group,
        topics=tuple(t for t in topics.split(",") if t),
        bootstrap_servers=str(properties.pop("bootstrap.servers")),
        store_url=url,
        cluster=settings.cluster,
        output_topic=output_topic,
        mode=kinds[0],
        instance=instance,
        pod=socket.gethostname(),
        start_at=kinds[1],
        failures=FailurePolicy(tries=tries, give_up=kinds[2]),
        dead_letter_topic=dead_letter_topic,
        membership_topic=membership_topic,
        poll_records=poll_records,
        properties=properties,
        **durations,
    )
    consumer = PlannedConsumer(made, load_handler(handler), batch=batch)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stop())
    say(f"worker of group {group} on {made.bootstrap_servers}: waiting for an instance and for the planner")
    consumer.run()
