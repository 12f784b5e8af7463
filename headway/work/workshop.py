"""Where a group's runner is made: its observer, its target, its jobs; one cluster's connections serve all groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from balancer.actuators.memory import MemoryActuator
from balancer.group import PartitionState
from forecaster.ingest.recorder import Recorder
from forecaster.ingest.sampler import RecordSampler
from forecaster.offsets import CountingPolicy
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.actuators import KedaActuator
from headway.consumers.planned_groups import with_workers
from headway.operation.posting import Posting
from headway.wiring import open_prometheus, open_source, open_target
from headway.work.facts import recorded_states
from headway.work.loops import GroupRunner, RecordedObserver, WithReplicas
from headway.work.recording import record_job
from headway.work.retraining import retraining

if TYPE_CHECKING:
    from balancer.actuators.base import Actuator
    from balancer.actuators.board import ScalerBoard
    from balancer.observers.kafka import KafkaGroupObserver
    from forecaster.serving import ForecastService
    from headway.application import Application
    from headway.work.jobs import Jobs


class Recording:
    """The record job over the cluster or a Prometheus: one recorder for all groups, which may come and go."""

    def __init__(self, app: Application) -> None:
        self._app = app
        settings = app.settings
        self.cluster = open_source(settings, app.clock) if settings.from_cluster else None
        """Knows groups as well; None where offsets come from a Prometheus."""
        self._groups: dict[GroupId, Sequence[str]] = {}
        step_s = min((settings.grid(name).step_s for name in settings.groups), default=60)
        sampler = None if self.cluster is None else RecordSampler(settings.kafka_properties())
        self._recorder = Recorder(
            app.store,
            self.cluster or open_prometheus(settings, app.clock),
            {},
            policy=CountingPolicy.for_step(step_s),
            delays=None if sampler is None else sampler.delays_ms,
            shares=None if sampler is None else sampler.record_share,
            clock=app.clock,
        )
        self.job: Callable[[], str] = record_job(app, self._recorder, self._groups)

    def watch(self, groups: Mapping[GroupId, Sequence[str]]) -> None:
        """Record these groups and their topics from the next look on."""
        self._groups.clear()
        self._groups.update(groups)
        self._recorder.follow(groups)

    def close(self) -> None:
        """Write what waits, and give up the connections."""
        self._recorder.close()


class Workshop:
    """Makes groups' runners.

    Parameters
    ----------
    app, jobs, posts
        What runs, where passes are scheduled, and the numbers that scalers poll.
    service
        Who forecasts.
    recording
        Who looks at the offsets; None where arrivals come by push or from files.
    """

    def __init__(
        self, app: Application, jobs: Jobs, posts: ScalerBoard, service: ForecastService, recording: Recording | None
    ) -> None:
        self._app, self._jobs, self._posts, self._service, self._recording = app, jobs, posts, service, recording
        self._targets: dict[str, Actuator] = {}
        self._observer: KafkaGroupObserver | None = None

    def make(self, name: str, topics: tuple[str, ...], stack: ExitStack) -> GroupRunner:
        """Return a group's runner, with its jobs on the schedule."""
        app, jobs = self._app, self._jobs
        settings = app.settings
        own = settings.group(name)
        target = open_target(settings, name, self._posts)
        if target is not self._posts:
            stack.callback(target.close)
        self._targets[name] = target
        polled = own is not None and isinstance(own.actuator, KedaActuator)
        posting = Posting(self._posts, app.plans, GroupId(name)) if polled else None
        observer = self._observed(name, topics, target)
        stack.callback(observer.close)
        runner = GroupRunner(app, name, observer, target, self._service, settings.jobs.act_every, posting)
        zone = settings.grid(name).timezone
        jobs.every("forecast", name, settings.grid(name).step, runner.forecast)
        jobs.on_demand("plan", name, runner.plan)
        jobs.every("act", name, settings.jobs.act_every, runner.act)
        jobs.cron("retrain", name, settings.jobs.retrain, zone, retraining(app, self._service, runner))
        seal = partial(_over, topics, app.store.seal, app, "days sealed")
        prune = partial(_over, topics, app.store.prune, app, "blocks pruned")
        jobs.cron("seal", name, settings.jobs.seal, zone, seal)
        jobs.cron("prune", name, settings.jobs.prune, zone, prune)
        return runner

    def _observed(self, name: str, topics: tuple[str, ...], target: Actuator) -> WithReplicas | RecordedObserver:
        app = self._app
        cluster = None if self._recording is None else self._recording.cluster
        if cluster is None:
            if isinstance(target, MemoryActuator) and target.current(GroupId(name)) is None:
                target.scale(GroupId(name), app.settings.policy(name).min_replicas, app.clock())
            return RecordedObserver(app, topics, target)
        if self._observer is None:
            from balancer.observers.kafka import KafkaGroupObserver

            self._observer = KafkaGroupObserver(
                app.settings.kafka_properties(),
                facts=self._facts,
                replicas=self._replicas,
                kind_of=cluster.kind_of,
                clock=app.clock,
            )
        return WithReplicas(with_workers(app, name, self._observer, self._jobs))

    def _replicas(self, group: GroupId) -> int | None:
        target = self._targets[group]
        return None if isinstance(target, MemoryActuator) else target.current(group)

    def _facts(self, group: GroupId) -> Mapping[TopicPartition, PartitionState]:
        return recorded_states(self._app.store, group, self._app.view(group).topics, self._app.clock())


def _over(topics: tuple[str, ...], work: Callable[..., int], app: Application, what: str) -> str:
    return f"{sum(work(topic, app.clock()) for topic in topics)} {what}"
