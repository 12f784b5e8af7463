"""headway approve: let a waiting plan be carried out."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Actor, Config
from headway.cli.output import Json, emit_json, emit_table

EXAMPLE = "headway approve --group orders"
STOPPED = "headway plan --group GROUP shows whether the plan still waits"


def command(
    group: Annotated[str, typer.Option(help="The group.")],
    version: Annotated[int | None, typer.Option(help="The plan's version; the latest by default.")] = None,
    config: Config = None,
    by: Actor = "terminal",
    json: Json = False,
) -> None:
    """Approve a plan that waits for a person.

    The approval holds for an hour and for the number of members that the plan names now. A plan that has been
    replaced meanwhile is refused.
    """
    from headway.configuration.settings import load
    from headway.errors import UnknownGroup
    from headway.wiring import open_operations, utc_now

    settings = load(config)
    if settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    with open_operations(settings) as operations:
        approved = operations.approve(group, version, by, utc_now())
    if json:
        emit_json({"group": group, "state": "approved", "version": approved})
    else:
        emit_table(["group", "state", "version"], [[group, "approved", approved]])
