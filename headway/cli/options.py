"""Options that several operating commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; headway.toml by default.")]
Actor = Annotated[str, typer.Option("--by", help="Who does this, for the audit log.")]


def writable(path: Path | None) -> Path | None:
    """Return where a result goes; a place that cannot be is wrong usage now, and not after all the work."""
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}; make it first, or write elsewhere")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    if path is not None and not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"{path} may not be written by this user; write elsewhere")
    return path


def keeps_models(folder: Path) -> None:
    """Refuse, before the work, a folder of models that can neither be made nor written.

    Raises
    ------
    HeadwayError
        With the place and the remedy.
    """
    from tempfile import TemporaryFile

    from headway.errors import HeadwayError

    try:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"{folder}: models cannot be kept there ({error.strerror})"
        raise HeadwayError(f"{what}; name another folder with --out or models.path") from error


def one_scope(group: str | None, every: bool) -> str:
    """Return the scope that ``--group G`` or ``--all`` names; both or neither is wrong usage."""
    if (group is None) == (not every):
        raise typer.BadParameter("give either --group G or --all")
    return "*" if every else str(group)
