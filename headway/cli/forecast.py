"""headway forecast: one forecast of a trace or a recorded topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import sources
from headway.cli.bundles import Days, Trace
from headway.cli.output import Json, emit_json, emit_table, say
from headway.configuration.durations import instant

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from forecaster.forecast import ForecastResult
    from forecaster.methods.base import Method
    from forecaster.series import ArrivalSeries

EXAMPLE = "headway forecast --input data/dc_bikeshare_1h.csv.gz --horizon 24h --timezone America/New_York"

MAX_STEPS = 100_000


def command(
    horizon: Annotated[str, typer.Option(help="How far ahead, with a unit.")],
    input: sources.InputFile = None,
    topic: sources.Topic = None,
    step: Annotated[str | None, typer.Option(help="Longer steps than the recorded ones, such as 15m.")] = None,
    origin: Annotated[str | None, typer.Option(help="Forecast from this instant; nothing later is looked at.")] = None,
    levels: Annotated[str, typer.Option(help="Quantile levels.")] = ".5,.9,.95,.99",
    method: Annotated[str, typer.Option(help="A method's name, or auto: the best rung that can answer.")] = "auto",
    *,
    trace: Trace,
    days: Days,
    seed: sources.Seed = 0,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Forecast the arrivals of a trace or a recorded topic.

    From a file, auto trains on what lies before the origin; of a recorded topic, auto takes the current artefact. Both
    step down the ladder where they must, and the rung and the reasons are part of the answer. The origin is where the
    data end, unless another is named. Holidays and events that are over are no pattern; events ahead multiply.
    """
    from forecaster.calendar import apply_events
    from forecaster.forecast import Forecast
    from forecaster.periods import found_periods

    sources.exactly_one(input, topic)
    asked, ahead = sources.levels(levels), sources.duration(horizon, "--horizon")
    at = None if origin is None else sources.instant(origin, "--origin")
    calendar, health = days.calendar(), None
    if topic is not None and method == "auto" and step is None:
        with sources.recorded(config, days) as store:
            calendar = store.service.calendar(topic)
            history = store.history(topic, at)
            now = at or store.end(topic)
            result = store.service.forecast(topic, now, ahead, asked)
            health = store.health(topic, now)
            if isinstance(result, Forecast):
                result = apply_events(result, calendar.events)
    else:
        if input is not None:
            history = _until(trace.read(input, seed), at)
        else:
            assert topic is not None
            with sources.recorded(config, days) as store:
                history, calendar = store.history(topic, at), store.service.calendar(topic)
        history = sources.in_steps(history, step)
        steps = _steps(ahead, history.grid.step, horizon)
        chosen = _method(method, seed).fit([calendar.usual(history)])
        result = calendar.forecast(chosen, history, steps, asked)
    periods = found_periods(history)
    if json:
        from headway.status.wire import forecast_document

        more = {"periods": [p.to_dict() for p in periods]} | ({} if health is None else {"health": health})
        emit_json(forecast_document(result) | more)
    else:
        _print(result)
        if health is not None:
            say(f"{'may act' if health['may_act'] else 'may not act'}: {'; '.join(health['reasons'])}")
        sources.say_periods(periods)


def _steps(ahead: timedelta, step: timedelta, text: str) -> int:
    steps = -(-ahead // step)
    if not 0 < steps <= MAX_STEPS:
        raise typer.BadParameter(
            f"{text} is {steps} steps of {step}; between 1 and {MAX_STEPS} can be forecast", param_hint="--horizon"
        )
    return steps


def _method(name: str, seed: int) -> Method:
    from forecaster.methods.catalogue import make_method

    return sources.auto(seed) if name == "auto" else make_method(name)


def _until(history: ArrivalSeries, at: datetime | None) -> ArrivalSeries:
    """Let the history end at the origin."""
    from forecaster.errors import InputRefused

    if at is None:
        return history
    if not history.start < at <= history.end:
        raise InputRefused(
            f"--origin {instant(at)} lies outside what is recorded, {instant(history.start)} to "
            f"{instant(history.end)}; choose an instant within it"
        )
    return history.until(at)


def _print(result: ForecastResult) -> None:
    from forecaster.forecast import NoForecast

    if isinstance(result, NoForecast):
        later = "" if result.possible_from is None else f" (possible from {instant(result.possible_from)})"
        say(f"no forecast: {result.reason}{later}")
        return
    say(f"{result.topic} from {instant(result.origin)}: rung {result.rung}, method {result.method}")
    for reason in result.reasons:
        say(f"  {reason}")
    headers = ["from", *(f"{q:g}" for q in result.levels)]
    every = max(1, result.steps // 24)
    rows = [
        [instant(result.origin + k * result.step), *(float(v) for v in result.total[k])]
        for k in range(0, result.steps, every)
    ]
    say("records/s of the topic" + (f", every {every}th step" if every > 1 else ""))
    emit_table(headers, rows)
