"""headway adopt: an ordinary group under the plan; and what it shares with its way back, headway release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.bundles import HandOver
from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table, say

if TYPE_CHECKING:
    from pathlib import Path

    from headway.consumers.adoption import Outcome

EXAMPLE = "headway adopt --group orders --dry-run"
STOPPED = "the same command goes on from there; --dry-run shows which steps are due"

Group = Annotated[str, typer.Option(help="The group.")]


def command(group: Group, how: HandOver, config: Config = None, json: Json = False) -> None:
    """Put an ordinary group under the plan.

    Offsets stay where they are, under the group's own id. The group's ordinary consumers must stop (this command
    waits for them); planned workers then go on where they stopped. Exit code 1 while members are left.
    """
    from headway.consumers.adoption import adopt

    hand_over(adopt, group, how, config, json, "waiting for ordinary members to stop, then founding the leases")


def hand_over(
    act: Callable[..., Outcome], group: str, how: HandOver, config: Path | None, json: bool, note: str
) -> None:
    """Adopt or release a group, print the steps, and fail unless the end was reached."""
    from headway.configuration.durations import parse_duration
    from headway.configuration.settings import load
    from headway.consumers.adoption import as_json
    from headway.consumers.moving import open_planned_group, some_mover

    try:
        limit = parse_duration(how.within).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--within") from error
    parts = open_planned_group(load(config), group)
    if how.dry_run:
        outcome = act(parts, dry_run=True, within_s=limit)
    else:
        say(note)
        with some_mover(parts):
            outcome = act(parts, dry_run=False, within_s=limit)
    if json:
        emit_json(as_json(outcome))
    else:
        emit_table(["step", "state", "detail"], [[s.step, s.state, s.detail] for s in outcome.steps])
    if outcome.state not in ("dry_run", "adopted", "released"):
        raise typer.Exit(1)
