"""headway train: train a stream's own model, and promote it if it is better."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.bundles import Days, Trace, Workers
from headway.cli.options import keeps_models
from headway.cli.output import Json, bar, emit_json, emit_table

if TYPE_CHECKING:
    from datetime import datetime

    from forecaster.backtest import Mapper
    from forecaster.calendar import Calendar
    from forecaster.registry import Card, ModelRegistry
    from forecaster.retraining import Retrained
    from forecaster.series import ArrivalSeries
    from forecaster.topics import StreamId
    from forecaster.training import TrainingPolicy

    Load = Callable[[], tuple[ArrivalSeries, Calendar]]

EXAMPLE = "headway train --input data/nyc_taxi_30min.csv.gz --timezone America/New_York"
STOPPED = "models that were finished are kept, the others are as before; --resume leaves out what is finished"


def command(
    input: Annotated[
        list[Path] | None, typer.Option("--input", help="Trace file or a folder of them; may be given again.")
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="A recorded topic; may be given again.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every recorded topic of the configured store.")] = False,
    out: Annotated[Path | None, typer.Option(help="Models folder; the configured one by default.")] = None,
    method: Annotated[str, typer.Option(help="What to train.")] = "auto",
    test_days: Annotated[int, typer.Option(min=1, help="Daily origins held back for the judgement.")] = 7,
    margin: Annotated[
        float, typer.Option(min=0, max=0.5, help="By how much it must be better than the champion.")
    ] = 0.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out streams already trained on the same data.")
    ] = False,
    card: Annotated[
        Path | None, typer.Option(help="Train again what this card.json describes, and say whether it is the same.")
    ] = None,
    *,
    trace: Trace,
    days: Days,
    workers: Workers,
    seed: sources.Seed = 0,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Train a model, and promote it if it is better than the current one.

    The last days are held back, forecast day by day, and compared with the current artefact, with yesterday and with
    last week; what is kept is then trained on everything. Nothing that serves is changed unless the new one is better.
    A run that was killed goes on with --resume: streams that are done are left out.
    """
    from datetime import UTC, datetime

    from forecaster.training import TrainingPolicy
    from headway.configuration.settings import load

    if card is not None:
        _again(card, input, topic, trace, seed, config, json)
        return
    settings = load(config)
    registry = sources.registry(settings, out)
    policy = TrainingPolicy(method=method, test_days=test_days, margin=margin, seed=seed)
    now = datetime.now(UTC)
    if not (input or topic or everything):
        raise typer.BadParameter("say --input FILE, --topic TOPIC or --all", param_hint="--input")
    keeps_models(registry.root)
    with ExitStack() as stack:
        named = days.calendar()
        streams: list[Load] = [partial(_of_file, file, trace, seed, named) for file in _files(input or [])]
        if topic or everything:
            store = stack.enter_context(sources.recorded(config, days))
            names = store.store.topics() if everything else topic or ()
            streams += [partial(_of_topic, store, name) for name in names]
        run = stack.enter_context(workers.open())
        progress = stack.enter_context(bar("training", len(streams)))
        rows = []
        for row in _rounds(streams, settings.cluster, registry, policy, now, run, resume):
            rows.append(row)
            progress.advance(note=str(row["topic"]))
    if json:
        emit_json(rows[0] if len(rows) == 1 else {"streams": rows})
    else:
        keys = ("topic", "version", "promoted", "reason")
        emit_table(keys, [[row[key] for key in keys] for row in rows])


def _files(given: Sequence[Path]) -> Iterator[Path]:
    """Yield the trace files of what was given: files as they are, folders by name."""
    for path in given:
        inside = sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path} holds no .csv or .csv.gz", param_hint="--input")
        yield from inside


def _of_file(file: Path, trace: Trace, seed: int, calendar: Calendar) -> tuple[ArrivalSeries, Calendar]:
    """Load a file when its turn has come, so that only the streams under way are in memory."""
    return trace.read(file, seed), calendar


def _of_topic(store: sources.Recorded, topic: str) -> tuple[ArrivalSeries, Calendar]:
    return store.history(topic), store.service.calendar(topic)


def _again(
    card: Path, files: list[Path] | None, topics: list[str] | None, trace: Trace, seed: int, config: Path | None,
    json: bool,
) -> None:  # fmt: skip
    """Train what a card describes once more, and compare; exit code 1 if it is not the same."""
    from forecaster.registry import ModelRegistry
    from forecaster.reproduction import reproduce

    if len([*(files or ()), *(topics or ())]) != 1:
        raise typer.BadParameter("say the data that it was trained on: one --input or one --topic", param_hint="--card")
    kept = ModelRegistry(card.parent).read_card(card.parent if card.is_file() else card)
    if files:
        series = replace(trace, timezone=kept.timezone).read(files[0], seed)
    else:
        with sources.recorded(config) as store:
            series = store.history(str((topics or [""])[0]))
    done = reproduce(kept, series)
    if json:
        emit_json(done.to_dict())
    else:
        rows = [[key, ", ".join(value) if isinstance(value, list) else value] for key, value in done.to_dict().items()]
        emit_table(["", ""], rows)
    if not done.same_bytes:
        raise typer.Exit(1)


def _rounds(
    streams: Sequence[Load],
    cluster: str,
    registry: ModelRegistry,
    policy: TrainingPolicy,
    now: datetime,
    run: Mapper,
    resume: bool,
) -> Iterator[dict[str, Any]]:
    """Train each stream; several go to the workers whole, a single one lets its origins run in parallel."""
    from forecaster.errors import InputRefused
    from forecaster.retraining import Round, already_trained, prepare, retrain, run_round, settle
    from forecaster.topics import StreamId

    if len(streams) == 1:
        series, calendar = streams[0]()
        stream, policy = StreamId(cluster, series.topic), replace(policy, calendar=calendar)
        done = already_trained(series, stream, registry, policy) if resume else None
        yield (
            _skipped(done, stream, registry, now)
            if done
            else _row(retrain(series, stream, registry, now, policy, map=run))
        )
        return
    under_way: deque[Round] = deque()
    rows: deque[dict[str, Any]] = deque()

    def tasks() -> Iterator[Round]:
        for load in streams:
            try:
                series, calendar = load()
                stream, own = StreamId(cluster, series.topic), replace(policy, calendar=calendar)
                done = already_trained(series, stream, registry, own) if resume else None
            except InputRefused as refused:
                rows.append(_refused(str(refused), None))
                continue
            if done is not None:
                rows.append(_skipped(done, stream, registry, now))
                continue
            round_ = prepare(series, stream, registry, own)
            under_way.append(round_)
            yield round_

    for result in run(run_round, tasks()):
        round_ = under_way.popleft()
        if isinstance(result, InputRefused):
            yield _refused(str(result), round_.stream.topic)
        else:
            yield _row(settle(round_, result, registry, now))
        while rows:
            yield rows.popleft()
    yield from rows


def _row(done: Retrained) -> dict[str, Any]:
    card = done.card
    periods = [p.to_dict() for p in done.training.periods]
    return _line(card.topic, card.version, done.promoted, done.reason, card.to_dict()) | {"periods": periods}


def _skipped(card: Card, stream: StreamId, registry: ModelRegistry, now: datetime) -> dict[str, Any]:
    from forecaster.retraining import finish

    promoted = finish(card, stream, registry, now)
    why = "already trained on these data" + (
        "; promoted now, the run that trained it was cut short" if promoted else ""
    )
    return _line(card.topic, card.version, promoted, why, card.to_dict())


def _refused(reason: str, topic: str | None) -> dict[str, Any]:
    return _line(topic, None, False, reason, None)


def _line(
    topic: str | None, version: str | None, promoted: bool, reason: str, card: dict[str, Any] | None
) -> dict[str, Any]:
    return {"topic": topic, "version": version, "promoted": promoted, "reason": reason, "card": card}
