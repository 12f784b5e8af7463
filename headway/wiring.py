"""The one composition root: settings in, everything that runs out. Nothing else chooses an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from balancer.errors import BalancerError
from balancer.plans.base import PlanStore
from forecaster.errors import ForecasterError
from forecaster.topics import GroupId, TopicPartition
from headway.audit import Audit
from headway.errors import HeadwayError
from headway.operations import Operations
from headway.sections import KedaActuator, KubernetesActuator, ProcessActuator, WebhookActuator
from headway.settings import Settings, secret

if TYPE_CHECKING:  # the terminal's small commands must not pay for the forecaster's libraries
    from balancer.actuators.base import Actuator
    from balancer.actuators.board import ScalerBoard
    from balancer.group import PartitionState
    from balancer.observers.base import GroupObserver
    from forecaster.calendar import Calendar
    from forecaster.ingest.kafka import KafkaOffsetSource
    from forecaster.registry import ModelRegistry
    from forecaster.serving import ForecastService
    from forecaster.stores.base import SeriesStore
    from headway.application import Application
    from headway.board import GroupView
    from headway.jobs import Jobs

Clock = Callable[[], datetime]
KindOf = Callable[[GroupId], str | None]


def utc_now() -> datetime:
    """Return the wall clock's instant."""
    return datetime.now(UTC)


@contextmanager
def store_url(settings: Settings) -> Iterator[str]:
    """Provide the store's URL: the configured one, or that of the embedded server for as long as the block lasts."""
    url = settings.store_url()
    if url is not None:
        yield url
        return
    from forecaster.stores.embedded import EmbeddedServer

    with EmbeddedServer(settings.state_folder / "store", maxmemory=settings.store.memory_limit) as server:
        yield server.url


def open_series(settings: Settings, url: str, clock: Clock | None = None) -> SeriesStore:
    """Open the series store at a URL."""
    from forecaster.stores.opening import open_store
    from forecaster.stores.retention import Retention

    retention = Retention(steps=settings.store.retention)
    return open_store(url, settings.cluster, layout=settings.store.layout, retention=retention, clock=clock)


def open_source(settings: Settings, clock: Clock = utc_now) -> KafkaOffsetSource:
    """Open the cluster as a source of offsets.

    Raises
    ------
    SourceRefused
        If its client properties cannot be used.
    """
    from forecaster.ingest.kafka import KafkaOffsetSource

    return KafkaOffsetSource(settings.kafka_properties(), clock=clock)


def open_plans(settings: Settings, url: str) -> PlanStore:
    """Open the plan store at a URL."""
    from balancer.plans.redis import RedisPlanStore

    return RedisPlanStore(url, settings.cluster)


def open_registry(settings: Settings) -> ModelRegistry:
    """Open the folder of artefacts, with the key that signs them if there is one."""
    from forecaster.registry import ModelRegistry

    key = secret(settings.models.hmac_key, settings.models.hmac_key_file)
    return ModelRegistry(settings.model_folder, key=None if key is None else key.encode())


def open_forecasts(
    settings: Settings,
    store: SeriesStore,
    registry: ModelRegistry | None = None,
    *,
    calendar: Callable[[Calendar], Calendar] | None = None,
) -> ForecastService:
    """Make the service that forecasts recorded topics; a topic's zone and holidays are those of the first group.

    ``calendar`` turns a configured calendar into the one that is asked for.
    """
    from forecaster.calendar import Calendar
    from forecaster.serving import ForecastService
    from forecaster.zero_shot import shipped

    changed = calendar or (lambda configured: configured)
    zones: dict[str, str] = {}
    calendars: dict[str, Calendar] = {}
    for name in (*settings.named_groups, *settings.patterns):
        own = settings.group(name)
        for topic in own.topics if own is not None else ():
            zones.setdefault(topic, settings.grid(name).timezone)
            calendars.setdefault(topic, Calendar(own.holidays if own is not None else None))
    return ForecastService(
        store,
        registry or open_registry(settings),
        cluster=settings.cluster,
        timezone_of=lambda topic: zones.get(topic, "UTC"),
        calendar_of=lambda topic: changed(calendars.get(topic, Calendar())),
        zero_shot=shipped,
    )


def open_actuator(settings: Settings, group: str) -> Actuator | None:
    """Open what carries out a group's plans; None where nothing does (``none``, and ``keda``, which asks by itself)."""
    own = settings.group(group)
    kind = own.actuator if own is not None else None
    name = GroupId(group)
    if isinstance(kind, ProcessActuator):
        from balancer.actuators.process import ProcessActuator as Processes
        from balancer.actuators.process import WorkerCommand

        logs = kind.log_dir or settings.state_folder / "workers"
        return Processes({name: WorkerCommand(tuple(kind.command))}, logs)
    if isinstance(kind, KubernetesActuator):
        from balancer.actuators.kubernetes.actuator import KubernetesActuator as Scales
        from balancer.actuators.kubernetes.actuator import Target
        from balancer.actuators.kubernetes.connection import connect
        from balancer.actuators.kubernetes.requests import ApiServer

        target = Target(kind.name, kind.namespace, kind.resource, kind.api)
        return Scales(ApiServer(connect()), {name: target})
    if isinstance(kind, WebhookActuator):
        from balancer.actuators.webhook import Hook
        from balancer.actuators.webhook import WebhookActuator as Posts

        key = secret(None, kind.secret_file)
        if key is None:
            raise HeadwayError(f"groups.{group}.actuator.secret_file is missing: webhook calls are always signed")
        letters = settings.state_folder / "dead-letters" / f"{group}.jsonl"
        return Posts({name: Hook(kind.url, key.encode(), letters)})
    assert kind is None or isinstance(kind, KedaActuator) or kind.kind == "none"
    return None


@contextmanager
def open_operations(settings: Settings) -> Iterator[Operations]:
    """Provide what operators' commands need: the plan store and the audit log, nothing else."""
    with store_url(settings) as url:
        plans = open_plans(settings, url)
        try:
            yield Operations(plans, Audit(audit_file(settings)))
        finally:
            plans.close()


def audit_file(settings: Settings) -> Path:
    """Return where operators' actions are written down."""
    return settings.state_folder / "audit.jsonl"


@contextmanager
def open_application(settings: Settings, clock: Clock = utc_now, *, late: bool = False) -> Iterator[Application]:
    """Provide a running application's parts: stores, board, operations and metrics; jobs are added by who runs them.

    Parameters
    ----------
    settings, clock
        What was configured, and what counts as now.
    late
        Whether to go on without a store that does not answer or is not fit (a replica, one that evicts), and to try
        again at every use; the reason stands on the board as the problem ``store``.

    Raises
    ------
    ForecasterError, BalancerError
        If the store does not answer or refuses, unless ``late``.
    """
    from headway.application import Application
    from headway.board import Board
    from headway.metrics import Metrics

    with ExitStack() as stack:
        url = stack.enter_context(store_url(settings))
        audit, board = Audit(audit_file(settings)), Board()
        store, plans = _stores(settings, url, clock, board.trouble if late else None)
        stack.callback(store.close)
        stack.callback(plans.close)
        operations = Operations(plans, audit)
        app = Application(
            settings, store, plans, board, operations, Metrics(), clock=clock, audit_entries=audit.entries,
            forecasts_folder=settings.state_folder / "forecasts",
        )  # fmt: skip
        for name in settings.named_groups:
            own = settings.group(name)
            try:
                app.show(name, own.topics if own is not None else ())
            except (ForecasterError, BalancerError):
                if not late:
                    raise
        yield app


def _stores(
    settings: Settings, url: str, clock: Clock, trouble: Callable[[str, str | None], None] | None
) -> tuple[SeriesStore, PlanStore]:
    """Open both stores, or with ``trouble`` what stands for them; plans never go where series are not safe."""
    own_clock = None if clock is utc_now else clock
    if trouble is None:
        store = open_series(settings, url, own_clock)
        return store, open_plans(settings, url)
    from headway.late_store import Late
    from headway.logs import logger

    def tell(why: str | None) -> None:
        trouble("store", why)
        log = logger("store")
        log.info("store is open") if why is None else log.warning("store cannot be opened", why=why)

    series = Late(lambda: open_series(settings, url, own_clock), tell)

    def plans_beside() -> PlanStore:
        series.opened()
        return open_plans(settings, url)

    return cast("SeriesStore", series), cast("PlanStore", Late(plans_beside, lambda why: None))


def open_target(settings: Settings, group: str, posts: ScalerBoard) -> Actuator:
    """Open what a group's plans are carried out on; where nothing is, a target in memory that only remembers."""
    from balancer.actuators.memory import MemoryActuator

    own = settings.group(group)
    if own is not None and isinstance(own.actuator, KedaActuator):
        return posts
    target = open_actuator(settings, group)
    return target if target is not None else MemoryActuator()


def assemble(app: Application, stack: ExitStack, posts: ScalerBoard) -> Jobs:
    """Make the jobs of all configured groups over an application's parts.

    Raises
    ------
    HeadwayError
        If a group cannot be wired as it is configured.
    """
    from balancer.actuators.memory import MemoryActuator
    from headway.doctor_planned import against_moving
    from headway.jobs import Jobs
    from headway.loops import GroupRunner, RecordedObserver, WithReplicas
    from headway.planned_groups import moves_of, with_workers
    from headway.routed_topics import lead_topics

    settings, jobs = app.settings, Jobs(app.board, app.metrics, app.clock)
    registry = open_registry(settings)
    service = open_forecasts(settings, app.store, registry)
    runners: dict[str, GroupRunner] = {}
    properties = settings.kafka_properties()
    if properties:
        record, kind_of, app.discover = _recording(app, stack, lambda name, topics: watch(name, topics))
        step = min((settings.grid(g).step for g in settings.groups), default=timedelta(seconds=60))
        jobs.every("record", None, step, record)

    def watch(name: str, topics: tuple[str, ...]) -> None:
        target = open_target(settings, name, posts)
        stack.callback(target.close)
        observer: GroupObserver
        if properties:
            from balancer.observers.kafka import KafkaGroupObserver

            remembers = isinstance(target, MemoryActuator)
            observer = KafkaGroupObserver(
                properties,
                facts=partial(_recorded, app, topics),
                replicas=None if remembers else target.current,
                kind_of=kind_of,
                clock=app.clock,
            )
            observer = WithReplicas(with_workers(app, name, observer, jobs))
        else:
            if isinstance(target, MemoryActuator) and target.current(GroupId(name)) is None:
                target.scale(GroupId(name), settings.policy(name).min_replicas, app.clock())
            observer = RecordedObserver(app, topics, target)
        stack.callback(observer.close)
        runner = GroupRunner(app, name, observer, target, service, settings.jobs.act_every)
        runners[name] = runner
        zone = settings.grid(name).timezone
        jobs.every("forecast", name, settings.grid(name).step, runner.forecast)
        jobs.on_demand("plan", name, runner.plan)
        jobs.every("act", name, settings.jobs.act_every, runner.act)
        jobs.cron(
            "retrain", name, settings.jobs.retrain, zone, _retraining(app, service, registry, topics, runner.learn)
        )
        jobs.cron("seal", name, settings.jobs.seal, zone, _over(topics, app.store.seal, app.clock, "days sealed"))
        jobs.cron("prune", name, settings.jobs.prune, zone, _over(topics, app.store.prune, app.clock, "blocks pruned"))

    for name in settings.named_groups:
        own = settings.group(name)
        watch(name, own.topics if own is not None else ())
    lead_topics(settings, jobs)
    app.jobs = jobs
    app.moves = lambda group: moves_of(settings, group)
    app.what_if = lambda group, changes, now: runners[group].what_if(changes, now)
    app.look = lambda group: runners[group].look()
    app.act_gate = lambda name: (
        *settings.against_acting(name),
        *against_moving(settings, name),
        *_closed(app.view(name)),
    )
    return jobs


def _closed(view: GroupView) -> tuple[str, ...]:
    may_act, reasons = view.gate
    return () if may_act else tuple(f"gate: {reason}" for reason in reasons)


def closed_gates(settings: Settings, group: str, now: datetime) -> tuple[str, ...]:
    """Return what the forecast gates of a group's topics say against acting, read from the store."""
    from forecaster.gate import verdict
    from forecaster.scorekeeping import Scorekeeper

    own, said = settings.group(group), []
    with store_url(settings) as url:
        store = open_series(settings, url)
        try:
            for topic in own.topics if own is not None else ():
                log = Scorekeeper(store).log(topic, now)
                word = None if log is None else verdict(log, now)
                if word is None:
                    said.append(f"gate: {topic} was never recorded; headway ingest loads a history")
                elif not word.may_act:
                    said += [f"gate: {topic}: {reason}" for reason in word.reasons]
        finally:
            store.close()
    return tuple(said)


def _recorded(app: Application, topics: tuple[str, ...], group: GroupId) -> Mapping[TopicPartition, PartitionState]:
    from headway.facts import recorded_states

    return recorded_states(app.store, group, topics, app.clock())


def _recording(
    app: Application, stack: ExitStack, watch: Callable[[str, tuple[str, ...]], None] = lambda name, topics: None
) -> tuple[Callable[[], str], KindOf, Callable[[], None]]:
    """Return the record job over Kafka, what tells a group's kind, and what looks for new ones, on one connection.

    ``watch`` is called for each new group that a pattern fits.
    """
    from forecaster.ingest.recorder import Recorder
    from forecaster.ingest.sampler import RecordSampler
    from forecaster.offsets import CountingPolicy
    from headway.discovery import Discovery
    from headway.recording import record_job

    settings, source = app.settings, open_source(app.settings, app.clock)
    groups = {GroupId(name): app.view(name).topics for name in settings.named_groups}
    step_s = min((settings.grid(name).step_s for name in settings.groups), default=60)
    sampler = RecordSampler(settings.kafka_properties())
    recorder = Recorder(
        app.store,
        source,
        groups,
        policy=CountingPolicy.for_step(step_s),
        delays=sampler.delays_ms,
        shares=sampler.record_share,
        clock=app.clock,
    )
    stack.callback(recorder.close)

    def found(name: str, topics: tuple[str, ...]) -> None:
        app.show(name, topics)
        watch(name, topics)
        groups[GroupId(name)] = topics
        recorder.watch(GroupId(name), topics)

    discover = Discovery(settings, source, found)
    return record_job(app, recorder, groups, discover), source.kind_of, discover


def _retraining(
    app: Application,
    service: ForecastService,
    registry: ModelRegistry,
    topics: tuple[str, ...],
    learn: Callable[[], str],
) -> Callable[[], str]:
    def run() -> str:
        from forecaster.desk import ForecastDesk
        from forecaster.retraining import RetrainPolicy, last_trained, retrain
        from forecaster.scorekeeping import Scorekeeper
        from forecaster.topics import StreamId
        from forecaster.training import TrainingPolicy

        said, desk = [], ForecastDesk(service, Scorekeeper(app.store))
        for topic in topics:
            now, stream = app.clock(), StreamId(app.settings.cluster, topic)
            history = service.history(topic, now)
            if history is None:
                said.append(f"{topic}: nothing is recorded yet")
                continue
            why = RetrainPolicy().due(last_trained(registry, stream), now, desk.drift(topic, now))
            if why is None:
                said.append(f"{topic}: not due")
                continue
            policy = TrainingPolicy(calendar=service.calendar(topic))
            result = retrain(history, stream, registry, now, policy)
            said.append(f"{topic}: {why}: {'promoted' if result.promoted else 'kept the old one'}, {result.reason}")
        return "; ".join([*said, learn()])

    return run


def _over(topics: tuple[str, ...], work: Callable[[str, datetime], int], clock: Clock, what: str) -> Callable[[], str]:
    return lambda: f"{sum(work(topic, clock()) for topic in topics)} {what}"
