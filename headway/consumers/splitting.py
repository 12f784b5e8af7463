"""Looks after routed topics in ``serve``: samples into sketches, splits and merges proposed, in ``act`` requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from balancer.leases.base import GroupView, LeaseState
from balancer.plan import Proposal, ScalingPlan
from balancer.routing.base import ProducerState, RouteStore, SplitRequest
from balancer.routing.errors import RouteStoreUnavailable
from balancer.routing.table import SlotTable, TableRefused, decode
from balancer.splits import Brokers, PlannedSplit, SplitPolicy, due, plan_splits, proposals_of
from forecaster.forecast import Forecast, ForecastResult
from forecaster.topics import TopicPartition
from headway.application import Application
from headway.configuration.sections import Mode, TopicSettings
from headway.configuration.settings import Settings
from headway.consumers.routed_topics import new_request, open_routes
from headway.status.logs import logger

if TYPE_CHECKING:
    from balancer.key_sketch import KeySketch

LEVEL = 0.9
"""Quantile of the forecast by which lanes are planned."""


class SplitTender:
    """One routed topic: what is hot in it, what should be done, and what was asked for.

    Parameters
    ----------
    topic, own
        Its name and settings.
    routes
        Tables, samples, requests.
    forecast
        The topic's latest forecast.
    capacity
        Records/s of one member of the slowest registered group; None while that is not known.
    may_act
        Whether splits are asked for, or only proposed.
    workers
        The planned group as its leases have it: heartbeats with CPU and, where producers send none, key samples.
    cpu_limit
        An owner that holds one partition alone and uses more of a core counts as saturated.
    brokers
        Budget and vital signs; nothing is vetoed by what cannot be read.
    """

    def __init__(
        self,
        topic: str,
        own: TopicSettings,
        routes: RouteStore,
        forecast: Callable[[], ForecastResult | None],
        capacity: Callable[[], float | None],
        may_act: Callable[[datetime], bool],
        *,
        workers: Callable[[], GroupView | None] = lambda: None,
        cpu_limit: float | None = None,
        brokers: Callable[[], Brokers] = Brokers,
    ) -> None:
        self.topic, self._routes = topic, routes
        self._forecast, self._capacity, self._may_act = forecast, capacity, may_act
        self._workers, self._cpu_limit, self._brokers = workers, cpu_limit, brokers
        self._policy = SplitPolicy(max_partitions=own.max_partitions)
        self._sketch: KeySketch | None = None
        self._sampled: dict[str, tuple[Sequence[str], datetime]] = {}

    def look(self, now: datetime, timezone: str = "UTC") -> tuple[PlannedSplit, ...]:
        """Take samples in, plan, and ask for what is due where that is allowed; return everything planned."""
        try:
            data = self._routes.table(self.topic)
            if data is None:
                return ()
            table = decode(data)
            view = self._workers()
            self._learn(table, self._routes.producers(), view, now)
            forecast, capacity = self._forecast(), self._capacity()
            if not isinstance(forecast, Forecast) or not capacity:
                return ()
            requests = self._routes.requests(self.topic)
            changed = changed_at(table, requests)
            planned = self._plan(table, forecast, capacity, busy_owners(view, self.topic), changed, now, timezone)
            if self._may_act(now) and not table.transitions and all(r.is_over for r in requests):
                self._ask(planned, now)
            return planned
        except (RouteStoreUnavailable, TableRefused) as error:
            logger("splitting").warning("routes cannot be looked at", topic=self.topic, why=str(error))
            return ()

    def _learn(
        self, table: SlotTable, producers: Sequence[ProducerState], view: GroupView | None, now: datetime
    ) -> None:
        """Take in what producers have sampled; what workers have, where no producer says anything."""
        from balancer.key_sketch import KeySketch

        sketch = self._sketch = self._sketch or KeySketch(table.slots)
        rows = [(p.registration.name, p.sample.get(self.topic) or (), p.rates.get(self.topic, 0.0)) for p in producers]
        if view is not None and not any(keys for _, keys, _ in rows):
            beats = [(f"worker {i}", w.heartbeat) for i, w in view.workers.items() if w.live]
            rows = [(name, (b.get("keys") or {}).get(self.topic) or (), b.get("rate") or 0.0) for name, b in beats]
        for name, keys, rate in rows:
            before, at = self._sampled.get(name, ((), now - timedelta(seconds=1)))
            if not keys or tuple(keys) == tuple(before):
                continue
            self._sampled[name] = (tuple(keys), now)
            slots = [table.slot_of_key(bytes.fromhex(key)) for key in keys]
            seconds = min(60.0, max((now - at).total_seconds(), 1.0))
            sketch.add(keys, slots, rate * seconds, now)

    def _plan(
        self,
        table: SlotTable,
        forecast: Forecast,
        capacity: float,
        busy: Mapping[int, float],
        changed: Mapping[int, datetime],
        now: datetime,
        timezone: str,
    ) -> tuple[PlannedSplit, ...]:
        assert self._sketch is not None
        rows = forecast.at_level(min(forecast.levels, key=lambda level: abs(level - LEVEL)))
        rates = np.zeros((1 + max(forecast.partitions, default=0), forecast.steps))
        rates[list(forecast.partitions)] = rows
        total = float(rates.sum(axis=0).max(initial=0.0))
        hot: dict[int, tuple[str, float]] = {}
        for heavy in reversed(self._sketch.heavy(0.5 * capacity / total if total else 1.0, now)):
            hot[table.slot_of_key(bytes.fromhex(heavy.key))] = (_readable(heavy.key), heavy.share * total)
        return plan_splits(
            table, rates, forecast.origin, forecast.step, capacity, self._policy, now,
            shares=self._sketch.slot_shares(now), hot_keys=hot, changed=changed, brokers=self._brokers(),
            busy=busy, cpu_limit=self._cpu_limit, timezone=timezone,
        )  # fmt: skip

    def _ask(self, planned: Sequence[PlannedSplit], now: datetime) -> None:
        """Ask for the first thing that is due."""
        for split in due(planned, now)[:1]:
            request = new_request(split.kind, self.topic, split.partition, max(split.lanes, 2))
            self._routes.request(replace(request, placement=split.placement))
            logger("splitting").info("asked for", kind=split.kind, topic=self.topic, why=split.reason)


def changed_at(table: SlotTable, requests: Iterable[SplitRequest]) -> dict[int, datetime]:
    """Return parent → when a request for it last ended; refused and given-up ones count: none is asked anew at once.

    The requests are in the store, so the dwell outlives this process.
    """
    changed: dict[int, datetime] = {}
    for request in requests:
        if request.ended_at is None:
            continue
        slots = table.slots_of(request.partition)
        parent = request.partition if request.partition < table.partitions or not slots else slots[0] % table.partitions
        at = datetime.fromtimestamp(request.ended_at, UTC)
        changed[parent] = max(at, changed.get(parent, at))
    return changed


def _readable(key: str) -> str:
    return bytes.fromhex(key).decode("utf-8", "backslashreplace")


def with_splits(plan: ScalingPlan, more: Sequence[Proposal]) -> ScalingPlan:
    """Return a plan with what is planned for its routed topics in place of the general advice on those partitions."""
    if not more:
        return plan
    subjects = {p.subject for p in more}
    kept = (p for p in plan.proposals if p.subject not in subjects or p.kind != "split")
    return replace(plan, proposals=(*kept, *more))


def advice_of(app: Application, group: str) -> Callable[[datetime], tuple[Proposal, ...]]:
    """Return what a group's plan says of its routed topics; in ``act`` what is due is asked for on the way.

    A topic that several groups read is looked after by the first of them that this process runs.
    """
    settings = app.settings
    own = settings.group(group)
    mine = {
        topic: settings.topics[topic]
        for topic in (own.topics if own is not None else ())
        if topic in settings.topics and next((g for g in settings.topics[topic].groups), None) == group
    }
    if not mine or settings.store_url() is None or not settings.kafka.bootstrap_servers:
        return lambda now: ()
    from balancer.moves.vitals import BrokerVitals

    routes = open_routes(settings)

    def capacity_of(topic: TopicSettings) -> float | None:
        known = [app.view(g).capacity_per_member for g in topic.groups if g in settings.named_groups]
        return min((c for c in known if c), default=None)

    def may_act(topic: TopicSettings, now: datetime) -> bool:
        return all(
            app.operations.mode(g, settings.mode(g)) is Mode.ACT and app.operations.paused(g, now) is None
            for g in topic.groups
        )

    properties = settings.kafka_properties()
    vitals = BrokerVitals(str(properties.pop("bootstrap.servers", settings.kafka.bootstrap_servers)), properties)
    tenders = [
        SplitTender(
            topic,
            facts,
            routes,
            lambda topic=topic: app.view(group).forecasts.get(topic),  # type: ignore[misc]
            lambda facts=facts: capacity_of(facts),  # type: ignore[misc]
            lambda now, facts=facts: may_act(facts, now),  # type: ignore[misc]
            workers=lambda: group_view(settings, group),
            cpu_limit=own.cpu_limit if own is not None else None,
            brokers=vitals,
        )
        for topic, facts in mine.items()
    ]
    zone = settings.grid(group).timezone
    return lambda now: tuple(p for t in tenders for p in proposals_of(t.topic, t.look(now, zone)))


def group_view(settings: Settings, group: str) -> GroupView | None:
    """Return a planned group as its leases have it; None if they do not tell."""
    from balancer.leases.base import LeaseStoreError
    from headway.consumers.moving import open_leases

    leases = open_leases(settings, group)
    try:
        return leases.view()
    except LeaseStoreError:
        return None
    finally:
        leases.close()


def busy_owners(view: GroupView | None, topic: str) -> Mapping[int, float]:
    """Return partition → share of a core that its worker uses, of workers that hold nothing else."""
    if view is None:
        return {}
    held: dict[int, list[TopicPartition]] = {}
    for tp, lease in view.leases.items():
        if lease.owner is not None and lease.state is LeaseState.HELD:
            held.setdefault(lease.owner.instance, []).append(tp)
    return {
        owned[0].partition: float(cpu)
        for instance, owned in held.items()
        if len(owned) == 1
        and owned[0].topic == topic
        and instance in view.workers
        and (cpu := view.workers[instance].heartbeat.get("cpu")) is not None
    }
