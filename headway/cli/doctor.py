"""headway doctor: what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table

EXAMPLE = "headway doctor"


def command(config: Config = None, json: Json = False) -> None:
    """Check store, brokers, topics, groups, permissions, clock, models and targets, and say what to do.

    Exit code 1 when anything needs doing. The embedded store is started for the look if nobody runs it.
    """
    from contextlib import ExitStack

    from headway.configuration.settings import load
    from headway.operation.doctor import examine
    from headway.wiring import open_series, opener, store_url

    settings = load(config)
    with ExitStack() as stack:
        source = opener(settings)
        checks = examine(settings, lambda: open_series(settings, stack.enter_context(store_url(settings))), source)
    if json:
        emit_json({"checks": [asdict(check) for check in checks]})
    else:
        emit_table(
            ["", "check", "found", "remedy"],
            [["ok" if c.ok else "WRONG", c.name, c.detail, c.remedy] for c in checks],
        )
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
