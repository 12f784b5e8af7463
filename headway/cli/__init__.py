"""The terminal: ``headway COMMAND``.

This module knows the commands' names and one-line summaries, and nothing heavy: ``headway --help`` reads the table
below, and a command's module is imported when it is run. `docs/cli.md` says how to add one.
"""

from __future__ import annotations

import difflib
import keyword
import sys
from collections.abc import Sequence
from importlib import import_module

from headway import __version__

SUMMARIES: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "Run the whole loop on a real trace with an embedded store, and show the page.",
        "init": "Write a first configuration by asking what is there.",
        "doctor": "Check store, brokers, topics, groups, permissions, clock, models and targets, and say what to do.",
        "serve": "Serve API, page and scaler, and run the scheduled jobs of the configured groups.",
    },
    "Look ahead": {
        "ingest": "Load a trace into the store.",
        "forecast": "Forecast the arrivals of a trace or a recorded topic.",
        "backtest": "Score forecasting methods on a trace with rolling origins.",
        "train": "Train a model, and promote it if it is better than the current one.",
        "m4": "Compute the official M4 Hourly scores.",
        "plan": "Plan members from now to the horizon.",
        "assign": "Assign partitions to consumers, once or as a sequence.",
        "simulate": "Run the control tick and rival policies over simulated members.",
    },
    "Operate": {
        "mode": "Show or set a group's mode: off, recommend, shadow or act.",
        "pause": "Stop acting for a while, for one group or for all.",
        "approve": "Approve a plan that waits for a person.",
        "prescale": "Add, list or remove pre-scaling windows and named events.",
        "rollback": "Go back to an earlier model.",
        "replay-decision": "Compute a kept decision again from its stored inputs.",
        "job": "Run one pass of a scheduled job.",
        "watch": "Watch the groups live in the terminal.",
        "report": "Write a group's evidence into one self-contained file.",
        "export": "Write recorded series to a file.",
        "import": "Read recorded series from a file.",
    },
    "Move data": {
        "worker": "Run a planned consumer.",
        "route": "Run a routed producer from standard input.",
        "move": "Move a partition to another instance, and wait for the end.",
        "split": "Split a hot partition into lanes, and wait for the end.",
        "merge": "Take a split back, and wait for the end.",
        "adopt": "Put an ordinary group under the plan.",
        "release": "Give an adopted group back to its ordinary protocol.",
    },
}
"""Command name → summary, by the order in which a user meets them. A summary is its command's first docstring line."""

EXAMPLE = "headway demo --once"
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the signal's number."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 ended by Ctrl-C.

    Parameters
    ----------
    argv
        Arguments behind the program's name; ``sys.argv`` by default.

    Examples
    --------
    >>> main(["--version"])
    headway 0.1.0
    0
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("--help", "-h", "help"):
        sys.stdout.write(overview())
        return 0 if args else 2
    if args[0] in ("--version", "-V"):
        sys.stdout.write(f"headway {__version__}\n")
        return 0
    name, *rest = args
    if name not in commands():
        near = difflib.get_close_matches(name, commands(), n=1)
        hint = f"; did you mean {near[0]}?" if near else "; headway --help lists the commands"
        sys.stderr.write(f"headway: no command {name!r}{hint}\n")
        return 2
    try:
        from headway.cli.interrupts import heeded

        with heeded():
            from headway.cli.frame import run

            return run(name, import_module(module_of(name)), rest)
    except KeyboardInterrupt:  # while modules are loaded: nothing has begun
        sys.stderr.write(f"\nheadway {name}: stopped before it began\n")
        return INTERRUPTED


def commands() -> dict[str, str]:
    """Return name → summary of all commands."""
    return {name: text for names in SUMMARIES.values() for name, text in names.items()}


def module_of(name: str) -> str:
    """Return the module that holds a command.

    Examples
    --------
    >>> module_of("replay-decision"), module_of("import")
    ('headway.cli.replay_decision', 'headway.cli.import_')
    """
    plain = name.replace("-", "_")
    return f"headway.cli.{plain}_" if keyword.iskeyword(plain) else f"headway.cli.{plain}"


def overview() -> str:
    """Return the text of ``headway --help``."""
    lines = [f"Example: {EXAMPLE}", "", "Usage: headway COMMAND [OPTIONS]", ""]
    for title, names in SUMMARIES.items():
        lines += [f"{title}:", *(f"  {name:<16} {text}" for name, text in names.items()), ""]
    lines += ["headway COMMAND --help says more. --json prints a result for machines; progress goes to stderr.", ""]
    return "\n".join(lines)
