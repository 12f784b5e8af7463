"""The retrain job: models of a group's topics, and the planner's knobs; in a child process while we serve."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from balancer.policy import ScalingPolicy
from headway.configuration.settings import Settings

if TYPE_CHECKING:
    from balancer.knobs import Knobs
    from forecaster.serving import ForecastService
    from forecaster.stores.base import SeriesStore
    from headway.application import Application
    from headway.work.loops import GroupRunner


def retraining(app: Application, service: ForecastService, runner: GroupRunner) -> Callable[[], str]:
    """Return the job of one group."""

    def run() -> str:
        now = app.clock()
        if app.trainers is None:
            said = retrain_topics(app.settings, service, app.store, runner.topics, now)
            return "; ".join([*said, runner.learn()])
        said = app.trainers.run(_in_child, app.settings, app.url, runner.topics, now)
        teach = runner.lesson()
        return "; ".join([*said, teach if isinstance(teach, str) else _taught(app, runner, *teach)])

    return run


def _taught(
    app: Application, runner: GroupRunner, topics: tuple[str, ...], policy: ScalingPolicy, now: datetime
) -> str:
    assert app.trainers is not None
    return runner.keep_knobs(app.trainers.run(_knobs_in_child, app.settings, app.url, topics, policy, now), now)


def retrain_topics(
    settings: Settings, service: ForecastService, store: SeriesStore, topics: tuple[str, ...], now: datetime
) -> list[str]:
    """Train what is due, and promote what is better; one line a topic."""
    from forecaster.desk import ForecastDesk
    from forecaster.errors import InputRefused
    from forecaster.retraining import RetrainPolicy, last_trained, retrain
    from forecaster.scorekeeping import Scorekeeper
    from forecaster.topics import StreamId
    from forecaster.training import TrainingPolicy, judgement
    from headway.wiring import open_registry

    said, registry = [], open_registry(settings)
    desk = ForecastDesk(service, Scorekeeper(store))
    for topic in topics:
        stream = StreamId(settings.cluster, topic)
        history = service.history(topic, now)
        if history is None:
            said.append(f"{topic}: nothing is recorded yet")
            continue
        why = RetrainPolicy().due(last_trained(registry, stream), now, desk.drift(topic, now))
        if why is None:
            said.append(f"{topic}: not due")
            continue
        policy = TrainingPolicy(calendar=service.calendar(topic))
        try:
            judgement(history, policy)
        except InputRefused as young:  # not a failure, and no reason to leave the other topics out
            said.append(f"not yet: {young}")
            continue
        result = retrain(history, stream, registry, now, policy)
        said.append(f"{topic}: {why}: {'promoted' if result.promoted else 'kept the old one'}, {result.reason}")
    return said


def _in_child(settings: Settings, url: str, topics: tuple[str, ...], now: datetime) -> list[str]:
    from headway.wiring import open_forecasts, open_series

    store = open_series(settings, url)
    try:
        return retrain_topics(settings, open_forecasts(settings, store), store, topics, now)
    finally:
        store.close()


def _knobs_in_child(
    settings: Settings, url: str, topics: tuple[str, ...], policy: ScalingPolicy, now: datetime
) -> Knobs | str:
    from headway.wiring import open_forecasts, open_series
    from headway.work.lessons import history_of, knobs_from

    store = open_series(settings, url)
    try:
        history = history_of(open_forecasts(settings, store), topics, now)
        return history if isinstance(history, str) else knobs_from(history, policy)
    finally:
        store.close()
