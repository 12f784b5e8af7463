"""How a command is run: its typer wrapping, the example on top of its help, and errors as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headway.cli import INTERRUPTED
from headway.cli.bundles import expanded
from headway.errors import one_line

NOTHING_CHANGED = "nothing was changed"


def run(name: str, module: ModuleType, args: Sequence[str]) -> int:
    """Run the command that ``module`` holds, and return its exit code.

    ``module.command`` is a typer-style function; a module with sub-commands has ``module.app``, a
    :class:`typer.Typer`, instead. ``module.EXAMPLE`` is the line that starts the help, ``module.EXAMPLES`` those of its
    sub-commands by name. ``module.STOPPED`` says what Ctrl-C leaves behind, where a command changes something.
    """
    try:
        _typer_app(module)(args=list(args), prog_name=f"headway {name}")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code == INTERRUPTED:  # typer's word for Ctrl-C
            say_stopped(name, module)
        return code
    except KeyboardInterrupt:
        say_stopped(name, module)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output went away; nothing is wrong here
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        sys.stderr.write(f"headway {name}: {one_line(error)}\n")
        return 1
    return 0


def say_stopped(name: str, module: ModuleType) -> None:
    """Say after Ctrl-C what is left: ``module.STOPPED``, or that the command changes nothing."""
    sys.stderr.write(f"\nheadway {name}: stopped; {getattr(module, 'STOPPED', NOTHING_CHANGED)}\n")


def help_of(name: str, module: ModuleType) -> str:
    """Return what ``headway NAME --help`` says, sub-commands included, 100 columns wide."""
    command = typer.main.get_command(_typer_app(module))
    pages = [(name, command), *((f"{name} {sub}", c) for sub, c in getattr(command, "commands", {}).items())]
    contexts = [(c, c.context_class(c, info_name=f"headway {path}", terminal_width=100)) for path, c in pages]
    return "\n\n\n".join(c.get_help(context).strip() for c, context in contexts)


class _WithExample:
    """Puts the example before everything else that ``--help`` says."""

    example: str | None = None

    def get_help(self, ctx: Any) -> str:
        text: str = super().get_help(ctx)  # type: ignore[misc]
        return f"Example: {self.example}\n\n{text}" if self.example else text


class _Command(_WithExample, TyperCommand):
    pass


class _Group(_WithExample, TyperGroup):
    pass


def _typer_app(module: ModuleType) -> Any:
    example = getattr(module, "EXAMPLE", None)
    command_class = type("Command", (_Command,), {"example": example})
    group_class = type("Group", (_Group,), {"example": example})
    app: typer.Typer | None = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(cls=command_class)(expanded(module.command))
        return app
    app.info.cls = group_class
    for known in app.registered_commands:
        own = getattr(module, "EXAMPLES", {}).get(known.name or getattr(known.callback, "__name__", None))
        if own is not None:
            known.cls = type("Command", (_Command,), {"example": own})
    app.rich_markup_mode = None
    app.pretty_exceptions_enable = False
    app._add_completion = False
    return app
