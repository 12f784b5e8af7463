"""headway mode: what Headway may do with a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import Actor, Config
from headway.cli.output import Json, emit_json, emit_table

if TYPE_CHECKING:
    from headway.operation.operations import Pause

EXAMPLE = "headway mode --group orders shadow"
STOPPED = "headway mode shows what holds"


def command(
    group: Annotated[str | None, typer.Option(help="The group; without it, every configured one is shown.")] = None,
    mode: Annotated[str | None, typer.Argument(help="off, recommend, shadow or act; shown when left out.")] = None,
    config: Config = None,
    by: Actor = "terminal",
    json: Json = False,
) -> None:
    """Show or set a group's mode: off, recommend, shadow or act.

    Without a group, every configured one is shown. A mode is kept in the store, holds over the settings file, and
    every instance sees it with its next tick. Act is refused while there is nothing to act on, a right is missing,
    brokers or store do not keep what a planned group leans on, or the forecast's gate is closed; the reasons are named.
    """
    from headway.configuration.sections import Mode
    from headway.configuration.settings import load
    from headway.errors import HeadwayError, NotReady, UnknownGroup
    from headway.operation.doctor_planned import against_target
    from headway.wiring import closed_gates, open_operations, utc_now

    settings = load(config)
    if group is None:
        if mode is not None:
            raise typer.BadParameter(f"say which group shall be in {mode}: --group NAME")
        if not settings.groups:
            raise NotReady("no group is configured yet; headway init lists what there is and writes the first ones")
        with open_operations(settings) as operations:
            now = utc_now()
            rows = [
                [name, str(operations.mode(name, settings.mode(name))), _pause(operations.paused(name, now))]
                for name in sorted(settings.groups)
            ]
        if json:
            emit_json(
                {"groups": [{"group": name, "state": state, "pause": pause or None} for name, state, pause in rows]}
            )
        else:
            emit_table(["group", "mode", "pause"], rows)
        return
    if settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    if mode is not None and mode not in list(Mode):
        raise typer.BadParameter(f"{mode!r} is no mode; there are {', '.join(Mode)}")
    if mode == Mode.ACT:
        against = (*against_target(settings, group), *closed_gates(settings, group, utc_now()))
        if against:
            raise HeadwayError(f"group {group} may not act yet: {'; '.join(against)}")
    with open_operations(settings) as operations:
        if mode is not None:
            operations.set_mode(group, Mode(mode), by, utc_now())
        state = str(operations.mode(group, settings.mode(group)))
    if json:
        emit_json({"group": group, "state": state})
    else:
        emit_table(["group", "mode"], [[group, state]])


def _pause(pause: Pause | None) -> str:
    if pause is None:
        return ""
    return f"by {pause.by}, " + ("until lifted" if pause.until is None else f"until {pause.until:%Y-%m-%d %H:%M} UTC")
