"""Looks after one routed topic: samples into a sketch, splits and merges planned, in ``act`` requested."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from balancer.hotspots import HotKey
from balancer.leases.base import GroupView, LeaseState
from balancer.plan import Proposal
from balancer.routing.base import ProducerState, RouteStore, SplitRequest
from balancer.routing.errors import RouteStoreUnavailable
from balancer.routing.table import SlotTable, TableRefused, decode
from balancer.slot_loads import by_slots
from balancer.splits import Brokers, PlannedSplit, SplitPolicy, due, plan_splits
from forecaster.forecast import Forecast, ForecastResult
from forecaster.topics import TopicPartition
from headway.configuration.sections import TopicSettings
from headway.configuration.settings import Settings
from headway.consumers.routed_topics import new_request
from headway.status.logs import logger

if TYPE_CHECKING:
    from balancer.key_sketch import KeySketch

LEVEL = 0.9
"""Quantile of the forecast by which lanes are planned."""

USUAL = SplitPolicy()


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
    hot_share
        The group's: a lane is planned to take no more of a member, and what takes more is hot.
    fastest
        Records/s of the fastest member of the slowest registered group; a split must be cheaper than one more of it.
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
        hot_share: float = USUAL.limit,
        fastest: Callable[[], float | None] = lambda: None,
        workers: Callable[[], GroupView | None] = lambda: None,
        cpu_limit: float | None = None,
        brokers: Callable[[], Brokers] = Brokers,
        arriving: Callable[[], Mapping[int, float]] = dict,
        behind: Callable[[SlotTable], Sequence[str]] = lambda table: (),
    ) -> None:
        self.topic, self._routes = topic, routes
        self._forecast, self._capacity, self._fastest, self._may_act = forecast, capacity, fastest, may_act
        self._workers, self._cpu_limit, self._brokers, self._arriving = workers, cpu_limit, brokers, arriving
        self._behind = behind
        self._policy = SplitPolicy(
            limit=hot_share,
            merge_below=min(USUAL.merge_below, hot_share * USUAL.merge_below / USUAL.limit),
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

    def hot_keys(self, now: datetime) -> tuple[HotKey, ...]:
        """Return keys that alone take the hot share of a member or more, now or at the forecast's peak."""
        table, capacity = self.table, self._capacity()
        if table is None or not capacity:
            return ()
        found = []
        for key, rate in self._heavy(now, self._policy.limit, capacity):
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
            arriving=lasting, faster_capacity=self._fastest(), timezone=timezone,
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
