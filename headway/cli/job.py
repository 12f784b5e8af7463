"""headway job: one pass of a scheduled job, for cron or a CronJob."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table

EXAMPLE = "headway job run seal --group orders"
STOPPED = "the pass may be run again; what it wrote before stays"

app = typer.Typer(
    help="Run one pass of a scheduled job.\n\nThe same passes that headway serve runs by itself: record, forecast, "
    "act (which plans too), retrain, seal, prune.",
    no_args_is_help=True,
)


@app.callback()
def jobs() -> None:
    """Run one pass of a scheduled job."""


@app.command("run", no_args_is_help=True)
def run(
    name: Annotated[str, typer.Argument(help="record, forecast, plan, act, retrain, seal or prune.")],
    group: Annotated[str | None, typer.Option(help="The group; record needs none.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Run one pass now; exit code 1 if it failed."""
    from contextlib import ExitStack

    from balancer.actuators.board import ScalerBoard
    from headway.assembly import assemble
    from headway.configuration.settings import load
    from headway.errors import SettingsRefused, UnknownGroup
    from headway.wiring import open_application, opener
    from headway.work.jobs import NAMES

    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is no job; there are {', '.join(NAMES)}")
    settings = load(config)
    if name != "record" and group is None:
        raise typer.BadParameter(f"{name} is a group's job; say --group")
    if group is not None and settings.group(group) is None:
        raise UnknownGroup(group, settings.nearest(group))
    if name == "record" and opener(settings) is None:
        raise SettingsRefused(
            "kafka.bootstrap_servers and prometheus.url are missing: record looks at offsets; name one, in the file or "
            "as HEADWAY_KAFKA__BOOTSTRAP_SERVERS or HEADWAY_PROMETHEUS__URL"
        )
    with ExitStack() as stack:
        application = stack.enter_context(open_application(settings))
        made = assemble(application, stack, ScalerBoard(), only=group)
        if group is not None and group not in settings.named_groups:
            application.discover()
            application.view(group)
        if name in ("plan", "act") and group is not None:
            made.run_now("forecast", group)
        result = made.run_now(name, None if name == "record" else group)
    if json:
        emit_json(result.to_document())
    else:
        emit_table(["job", "group", "ok", "seconds", "what"], [[name, group, result.ok, result.seconds, result.detail]])
    if not result.ok:
        raise typer.Exit(1)
