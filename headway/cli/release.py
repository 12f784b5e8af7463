"""headway release: a planned group back to its ordinary protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table, say

EXAMPLE = "headway release --group orders --dry-run"


def command(
    group: Annotated[str, typer.Option(help="The group.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what will happen.")] = False,
    within: Annotated[str, typer.Option(help="How long to wait for others.")] = "5m",
    config: Config = None,
    json: Json = False,
) -> None:
    """Give an adopted group back to its ordinary protocol.

    Workers commit, give up their partitions and take no more; stop them, then start ordinary consumers of the same
    group: they go on at the committed offsets.
    """
    from headway.adoption import as_json, release
    from headway.durations import parse_duration
    from headway.moving import open_planned_group, some_mover
    from headway.settings import load

    try:
        limit = parse_duration(within).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--within") from error
    parts = open_planned_group(load(config), group)
    if dry_run:
        outcome = release(parts, dry_run=True, within_s=limit)
    else:
        say("draining every worker")
        with some_mover(parts):
            outcome = release(parts, dry_run=False, within_s=limit)
    if json:
        emit_json(as_json(outcome))
    else:
        emit_table(["step", "state", "detail"], [[s.step, s.state, s.detail] for s in outcome.steps])
    if outcome.state not in ("dry_run", "released"):
        raise typer.Exit(1)
