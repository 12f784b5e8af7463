"""headway train: train a stream's own model, and promote it if it is better."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.output import Json, bar, emit_json, emit_table

if TYPE_CHECKING:
    from datetime import datetime

    from forecaster.backtest import Mapper
    from forecaster.registry import Card, ModelRegistry
    from forecaster.retraining import Retrained
    from forecaster.series import ArrivalSeries
    from forecaster.training import TrainingPolicy

EXAMPLE = "headway train --input data/nyc_taxi_30min.csv.gz --timezone America/New_York"


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
    series: sources.SeriesName = None,
    partitions: sources.Partitions = None,
    skew: sources.Skew = "zipf:1.0",
    seed: sources.Seed = 0,
    timezone: sources.Timezone = "UTC",
    missing: sources.Missing = None,
    backend: sources.BackendName = "loky",
    jobs: sources.Jobs = 1,
    address: sources.Address = None,
    config: sources.ConfigFile = None,
    json: Json = False,
) -> None:
    """Train a model, and promote it if it is better than the current one.

    The last days are held back, forecast day by day, and compared with the current artefact, with yesterday and with
    last week; what is kept is then trained on everything. Nothing that serves is changed unless the new one is better.
    """
    from datetime import UTC, datetime

    from forecaster.training import TrainingPolicy
    from headway.parallel import mapper
    from headway.settings import load

    settings = load(config)
    registry = sources.registry(settings, out)
    policy = TrainingPolicy(method=method, test_days=test_days, margin=margin, seed=seed)
    now = datetime.now(UTC)
    if not (input or topic or everything):
        raise typer.BadParameter("say --input FILE, --topic TOPIC or --all", param_hint="--input")
    with ExitStack() as stack:
        streams = list(_files(input or [], (series, partitions, skew, seed, timezone, missing)))
        if topic or everything:
            store = stack.enter_context(sources.recorded(config))
            streams += [partial(store.history, name) for name in (store.store.topics() if everything else topic or ())]
        run = stack.enter_context(mapper(backend, jobs, address))
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


def _files(files: Sequence[Path], options: tuple[Any, ...]) -> Iterator[Callable[[], ArrivalSeries]]:
    """Yield a loader a stream, so that only those under way are in memory."""
    for path in files:
        inside = sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path} holds no .csv or .csv.gz", param_hint="--input")
        for file in inside:
            yield partial(sources.arrivals_of_file, file, *options)


def _rounds(
    streams: Sequence[Callable[[], ArrivalSeries]],
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
        series = streams[0]()
        stream = StreamId(cluster, series.topic)
        done = already_trained(series, stream, registry) if resume else None
        yield _skipped(done) if done else _row(retrain(series, stream, registry, now, policy, map=run))
        return
    under_way: deque[Round] = deque()
    rows: deque[dict[str, Any]] = deque()

    def tasks() -> Iterator[Round]:
        for load in streams:
            try:
                series = load()
                stream = StreamId(cluster, series.topic)
                done = already_trained(series, stream, registry) if resume else None
            except InputRefused as refused:
                rows.append(_refused(str(refused), None))
                continue
            if done is not None:
                rows.append(_skipped(done))
                continue
            round_ = prepare(series, stream, registry, policy)
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
    return {
        "topic": card.topic,
        "version": card.version,
        "promoted": done.promoted,
        "reason": done.reason,
        "card": card.to_dict(),
    }


def _skipped(card: Card) -> dict[str, Any]:
    reason = "already trained on these data"
    return {
        "topic": card.topic,
        "version": card.version,
        "promoted": False,
        "reason": reason,
        "card": card.to_dict(),
    }


def _refused(reason: str, topic: str | None) -> dict[str, Any]:
    return {"topic": topic, "version": None, "promoted": False, "reason": reason, "card": None}
