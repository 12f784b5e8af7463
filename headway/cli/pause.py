"""headway pause: stop acting, for one group or for all."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Actor, Config, one_scope
from headway.cli.output import Json, emit_json, emit_table

EXAMPLE = "headway pause --all --for 2h"
STOPPED = "headway mode shows what holds"


def command(
    group: Annotated[str | None, typer.Option(help="One group.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every group.")] = False,
    duration: Annotated[str | None, typer.Option("--for", help="How long; until --resume if absent.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Lift the pause.")] = False,
    config: Config = None,
    by: Actor = "terminal",
    json: Json = False,
) -> None:
    """Stop acting for a while, for one group or for all.

    Recording, forecasting and planning go on; nothing is scaled and nothing is moved.
    """
    from headway.configuration.durations import parse_duration
    from headway.configuration.settings import load
    from headway.errors import UnknownGroup
    from headway.status.wire import instant
    from headway.wiring import open_operations, utc_now

    scope = one_scope(group, every)
    try:
        length = None if duration is None else parse_duration(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from error
    settings = load(config)
    if group is not None and settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    until = None
    with open_operations(settings) as operations:
        if resume:
            operations.resume(scope, by, utc_now())
        else:
            try:
                until = operations.pause(scope, by, utc_now(), length).until
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--for") from error
    state = "running" if resume else "paused"
    shown = None if until is None else instant(until)
    if json:
        emit_json({"group": scope, "state": state, "until": shown})
    else:
        emit_table(["group", "state", "until"], [[scope, state, shown or ("" if resume else "lifted by --resume")]])
