"""What a group's plan takes from its routed topics, and how that is wired in ``serve``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from balancer.bounding import Routing, fastest_member
from balancer.hotspots import HotKey
from balancer.plan import Proposal, ScalingPlan
from balancer.splits import proposals_of
from forecaster.forecast import Forecast, ForecastResult
from headway.application import Application
from headway.configuration.sections import Mode, TopicSettings
from headway.consumers.routed_topics import PastFences
from headway.consumers.routes import open_routes
from headway.consumers.splitting import SplitTender, group_view


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
    >>> from forecaster.topics import TopicPartition
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

    routes, named = open_routes(settings), settings.named_groups

    def capacities(topic: TopicSettings) -> list[tuple[float, float]]:
        """Return of each group what a member serves, and its fastest; the slowest group first."""
        known = [(v.capacity_per_member, v.snapshot) for g in topic.groups if g in named for v in (app.view(g),)]
        return sorted((c, c if seen is None else fastest_member(seen, c)) for c, seen in known if c)

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
            lambda facts=facts: next((c for c, _ in capacities(facts)), None),  # type: ignore[misc]
            lambda now, facts=facts: may_act(facts, now),  # type: ignore[misc]
            hot_share=settings.policy(group).hot_share,
            fastest=lambda facts=facts: next((f for _, f in capacities(facts)), None),  # type: ignore[misc]
            workers=lambda: group_view(settings, group),
            cpu_limit=own.cpu_limit if own is not None else None,
            brokers=vitals,
            arriving=lambda topic=topic: arriving(topic),  # type: ignore[misc]
            behind=PastFences(settings, topic),
        )
        for topic, facts in mine.items()
    ]
    return LaneDesk(tenders, routed, zone)
