"""headway adopt: an ordinary group under the plan."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table, say

EXAMPLE = "headway adopt --group orders --dry-run"


def command(
    group: Annotated[str, typer.Option(help="The group.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what will happen.")] = False,
    within: Annotated[str, typer.Option(help="How long to wait for others.")] = "5m",
    config: Config = None,
    json: Json = False,
) -> None:
    """Put an ordinary group under the plan.

    Offsets stay where they are, under the group's own id. The group's ordinary consumers must stop (this command
    waits for them); planned workers then go on where they stopped. Exit code 1 while members are left.
    """
    from headway.adoption import adopt, as_json
    from headway.durations import parse_duration
    from headway.moving import open_planned_group, some_mover
    from headway.settings import load

    try:
        limit = parse_duration(within).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--within") from error
    parts = open_planned_group(load(config), group)
    if dry_run:
        outcome = adopt(parts, dry_run=True, within_s=limit)
    else:
        say("waiting for ordinary members to stop, then founding the leases")
        with some_mover(parts):
            outcome = adopt(parts, dry_run=False, within_s=limit)
    if json:
        emit_json(as_json(outcome))
    else:
        emit_table(["step", "state", "detail"], [[s.step, s.state, s.detail] for s in outcome.steps])
    if outcome.state not in ("dry_run", "adopted"):
        raise typer.Exit(1)
