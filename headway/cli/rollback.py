"""headway rollback: go back to an earlier model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli import sources
from headway.cli.output import Json, emit_json, emit_table, say

EXAMPLE = "headway rollback --topic nyc_taxi_30min --list"
STOPPED = "headway rollback --topic TOPIC --list shows which model serves"


def command(
    topic: Annotated[str, typer.Option(help="Topic whose model goes back.")],
    to: Annotated[str | None, typer.Option(help="Version to go to; the one that served before by default.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the versions that are kept.")] = False,
    out: Annotated[Path | None, typer.Option(help="Models folder; the configured one by default.")] = None,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Go back to an earlier model.

    The version is opened before it serves: one that is damaged or untested here is refused, and nothing changes.
    A second rollback goes further back, never forth.
    """
    import difflib
    from datetime import UTC, datetime

    from forecaster.topics import StreamId
    from headway.configuration.settings import load
    from headway.errors import HeadwayError

    settings = load(config)
    models, stream = sources.registry(settings, out), StreamId(settings.cluster, topic)
    if not models.versions(stream):
        have = [s.topic for s in models.streams() if s.cluster == settings.cluster]
        near = difflib.get_close_matches(topic, have, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "headway train makes the first"
        nothing = f"{models.root} holds no model of topic {topic!r}; {hint}"
        if near or not show:
            raise HeadwayError(nothing)
        say(nothing)
    if not show:
        models.rollback(stream, datetime.now(UTC), to)
    current = models.current(stream)
    versions = [
        {"version": v, "current": v == current, "scores": models.read_card(models.folder(stream) / v).scores}
        for v in models.versions(stream)
    ]
    if json:
        emit_json({"state": "unchanged" if show else "rolled_back", "version": current, "versions": versions})
    else:
        rows = [[v["version"], v["current"], _figure(v["scores"])] for v in versions]
        emit_table(["version", "current", "mase when trained"], rows)


def _figure(scores: object) -> float | None:
    challenger = scores.get("challenger", {}) if isinstance(scores, dict) else {}
    mase = challenger.get("mase")
    return mase if isinstance(mase, float) else None
