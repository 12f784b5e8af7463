"""headway prescale: scheduled windows, named events and overrides."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.options import Actor, Config
from headway.cli.output import Json, emit_json, emit_table

EXAMPLE = "headway prescale list"
STOPPED = "headway prescale list shows what holds"
EXAMPLES = {
    "add": "headway prescale add --cron '0 8 * * 1-5' --timezone Europe/Berlin --duration 2h --at-least 9",
    "list": "headway prescale list",
    "remove": "headway prescale remove $(headway prescale list --json | jq -r '.windows[0].id')",
}

app = typer.Typer(help="Add, list or remove pre-scaling windows and named events.", no_args_is_help=True)


@app.command()
def add(
    group: Annotated[str, typer.Option(help="One group; * for all.")] = "*",
    start: Annotated[str | None, typer.Option("--from", help="First instant, such as 2026-01-05T09:00:00Z.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="From then on it no longer acts.")] = None,
    expires: Annotated[str | None, typer.Option(help="Override everything else until then; with --replicas.")] = None,
    cron: Annotated[str | None, typer.Option(help="When windows begin: five fields, such as '0 8 * * 1-5'.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of --cron; the group's if absent.")] = None,
    duration: Annotated[str | None, typer.Option(help="How long a window of --cron lasts, such as 2h.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Exactly so many members.")] = None,
    at_least: Annotated[int | None, typer.Option(help="Not fewer members.")] = None,
    at_most: Annotated[int | None, typer.Option(help="Not more members than this wish allows.")] = None,
    factor: Annotated[float | None, typer.Option(help="So many times the forecast, for a named event.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the event.")] = None,
    config: Config = None,
    by: Actor = "terminal",
    json: Json = False,
) -> None:
    """Add a window, an event or an override.

    headway prescale add --group orders --cron '0 8 * * 1-5' --timezone Europe/Berlin --duration 2h --at-least 9

    headway prescale add --group orders --name sale --from 2026-11-27T08:00Z --to 2026-11-27T20:00Z --factor 2.5

    headway prescale add --group orders --replicas 12 --expires 2026-11-27T20:00Z
    """
    from headway.configuration.settings import load
    from headway.errors import UnknownGroup
    from headway.wiring import open_operations, utc_now

    settings = load(config)
    if group != "*" and settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    if cron is not None and timezone is None:
        timezone = "UTC" if group == "*" else settings.grid(group).timezone
    body: dict[str, Any] = {"group": group, "from": start, "to": end, "expires": expires, "cron": cron}
    body |= {"timezone": timezone, "duration": duration, "replicas": replicas, "at_least": at_least}
    body |= {"at_most": at_most, "factor": factor, "name": name}
    with open_operations(settings) as operations:
        made = operations.add_prescale({k: v for k, v in body.items() if v is not None}, by, utc_now())
    if json:
        emit_json({"state": "added", **made.to_document()})
    else:
        emit_table(["id", "group", "what"], [[made.id, made.group, made.rule.text]])


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option(help="Only what acts on this group.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List windows, events and overrides, and when each acts next."""
    from datetime import timedelta

    from balancer.prescaling import spans
    from headway.configuration.settings import load
    from headway.status.wire import instant
    from headway.wiring import open_operations, utc_now

    settings, now = load(config), utc_now()
    with open_operations(settings) as operations:
        kept = [w for w in operations.prescales() if group is None or w.group in ("*", group)]
    found = []
    for window in kept:
        coming = spans([window.rule], now, now + timedelta(days=366))
        acts = bool(coming) and coming[0].start <= now
        since = instant(coming[0].start) if coming else None
        found.append((window, acts, since, instant(coming[0].end) if coming else None))
    if json:
        windows = [{**w.to_document(), "active": acts, "next": begin, "until": end} for w, acts, begin, end in found]
        emit_json({"windows": windows})
    else:
        rows = [[w.id, w.group, w.rule.text, "now" if acts else begin, end] for w, acts, begin, end in found]
        emit_table(["id", "group", "what", "next", "until"], rows)


@app.command()
def remove(
    id: Annotated[str, typer.Argument(help="As headway prescale list shows it.")],
    config: Config = None,
    by: Actor = "terminal",
    json: Json = False,
) -> None:
    """Remove a window, an event or an override."""
    from headway.configuration.settings import load
    from headway.errors import HeadwayError
    from headway.wiring import open_operations, utc_now

    with open_operations(load(config)) as operations:
        if not operations.remove_prescale(id, by, utc_now()):
            raise HeadwayError(f"there is no window {id!r}; headway prescale list shows what there is")
    if json:
        emit_json({"state": "removed", "id": id})
    else:
        emit_table(["id", "state"], [[id, "removed"]])
