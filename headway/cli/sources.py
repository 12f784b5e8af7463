"""Where a command's arrivals come from: a trace file, or a recorded topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from forecaster.ladder import Ladder
    from forecaster.periods import Period
    from forecaster.registry import ModelRegistry
    from forecaster.series import ArrivalSeries
    from forecaster.serving import ForecastService
    from forecaster.stores.base import SeriesStore
    from headway.cli.bundles import Days
    from headway.configuration.settings import Settings

InputFile = Annotated[
    Path | None, typer.Option("--input", help="Trace file: CSV timestamp,series,value, gzip or plain.")
]
Topic = Annotated[str | None, typer.Option(help="A recorded topic instead of a file.")]
SeriesName = Annotated[str | None, typer.Option("--series", help="Take this series of the file only.")]
Partitions = Annotated[int | None, typer.Option(help="Spread one series over so many partitions.")]
Skew = Annotated[str, typer.Option(help="How unevenly: zipf:S or even.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Timezone = Annotated[
    str, typer.Option("--timezone", "--zone", help="Zone whose wall clock the seasons follow, such as Europe/Berlin.")
]
Missing = Annotated[
    float | None, typer.Option(help="What the file writes where nothing is known, such as --missing=-1: a gap.")
]
BackendName = Annotated[Literal["loky", "dask", "ray"], typer.Option(help="Where the work runs.")]
Jobs = Annotated[int, typer.Option(min=1, help="Tasks at once.")]
Address = Annotated[str | None, typer.Option(help="Of a Dask or Ray cluster; a local one is started without it.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; headway.toml by default.")]


def duration(text: str, option: str) -> timedelta:
    """Read a duration option; a wrong one is wrong usage.

    Examples
    --------
    >>> duration("90m", "--horizon")
    datetime.timedelta(seconds=5400)
    """
    from headway.configuration.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint=option) from exc


def levels(text: str) -> tuple[float, ...]:
    """Read quantile levels, such as ``.5,.9,.95``; sorted.

    Examples
    --------
    >>> levels(".9,.5")
    (0.5, 0.9)
    """
    try:
        values = tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as .5,.9,.95", param_hint="--levels") from exc
    if not values or not all(0 < q < 1 for q in values):
        raise typer.BadParameter(f"{text!r}: levels lie between 0 and 1, such as .5,.9,.95", param_hint="--levels")
    return values


def instant(text: str, option: str) -> datetime:
    """Read an instant with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r} is not ISO 8601, such as 2026-01-05T09:00:00Z", param_hint=option) from exc
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; add Z or an offset", param_hint=option)
    return at


def arrivals_of_file(
    file: Path,
    series: str | None,
    partitions: int | None,
    skew: str,
    seed: int,
    timezone: str,
    missing: float | None = None,
) -> ArrivalSeries:
    """Read a trace as a command's options say, and tell the user what it holds."""
    from forecaster.ingest.trace import read_trace, spread
    from headway.cli.output import say

    found = read_trace(file, series, timezone=timezone, missing=missing)
    if partitions is not None:
        found = spread(found, partitions, skew, seed)
    say(
        f"{file}: {len(found.partitions)} series, step {found.grid.step_s} s, "
        f"{found.start:%Y-%m-%dT%H:%MZ} to {found.end:%Y-%m-%dT%H:%MZ}, {1 - found.coverage:.2%} missing"
    )
    return found


def in_steps(history: ArrivalSeries, text: str | None) -> ArrivalSeries:
    """Return a history in the steps that ``--step`` asks for."""
    from forecaster.errors import InputRefused

    if text is None:
        return history
    try:
        return history.at_step(int(duration(text, "--step").total_seconds()))
    except ValueError as exc:
        raise InputRefused(f"--step {text}: {exc}") from exc


def say_periods(periods: Sequence[Period]) -> None:
    """Tell the user which periods the topic's sum has."""
    from headway.cli.output import say

    said = ", ".join(f"{p.hours:g} h ({p.share:.0%} of what was left to explain)" for p in periods)
    say(f"periods: {said or 'none that the data show'}")


@contextmanager
def recorded(config: Path | None, days: Days | None = None) -> Iterator[Recorded]:
    """Open the configured store for reading, and the service that forecasts from it, on the days that are asked for."""
    from headway.configuration.settings import load
    from headway.wiring import open_forecasts, open_series, store_url

    settings = load(config)
    with store_url(settings) as url:
        store = open_series(settings, url)
        try:
            calendar = None if days is None else days.calendar
            yield Recorded(store, open_forecasts(settings, store, calendar=calendar), settings.store_place)
        finally:
            store.close()


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded topics and their forecasts; ``place`` says where the store is, for whoever looked into another one."""

    store: SeriesStore
    service: ForecastService
    place: str = "this store"

    def end(self, topic: str) -> datetime:
        """Return where the record of a topic ends: the origin when nobody says another.

        Raises
        ------
        InputRefused
            If the topic was never recorded; names the nearest that was.
        """
        import difflib

        from forecaster.errors import InputRefused
        from forecaster.timegrid import TimeGrid

        meta = self.store.meta(topic)
        if meta is None or meta.last_index is None:
            near = difflib.get_close_matches(topic, self.store.topics(), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "headway ingest loads one, headway serve records"
            raise InputRefused(f"no topic {topic!r} is recorded in {self.place}; {hint}")
        return TimeGrid(meta.step_s).start_of(meta.last_index + 1)

    def health(self, topic: str, now: datetime) -> dict[str, Any]:
        """Return how the forecasts of a topic did over the last day, what its gate says, and what drifted."""
        from forecaster.drift import drift
        from forecaster.gate import verdict
        from forecaster.scorekeeping import Scorekeeper

        log = Scorekeeper(self.store).log(topic, now)
        if log is None:
            return {"may_act": False, "reasons": ["it was never recorded"]}
        word = verdict(log, now)
        seen = word.health
        return {
            "may_act": word.may_act,
            "reasons": list(word.reasons),
            "points": seen.points,
            "wape": seen.wape,
            "bias": seen.bias,
            "coverage": {f"{q:g}": v for q, v in seen.coverage.items()},
            "naive": dict(seen.naive),
            "drift": drift(log, now),
        }

    def history(self, topic: str, at: datetime | None = None) -> ArrivalSeries:
        """Return the last eight weeks of a topic up to an instant; raises as :meth:`end` does."""
        from forecaster.errors import InputRefused
        from headway.configuration.durations import instant as written

        history = self.service.history(topic, at or self.end(topic))
        if history is None or not history.known.any():
            raise InputRefused(
                f"{topic}: no arrivals are recorded in the eight weeks before {written(at or self.end(topic))} in "
                f"{self.place}; while headway serve runs the first come after three steps, and headway ingest or "
                "import loads a history"
            )
        return history


def exactly_one(file: Path | None, topic: str | None) -> None:
    """Insist on one source of arrivals."""
    if (file is None) == (topic is None):
        raise typer.BadParameter("say either --input FILE or --topic TOPIC", param_hint="--input")


def auto(seed: int) -> Ladder:
    """Return the ladder as a method: its own model is trained by ``fit``, the shipped one stands in."""
    from forecaster.forecast import Rung
    from forecaster.ladder import Ladder
    from forecaster.training import trainable
    from forecaster.zero_shot import shipped

    stand_in, why = shipped()
    return Ladder(trainable("auto", seed), stand_in, passed_over={} if why is None else {Rung.ZERO_SHOT: why})


def registry(settings: Settings, folder: Path | None = None) -> ModelRegistry:
    """Open the models folder that the settings name, or another, with the settings' key."""
    from forecaster.registry import ModelRegistry
    from headway.configuration.settings import secret

    key = secret(settings.models.hmac_key, settings.models.hmac_key_file)
    return ModelRegistry(folder or settings.model_folder, key=None if key is None else key.encode())
