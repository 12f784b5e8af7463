"""headway replay-decision: the same inputs must give the same answer."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json, emit_table, say

EXAMPLE = "headway replay-decision 'orders@2026-01-05T09:00:00+00:00'"


def command(
    id: Annotated[str, typer.Argument(help="Of a decision, as GET /v1/groups/GROUP/decisions shows it.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Compute a kept decision again from its stored inputs.

    Snapshot, forecast, policy, knobs, memory and rules were kept as the tick had them. Exit code 1 if the answer
    differs, which would be a fault of ours.
    """
    from headway.configuration.settings import load
    from headway.operation.replaying import replay
    from headway.wiring import open_plans, store_url

    settings = load(config)
    with store_url(settings) as url:
        plans = open_plans(settings, url)
        try:
            done = replay(plans, id)
        finally:
            plans.close()
    state = "same" if not done.differences else "different"
    if json:
        document = {"id": id, "state": state, "replicas": done.again["steps"][0]["replicas"]}
        emit_json({**document, "differences": list(done.differences), "kept": done.kept, "again": done.again})
    else:
        rows = [[s["from"], s["replicas"], s["demand"]] for s in done.again["steps"]]
        emit_table(["from", "replicas", "records/s"], rows)
        for reason in done.again["reasons"]:
            say(f"  {reason}")
        say(f"the answer is {'the same as' if state == 'same' else 'DIFFERENT from'} the one that was kept")
        for key in done.differences:
            say(f"  {key}: was {done.kept.get(key)}, is {done.again.get(key)}")
    if done.differences:
        raise typer.Exit(1)
