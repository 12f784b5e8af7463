"""When to train again, and one whole round of it: train, judge, keep, promote or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from forecaster.backtest import Mapper
from forecaster.errors import ArtefactRefused, InputRefused
from forecaster.registry import Artefact, Card, ModelRegistry
from forecaster.series import ArrivalSeries
from forecaster.topics import StreamId
from forecaster.training import Champion, Training, TrainingPolicy, data_digest, score_document, train

KEEP = 5
"""Artefacts kept per stream."""


@dataclass(frozen=True, slots=True)
class RetrainPolicy:
    """When a stream is trained again.

    Raises
    ------
    ValueError
        If a field is outside its bound.
    """

    every: timedelta = timedelta(days=7)
    """At the latest this long after the last training: weekly shapes change slowly, and a week doubles young data."""

    rest: timedelta = timedelta(days=1)
    """At the earliest this long after it, drift or not: a day of new data is the least that can show a difference."""

    keep: int = KEEP
    """Artefacts kept per stream, at least 2, so that there is always one to go back to."""

    def __post_init__(self) -> None:
        if not timedelta(0) < self.rest <= self.every:
            raise ValueError(f"rest={self.rest} must be longer than zero and at most every={self.every}")
        if self.keep < 2:
            raise ValueError(f"keep={self.keep} must be at least 2")

    def due(self, last: datetime | None, now: datetime, drift: str | None = None) -> str | None:
        """Return why a stream should be trained now, or None.

        Parameters
        ----------
        last
            When it was trained last; None if never.
        now
            Aware UTC.
        drift
            What the drift detector found, if anything.

        Examples
        --------
        >>> from datetime import UTC
        >>> now = datetime(2026, 1, 10, tzinfo=UTC)
        >>> RetrainPolicy().due(datetime(2026, 1, 8, tzinfo=UTC), now)
        >>> RetrainPolicy().due(datetime(2026, 1, 8, tzinfo=UTC), now, "WAPE rose from 0.20 to 0.35")
        'drift: WAPE rose from 0.20 to 0.35'
        """
        if last is None:
            return "it was never trained"
        age = now - last
        if age >= self.every:
            return f"it was trained {age / timedelta(days=1):.1f} days ago"
        return f"drift: {drift}" if drift is not None and age >= self.rest else None


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One stream to be trained: all that a worker needs, wherever it runs."""

    series: ArrivalSeries
    stream: StreamId
    policy: TrainingPolicy
    champion: Champion | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Retrained:
    """What a round gave: the card of the new artefact, and whether it serves now."""

    card: Card
    promoted: bool
    reason: str
    training: Training


def prepare(
    series: ArrivalSeries, stream: StreamId, registry: ModelRegistry, policy: TrainingPolicy | None = None
) -> Round:
    """Return a round against what serves now."""
    champion, note = _champion(registry, stream, series)
    return Round(series, stream, policy or TrainingPolicy(), champion, note)


def run_round(round_: Round) -> Training | InputRefused:
    """Train one stream; a refusal is a result, so that it does not end the rounds of others."""
    try:
        return train(round_.series, round_.policy, round_.champion)
    except InputRefused as refused:
        return refused


def settle(round_: Round, training: Training, registry: ModelRegistry, now: datetime, keep: int = KEEP) -> Retrained:
    """Keep the artefact with its card, and promote it if it is better.

    Raises
    ------
    ArtefactRefused
        If the registry's folder cannot be written; what serves goes on serving.
    """
    stream = round_.stream
    card = registry.save(stream, training.method, _card(round_, training, now))
    if training.promote:
        registry.promote(stream, card.version, now)
    registry.prune(stream, keep)
    reason = training.reason if round_.note is None else f"{training.reason}; {round_.note}"
    return Retrained(card, training.promote, reason, training)


def retrain(
    series: ArrivalSeries,
    stream: StreamId,
    registry: ModelRegistry,
    now: datetime,
    policy: TrainingPolicy | None = None,
    *,
    keep: int = KEEP,
    map: Mapper = map,
    clock: Callable[[], float] = float,
    on_progress: Callable[[int, int], None] | None = None,
) -> Retrained:
    """Run a whole round for one stream; its origins may run in parallel.

    Raises
    ------
    InputRefused
        If there is too little data.
    ArtefactRefused
        If the registry's folder cannot be written; what serves goes on serving.
    """
    round_ = prepare(series, stream, registry, policy)
    training = train(series, round_.policy, round_.champion, map=map, clock=clock, on_progress=on_progress)
    return settle(round_, training, registry, now, keep)


def last_trained(registry: ModelRegistry, stream: StreamId) -> datetime | None:
    """Return when a stream was trained last, promoted or not; None if never, or if that cannot be read."""
    versions = registry.versions(stream)
    if not versions:
        return None
    try:
        return datetime.fromisoformat(registry.read_card(registry.folder(stream) / versions[-1]).created_at)
    except ArtefactRefused:
        return None


def already_trained(
    series: ArrivalSeries, stream: StreamId, registry: ModelRegistry, policy: TrainingPolicy | None = None
) -> Card | None:
    """Return the card of the newest artefact if it was trained on these very data and so, for a run to be resumed."""
    versions = registry.versions(stream)
    if not versions:
        return None
    try:
        card = registry.read_card(registry.folder(stream) / versions[-1])
    except ArtefactRefused:
        return None
    same = card.data_sha256 == data_digest(series) and card.recipe == (policy or TrainingPolicy()).recipe()
    return card if same else None


def finish(card: Card, stream: StreamId, registry: ModelRegistry, now: datetime) -> bool:
    """Promote an artefact that was found better, if the run that made it ended before it could; say whether it was.

    What was promoted, or rolled back, since it was made is left as it is.

    Raises
    ------
    ArtefactRefused
        If it cannot be opened, or the registry's folder cannot be written.
    """
    since = registry.since(stream)
    if not card.scores.get("promote") or (since is not None and since >= datetime.fromisoformat(card.created_at)):
        return False
    registry.promote(stream, card.version, now)
    return True


def _champion(registry: ModelRegistry, stream: StreamId, series: ArrivalSeries) -> tuple[Champion | None, str | None]:
    """Return what serves now; what cannot be opened or has another step cannot be compared with."""
    try:
        if registry.current(stream) is None:
            return None, None
        current: Artefact = registry.load(stream)
    except ArtefactRefused as refused:
        return None, f"what served before cannot be compared with: {refused}"
    if current.card.step_s != series.grid.step_s:
        return None, f"what served before was trained on steps of {current.card.step_s} s"
    return Champion(current.method, datetime.fromisoformat(current.card.data_end)), None


def _card(round_: Round, training: Training, now: datetime) -> Card:
    series, stream, plan = round_.series, round_.stream, training.report.plan
    parameters: dict[str, Any] = getattr(training.method, "get_params", dict)()
    return Card(
        topic=stream.topic,
        cluster=stream.cluster,
        method=training.method.name,
        params={k: v for k, v in parameters.items() if isinstance(v, bool | int | float | str | None)},
        step_s=series.grid.step_s,
        timezone=series.grid.timezone,
        data_start=series.start.isoformat(),
        data_end=series.end.isoformat(),
        data_steps=series.steps,
        partitions=len(series.partitions),
        known_share=round(series.coverage, 6),
        data_sha256=data_digest(series),
        seed=round_.policy.seed,
        created_at=now.isoformat(),
        recipe=round_.policy.recipe(),
        scores={
            "promote": training.promote,
            "origins": len(training.report.origins),
            "horizon_s": plan.horizon_steps * series.grid.step_s,
            **{name: score_document(m.mean) for name, m in training.report.methods.items()},
        },
    )
