"""Options that several operating commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; headway.toml by default.")]
Actor = Annotated[str, typer.Option("--by", help="Who does this, for the audit log.")]


def one_scope(group: str | None, every: bool) -> str:
    """Return the scope that ``--group G`` or ``--all`` names; both or neither is wrong usage."""
    if (group is None) == (not every):
        raise typer.BadParameter("give either --group G or --all")
    return "*" if every else str(group)
