"""Looks after routed topics in ``serve``: samples into sketches, splits and merges proposed, in ``act`` requested."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from balancer.bounding import Routing
from balancer.hotspots import HotKey
from balancer.leases.base import GroupView, LeaseState
from balancer.plan import Proposal, ScalingPlan
from balancer.routing.base import ProducerState, RouteStore, SplitRequest
from balancer.routing.errors import RouteStoreUnavailable
from balancer.routing.table import SlotTable, TableRefused, decode
from balancer.slot_loads import by_slots
from balancer.splits import Brokers, PlannedSplit, SplitPolicy, due, plan_splits, proposals_of
from forecaster.forecast import Forecast, ForecastResult
from forecaster.topics import TopicPartition
from headway.application import Application
from headway.configuration.sections import Mode, TopicSettings
from headway.configuration.settings import Settings
from headway.consumers.routed_topics import PastFences, new_request, open_routes
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
    arriving
        Partition → records/s over the last complete steps, for the partitions of which it is known.
    behind
        What is to be said of groups that go on below a split of the topic's past.
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
        arriving: Callable[[], Mapping[int, float]] = dict,
        behind: Callable[[SlotTable], Sequence[str]] = lambda table: (),
    ) -> None:
        self.topic, self._routes = topic, routes
        self._forecast, self._capacity, self._may_act = forecast, capacity, may_act
        self._workers, self._cpu_limit, self._brokers, self._arriving = workers, cpu_limit, brokers, arriving
        self._behind = behind
        self._policy = SplitPolicy(
            lead=own.split_lead,
            dwell=own.split_dwell,
            merge_ahead=own.merge_ahead,
            max_partitions=own.max_partitions,
        )
        self._sketch: KeySketch | None = None
        self._sampled: dict[str, tuple[Sequence[str], datetime]] = {}
        self._arrived: Mapping[int, float] = {}
        self._busy: Mapping[int, float] = {}
        self._rate = 0.0
        self.table: SlotTable | None = None
        """The slot table as it was seen last; None before."""

    def look(self, now: datetime, timezone: str = "UTC") -> tuple[PlannedSplit, ...]:
        """Take samples in, plan, and ask for what is due where that is allowed; return everything planned."""
        try:
            view = self._workers()
            table = self.refresh(now, view)
            forecast, capacity = self._forecast(), self._capacity()
            if table is None or not capacity:
                return ()
            requests = self._routes.requests(self.topic)
            changed = changed_at(table, requests)
            known = forecast if isinstance(forecast, Forecast) else None
            planned = self._plan(table, known, capacity, view, changed, now, timezone)
            if self._may_act(now) and not table.transitions and all(r.is_over for r in requests):
                self._ask(planned, now)
            return planned
        except (RouteStoreUnavailable, TableRefused) as error:
            logger("splitting").warning("routes cannot be looked at", topic=self.topic, why=str(error))
            return ()

    def refresh(self, now: datetime, view: GroupView | None = None) -> SlotTable | None:
        """Read the table, and take in what producers and workers have sampled since; None without a table.

        Raises
        ------
        RouteStoreUnavailable, TableRefused
            If the store does not answer, or the table must not be used.
        """
        data = self._routes.table(self.topic)
        if data is None:
            return None
        self.table = decode(data)
        self._learn(self.table, self._routes.producers(), view, now)
        return self.table

    def acts(self, now: datetime) -> bool:
        """Whether what is due is asked for by this process; else people are told how to."""
        return self._may_act(now)

    def warnings(self) -> tuple[Proposal, ...]:
        """Return which groups are promised order from some offset on only."""
        if self.table is None:
            return ()
        return tuple(Proposal("order", self.topic, text) for text in self._behind(self.table))

    def laid_out(self, forecast: Forecast, now: datetime) -> Forecast:
        """Return the topic's forecast as its slots lie now (see :func:`balancer.slot_loads.by_slots`)."""
        if self.table is None:
            with contextlib.suppress(RouteStoreUnavailable, TableRefused):
                self.refresh(now)
        if self.table is None:
            return forecast
        sketch = self._sketch
        return by_slots(forecast, self.table, *((sketch.slot_shares(now), sketch.samples) if sketch else ()))

    def hot_keys(self, now: datetime, least: float = 0.8) -> tuple[HotKey, ...]:
        """Return keys that alone take ``least`` of a member or more, now or at the forecast's peak; hottest first."""
        table, capacity = self.table, self._capacity()
        if table is None or not capacity:
            return ()
        found = []
        for key, rate in self._heavy(now, least, capacity):
            partition = TopicPartition(self.topic, table.partition_of_key(key))
            found.append(HotKey(partition, _readable(key), round(rate, 3), round(rate / capacity, 4)))
        return tuple(found)

    def _heavy(self, now: datetime, least: float, capacity: float) -> list[tuple[bytes, float]]:
        """Return (key, records/s) of keys at ``least`` of a member, by their share of what comes or will come."""
        forecast, total = self._forecast(), self._rate
        if isinstance(forecast, Forecast):
            total = max(total, float(forecast.total[:, forecast.nearest_level(LEVEL)].max(initial=0.0)))
        if self._sketch is None or total <= 0:
            return []
        heavy = self._sketch.heavy(least * capacity / total, now)
        return [(bytes.fromhex(h.key), h.share * total) for h in heavy]

    def _learn(
        self, table: SlotTable, producers: Sequence[ProducerState], view: GroupView | None, now: datetime
    ) -> None:
        """Take in what producers have sampled; what workers have, where no producer says anything."""
        from balancer.key_sketch import KeySketch

        sketch = self._sketch = self._sketch or KeySketch(table.slots)
        live = [p for p in producers if p.live]
        rows = [(p.registration.name, p.sample.get(self.topic) or (), p.rates.get(self.topic, 0.0)) for p in live]
        if view is not None and not any(keys for _, keys, _ in rows):
            beats = [(f"worker {i}", w.heartbeat) for i, w in view.workers.items() if w.live]
            rows = [(name, (b.get("keys") or {}).get(self.topic) or (), b.get("rate") or 0.0) for name, b in beats]
        self._rate = sum(rate for _, _, rate in rows)
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
        forecast: Forecast | None,
        capacity: float,
        view: GroupView | None,
        changed: Mapping[int, datetime],
        now: datetime,
        timezone: str,
    ) -> tuple[PlannedSplit, ...]:
        sketch = self._sketch
        assert sketch is not None
        arriving, busy = self._arriving(), busy_owners(view, self.topic)
        # one step or heartbeat can be an outlier: what counts is what two looks in a row have seen
        lasting, self._arrived = _lower(arriving, self._arrived), arriving
        steady, self._busy = _lower(busy, self._busy), busy
        there = max([table.partitions - 1, *table.moved.values(), *arriving])
        if forecast is None:  # what is measured still counts, and nothing is merged
            rates, origin, step = np.zeros((1 + there, 1)), now, timedelta(minutes=15)
        else:
            laid = by_slots(forecast, table, sketch.slot_shares(now), sketch.samples)
            rates = np.zeros((1 + max(there, *laid.partitions), laid.steps))
            rates[list(laid.partitions)] = laid.rates[:, :, laid.nearest_level(LEVEL)]
            origin, step = laid.origin, laid.step
        heavy = reversed(self._heavy(now, 0.5, capacity))
        hot = {table.slot_of_key(key): (_readable(key), rate) for key, rate in heavy}
        return plan_splits(
            table, rates, origin, step, capacity, self._policy, now,
            shares=sketch.slot_shares(now), samples=sketch.samples, hot_keys=hot, changed=changed,
            brokers=self._brokers(), busy=steady, cpu_limit=self._cpu_limit, idle_cpu=idle_share(view),
            arriving=lasting, timezone=timezone,
        )  # fmt: skip

    def _ask(self, planned: Sequence[PlannedSplit], now: datetime) -> None:
        """Ask for the first thing that is due."""
        for split in due(planned, now)[:1]:
            request = new_request(split.kind, self.topic, split.partition, max(split.lanes, 2))
            self._routes.request(replace(request, placement=split.placement))
            logger("splitting").info("asked for", kind=split.kind, topic=self.topic, why=split.reason)


def _lower(now: Mapping[int, float], before: Mapping[int, float]) -> dict[int, float]:
    return {p: min(value, before.get(p, 0.0)) for p, value in now.items()}


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


def _readable(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def with_splits(plan: ScalingPlan, more: Sequence[Proposal]) -> ScalingPlan:
    """Return a plan with what is planned for its routed topics in place of the general advice on those partitions."""
    if not more:
        return plan
    subjects = {p.subject for p in more}
    kept = (p for p in plan.proposals if p.subject not in subjects or p.kind != "split")
    return replace(plan, proposals=(*kept, *more))


class LaneDesk:
    """What a group's plan takes from its routed topics: forecasts laid out by lanes, hot keys, splits and merges.

    A topic that several groups read is looked after by the first of them that this process runs: the others' plans
    know of its lanes and hot keys as well, and split nothing.
    """

    def __init__(self, tenders: Sequence[SplitTender], routed: frozenset[str], timezone: str) -> None:
        self._tenders = {t.topic: t for t in tenders}
        self._routed, self._timezone = routed, timezone
        self._now: datetime | None = None

    def laid_out(self, result: ForecastResult, now: datetime) -> ForecastResult:
        """Return a forecast as the slots of its topic lie now."""
        tender = self._tenders.get(result.topic) if isinstance(result, Forecast) else None
        self._now = now
        return result if tender is None or not isinstance(result, Forecast) else tender.laid_out(result, now)

    def routing(self) -> Routing:
        """Return which topics are routed, and which of their keys are hot."""
        now = self._now
        keys = () if now is None else tuple(k for t in self._tenders.values() for k in t.hot_keys(now))
        return Routing(self._routed, keys)

    def advice(self, now: datetime) -> tuple[Proposal, ...]:
        """Return what is planned for the topics and which keys are hot; in ``act`` what is due is asked for."""
        found: list[Proposal] = []
        for tender in self._tenders.values():
            planned = proposals_of(tender.topic, tender.look(now, self._timezone), by_hand=not tender.acts(now))
            found += (*planned, *tender.warnings())
            said = " ".join(p.text for p in planned)
            found += [key_proposal(k) for k in tender.hot_keys(now) if f"key {k.key} alone" not in said]
        return tuple(found)


def key_proposal(key: HotKey) -> Proposal:
    """Return what people are told of a hot key.

    Examples
    --------
    >>> key_proposal(HotKey(TopicPartition("orders", 7), "eve", 85.0, 0.85)).text
    'key eve alone takes 85% of a member; a split cannot divide a key'
    """
    text = f"key {key.key} alone takes {key.share:.0%} of a member; a split cannot divide a key"
    return Proposal("key", f"{key.partition}/{key.key}", text)


def lanes_of(app: Application, group: str) -> LaneDesk:
    """Wire the desk of a group's routed topics."""
    settings = app.settings
    own, routed = settings.group(group), frozenset(app.view(group).topics) & frozenset(settings.topics)
    zone = settings.grid(group).timezone
    mine = {
        topic: settings.topics[topic]
        for topic in (own.topics if own is not None else ())
        if topic in settings.topics and group in settings.topics[topic].groups
    }
    if not mine or settings.store_url() is None or not settings.kafka.bootstrap_servers:
        return LaneDesk((), routed, zone)
    from balancer.moves.vitals import BrokerVitals

    routes = open_routes(settings)

    def capacity_of(topic: TopicSettings) -> float | None:
        known = [app.view(g).capacity_per_member for g in topic.groups if g in settings.named_groups]
        return min((c for c in known if c), default=None)

    def may_act(topic: TopicSettings, now: datetime) -> bool:
        return next((g for g in topic.groups), None) == group and all(
            app.operations.mode(g, settings.mode(g)) is Mode.ACT and app.operations.paused(g, now) is None
            for g in topic.groups
        )

    def arriving(topic: str) -> dict[int, float]:
        seen = app.view(group).snapshot
        states = {} if seen is None else seen.partitions
        return {tp.partition: s.arrival_rate for tp, s in states.items() if tp.topic == topic and s.arrival_rate}

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
            arriving=lambda topic=topic: arriving(topic),  # type: ignore[misc]
            behind=PastFences(settings, topic),
        )
        for topic, facts in mine.items()
    ]
    return LaneDesk(tenders, routed, zone)


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


def idle_share(view: GroupView | None, least: float = 0.05) -> float:
    """Return the share of a core that a worker of a group uses that does next to nothing; 0 if none is idle.

    On a slow machine a worker that waits for records may use as much of a core as a limit allows.
    """
    live = [] if view is None else [w.heartbeat for w in view.workers.values() if w.live]
    told = [(beat["cpu"], beat["busy"]) for beat in live if None not in (beat.get("cpu"), beat.get("busy"))]
    return float(min((cpu for cpu, busy in told if busy < least), default=0.0))
