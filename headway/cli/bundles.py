"""Options that several commands share, a bundle at a time: each is declared once, and arrives as one value.

A command that takes ``trace: Trace`` has the options ``--series``, ``--partitions`` … in its help, and gets a
:class:`Trace`. :func:`expanded` makes of such a function the one that typer sees.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from headway.cli import sources

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from forecaster.backtest import Mapper
    from forecaster.calendar import Calendar
    from forecaster.series import ArrivalSeries


@dataclass(frozen=True, slots=True)
class Trace:
    """How a trace file is read."""

    series: sources.SeriesName = None
    partitions: sources.Partitions = None
    skew: sources.Skew = "zipf:1.0"
    timezone: sources.Timezone = "UTC"
    missing: sources.Missing = None

    def read(self, file: Path, seed: int) -> ArrivalSeries:
        """Read a file so, and tell the user what it holds."""
        return sources.arrivals_of_file(
            file, self.series, self.partitions, self.skew, seed, self.timezone, self.missing
        )


@dataclass(frozen=True, slots=True)
class Days:
    """Which days are not like others."""

    holidays: Annotated[
        str | None,
        typer.Option(help="Region whose holidays count, such as DE-BY or US; of a topic, the configured one."),
    ] = None
    events: Annotated[
        Path | None, typer.Option(help='Named events: a JSON list of {"name", "from", "to", "factor"}.')
    ] = None

    def calendar(self, configured: Calendar | None = None) -> Calendar:
        """Return the calendar that was asked for; the configured region where none is named."""
        from forecaster.calendar import Calendar
        from headway.configuration.events_file import read_events

        region = self.holidays or (configured.region if configured is not None else None)
        more = configured.events if configured is not None else ()
        return Calendar(region, (*more, *(read_events(self.events) if self.events is not None else ())))


@dataclass(frozen=True, slots=True)
class Workers:
    """Where the work runs."""

    backend: sources.BackendName = "loky"
    jobs: sources.Jobs = 1
    address: sources.Address = None

    def open(self) -> AbstractContextManager[Mapper]:
        """Open the mapper."""
        from headway.work.parallel import mapper

        return mapper(self.backend, self.jobs, self.address)


@dataclass(frozen=True, slots=True)
class HandOver:
    """How a whole group is handed over."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what will happen.")] = False
    within: Annotated[str, typer.Option(help="How long to wait for others.")] = "5m"


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function with every bundle's fields as options of its own, in the place of the bundle.

    Examples
    --------
    >>> def command(topic: str, workers: Workers) -> None:
    ...     print(topic, workers.jobs)
    >>> list(inspect.signature(expanded(command)).parameters)
    ['topic', 'backend', 'jobs', 'address']
    >>> expanded(command)(topic="orders", jobs=2)
    orders 2
    """
    hints = get_type_hints(function, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    if not bundles:
        return function
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = bundles.get(parameter.name)
        if kind is None:
            annotated = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
            parameters.append(annotated)
            continue
        inside = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=inside[f.name])
            for f in fields(kind)
        ]

    def run(**given: Any) -> None:
        for name, kind in bundles.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind) if f.name in given})
        function(**given)

    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
