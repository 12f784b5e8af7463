"""The one composition root: settings in, everything that runs out. Nothing else chooses an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, cast

from balancer.errors import BalancerError
from balancer.plans.base import PlanStore
from forecaster.errors import ForecasterError
from forecaster.topics import GroupId
from headway.configuration.actuators import KedaActuator, KubernetesActuator, ProcessActuator, WebhookActuator
from headway.configuration.settings import Settings, secret
from headway.errors import HeadwayError
from headway.operation.audit import Audit
from headway.operation.operations import Operations

if TYPE_CHECKING:  # the terminal's small commands must not pay for the forecaster's libraries
    from balancer.actuators.base import Actuator
    from balancer.actuators.board import ScalerBoard
    from balancer.actuators.kubernetes.polled import PolledTarget
    from forecaster.calendar import Calendar
    from forecaster.ingest.base import OffsetSource
    from forecaster.ingest.kafka import KafkaOffsetSource
    from forecaster.ingest.prometheus import PrometheusSource
    from forecaster.registry import ModelRegistry
    from forecaster.serving import ForecastService
    from forecaster.stores.base import SeriesStore
    from headway.application import Application

Clock = Callable[[], datetime]


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

    make_state_folder(settings)
    with EmbeddedServer(settings.state_folder / "store", maxmemory=settings.store.memory_limit) as server:
        yield server.url


def make_state_folder(settings: Settings) -> Path:
    """Return the folder of what must survive a restart; it is there and can be written.

    Raises
    ------
    HeadwayError
        If it cannot.
    """
    folder = settings.state_folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        remedy = "set HEADWAY_STATE, or state in headway.toml, to a folder that can be written"
        raise HeadwayError(f"{folder}: {error.strerror}; {remedy}") from error


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


def open_prometheus(settings: Settings, clock: Clock = utc_now) -> PrometheusSource:
    """Open the configured Prometheus as a source of offsets.

    Raises
    ------
    SettingsRefused
        If its token cannot be read.
    """
    from forecaster.ingest.prometheus import PrometheusSource

    own = settings.prometheus
    token = secret(own.token, own.token_file)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return PrometheusSource(str(own.url), exporter=own.exporter, selector=own.selector, headers=headers, clock=clock)


def opener(settings: Settings) -> Callable[[], OffsetSource] | None:
    """Return what opens the source of offsets that is configured; None where arrivals come by push or from files."""
    if settings.prometheus.url is not None:
        return partial(open_prometheus, settings)
    return partial(open_source, settings) if settings.from_cluster else None


def open_plans(settings: Settings, url: str) -> PlanStore:
    """Open the plan store at a URL."""
    from balancer.plans.redis import RedisPlanStore

    return RedisPlanStore(url, settings.cluster, keep_decisions=settings.store.decisions)


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
    app: Application | None = None,
) -> ForecastService:
    """Make the service that forecasts recorded topics; a topic's zone and holidays are those of the first group.

    ``calendar`` turns a configured calendar into the one that is asked for. With ``app`` they are those of the groups
    that it runs at that moment, under the settings that hold then.
    """
    from functools import cache

    from forecaster.calendar import Calendar
    from forecaster.serving import ForecastService
    from forecaster.zero_shot import shipped

    changed = calendar or (lambda configured: configured)
    made = cache(Calendar)

    def reader_of(topic: str) -> tuple[Settings, str | None]:
        now = settings if app is None else app.settings
        for name in (*now.named_groups, *now.patterns) if app is None else app.board.names:
            view = None if app is None else app.board.get(name)
            own = now.group(name)
            if topic in (view.topics if view is not None else own.topics if own is not None else ()):
                return now, name
        return now, None

    def zone_of(topic: str) -> str:
        now, name = reader_of(topic)
        return "UTC" if name is None else now.grid(name).timezone

    def calendar_of(topic: str) -> Calendar:
        now, name = reader_of(topic)
        own = None if name is None else now.group(name)
        return changed(made(own.holidays if own is not None else None))

    return ForecastService(
        store,
        registry or open_registry(settings),
        cluster=settings.cluster,
        timezone_of=zone_of,
        calendar_of=calendar_of,
        zero_shot=shipped,
        folder=None if app is None else settings.state_folder / "histories",
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
    from headway.status.board import Board
    from headway.status.metrics import Metrics

    with ExitStack() as stack:
        url = stack.enter_context(store_url(settings))
        audit, board = Audit(audit_file(settings)), Board()
        store, plans = _stores(settings, url, clock, board.trouble if late else None)
        stack.callback(store.close)
        stack.callback(plans.close)
        operations = Operations(plans, audit)
        app = Application(
            settings, store, plans, board, operations, Metrics(), clock=clock, url=url, audit_entries=audit.entries,
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
    from headway.status.logs import logger
    from headway.work.late_store import Late

    def tell(why: str | None) -> None:
        trouble("store", why)
        log = logger("store")
        log.info("store is open") if why is None else log.warning("store cannot be opened", why=why)

    series = Late(lambda: open_series(settings, url, own_clock), tell)

    def plans_beside() -> PlanStore:
        series.opened()
        return open_plans(settings, url)

    return cast("SeriesStore", series), cast("PlanStore", Late(plans_beside, lambda why: None))


def open_polled(posts: Actuator, namespace: str) -> PolledTarget:
    """Open a target that KEDA polls and whose drained pods are marked."""
    from balancer.actuators.kubernetes.connection import connect
    from balancer.actuators.kubernetes.polled import PolledTarget
    from balancer.actuators.kubernetes.requests import ApiServer

    return PolledTarget(posts, ApiServer(connect()), namespace)


def open_target(settings: Settings, group: str, posts: ScalerBoard) -> Actuator:
    """Open what a group's plans are carried out on; where nothing is, a target in memory that only remembers."""
    from balancer.actuators.memory import MemoryActuator

    own = settings.group(group)
    if own is not None and isinstance(own.actuator, KedaActuator):
        return posts if own.actuator.namespace is None else open_polled(posts, own.actuator.namespace)
    target = open_actuator(settings, group)
    return target if target is not None else MemoryActuator()


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
