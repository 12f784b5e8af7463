"""What commands print: results on stdout as a table or JSON, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

import typer

from headway.configuration.durations import instant

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
"""The ``--json`` option; every command that has a result takes it."""


def emit_json(result: object) -> None:
    """Print a result for machines.

    Instants become ISO 8601 UTC, durations seconds, numpy values plain ones; NaN and infinity are refused, since
    unknown is ``null``.

    Examples
    --------
    >>> from datetime import UTC
    >>> emit_json({"at": datetime(2026, 1, 5, tzinfo=UTC), "for_s": timedelta(minutes=1)})
    {"at": "2026-01-05T00:00:00Z", "for_s": 60.0}
    """
    sys.stdout.write(to_json(result) + "\n")


def emit_record(record: Mapping[str, object], as_json: bool) -> None:
    """Print one record: a JSON document, or a table of one row."""
    if as_json:
        emit_json(record)
    else:
        emit_table(list(record), [list(record.values())])


def to_json(result: object) -> str:
    """Return a result as JSON text; see :func:`emit_json`."""
    return json.dumps(result, default=_plain, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return tolist()
    return str(value)


def emit_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headers; columns of numbers are right-aligned, ``None`` is a dash.

    Examples
    --------
    >>> emit_table(["policy", "late"], [["headway", 0.0003], ["rate_reactive", None]])
    policy           late
    headway        0.0003
    rate_reactive       -
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(h), *(len(r[i]) for r in cells)]) for i, h in enumerate(headers)]
    numeric = [
        all(isinstance(r[i], int | float) or r[i] is None for r in rows) and bool(rows) for i in range(len(headers))
    ]
    for line in [list(headers), *cells]:
        text = "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True))
        sys.stdout.write(text.rstrip() + "\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return instant(value)
    return str(value)


def say(text: str) -> None:
    """Tell the user about progress, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Bar(Protocol):
    """Progress of one piece of work."""

    def advance(self, done: float = 1.0, note: str | None = None) -> None:
        """Say that ``done`` more units are finished; ``note`` replaces the text beside the bar."""
        ...


@contextmanager
def bar(label: str, total: float | None = None) -> Iterator[Bar]:
    """Show progress on stderr: a moving bar on a terminal, one line at the start elsewhere."""
    if not sys.stderr.isatty():
        say(f"{label} …")
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, note="")

        class Moving:
            def advance(self, done: float = 1.0, note: str | None = None) -> None:
                fields: dict[str, Any] = {} if note is None else {"note": note}
                progress.update(task, advance=done, **fields)

        yield Moving()


class _Silent:
    def advance(self, done: float = 1.0, note: str | None = None) -> None:
        """Say nothing: the output is not a terminal."""
