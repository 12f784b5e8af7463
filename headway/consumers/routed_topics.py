"""Routed topics, wired from the settings: their leaders, their producers, and what people ask for."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING

from balancer.routing.base import SplitRequest
from balancer.routing.errors import RouteStoreUnavailable
from headway.configuration.sections import TopicSettings
from headway.configuration.settings import Settings
from headway.consumers.moving import open_planned_group, some_mover
from headway.consumers.routes import brokers_of, open_routes, read_table
from headway.consumers.split_alarms import SplitAlarms
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from balancer.moves.splitting import TopicLeader
    from balancer.routing.producer import RoutedProducer
    from balancer.routing.table import SlotTable
    from headway.status.board import Board
    from headway.work.jobs import Jobs


def open_leader(settings: Settings, topic: str, own: TopicSettings | None = None) -> TopicLeader:
    """Wire the leader of a routed topic; start it with ``leader.start()``.

    Parameters
    ----------
    settings
        Brokers and store.
    topic
        The topic.
    own
        Its settings; from the file by default.

    Raises
    ------
    HeadwayError
        If the topic is not in the settings, or there are no brokers.
    """
    from balancer.moves.routed_topic import RoutedTopic
    from balancer.moves.splitting import SplitLimits, TopicLeader
    from balancer.routing.kafka import KafkaTableLog

    own = own or settings.topics.get(topic)
    if own is None:
        known = ", ".join(settings.topics) or "none"
        raise HeadwayError(f'topic {topic} is not routed: add [topics."{topic}"] with its groups (routed now: {known})')
    properties, servers = brokers_of(settings)
    limits = SplitLimits(
        stop=own.stop_limit,
        hold=own.hold_limit,
        max_partitions=own.max_partitions,
        accept_unregistered=own.accept_unregistered,
    )
    return TopicLeader(
        RoutedTopic(servers, topic, properties),
        KafkaTableLog(servers, properties),
        open_routes(settings),
        own.groups,
        own.hash,
        limits,
        f"{socket.gethostname()}.{os.getpid()}",
    )


class PastFences:
    """Which groups of a routed topic go on below a split of its past, so that order is not promised to them yet.

    Asks the brokers, once a minute at most; what cannot be asked is not told.

    Parameters
    ----------
    settings, topic
        Brokers, and the topic.
    every_s
        How long an answer is kept.
    """

    def __init__(self, settings: Settings, topic: str, every_s: float = 60.0) -> None:
        self._settings, self._topic, self._every_s = settings, topic, every_s
        self._due = 0.0
        self._told: tuple[str, ...] = ()

    def __call__(self, table: SlotTable) -> tuple[str, ...]:
        """Return one sentence for each such group."""
        from balancer.errors import BalancerError
        from balancer.moves.routed_topic import RoutedTopic, groups_below

        if not table.kept:
            return ()
        if time.monotonic() < self._due:
            return self._told
        properties, servers = brokers_of(self._settings)
        world = RoutedTopic(servers, self._topic, properties)
        try:
            groups = set(table.groups)
            if self._settings.topics[self._topic].accept_unregistered:
                groups |= world.readers()
            self._told = groups_below(world, table, groups)
        except BalancerError:
            return self._told
        finally:
            world.close()
        self._due = time.monotonic() + self._every_s
        return self._told


def lead_topics(settings: Settings, board: Board, jobs: Jobs) -> None:
    """Have the leaders of all routed topics run beside the jobs; whoever is first leads, the others stand by.

    What a leader finds wrong is a problem of the topic's groups.
    """
    if not settings.kafka.bootstrap_servers or settings.store_url() is None:
        return
    for topic, own in settings.topics.items():
        leader, alarms = open_leader(settings, topic), SplitAlarms(board, topic, own.groups)
        leader.on_alarm = alarms
        jobs.beside(lambda leader=leader: leader.start() and None, leader.stop)  # type: ignore[misc]
        jobs.beside(lambda: None, alarms.close)


@contextmanager
def some_leader(settings: Settings, topic: str, own: TopicSettings | None = None) -> Iterator[TopicLeader]:
    """Make sure that somebody leads the topic and its planned groups while the block runs: ``serve``, else we."""
    leader = open_leader(settings, topic, own)
    with ExitStack() as stack:
        for group in (own or settings.topics[topic]).groups:
            if settings.group(group) is not None:
                stack.enter_context(some_mover(open_planned_group(settings, group)))
        leader.start()
        stack.callback(leader.stop)
        yield leader


def carry_out(settings: Settings, request: SplitRequest, within_s: float) -> SplitRequest:
    """Ask for a split or a merge, see to it that somebody carries it out, and wait for its end.

    Raises
    ------
    HeadwayError
        If it has not ended in time; whoever leads goes on with it.
    """
    routes = open_routes(settings)
    try:
        with some_leader(settings, request.topic):
            routes.request(request)
            end = time.monotonic() + within_s
            while time.monotonic() < end:
                with contextlib.suppress(RouteStoreUnavailable):
                    found = next((r for r in routes.requests(request.topic) if r.id == request.id), request)
                    if found.is_over:
                        return found
                time.sleep(0.05)
    finally:
        routes.close()
    raise HeadwayError(
        f"the {request.kind} of {request.topic}:{request.partition} has not ended within {within_s:g} s; "
        "look at headway serve and at the groups' workers"
    )


def new_request(kind: str, topic: str, partition: int, lanes: int = 2) -> SplitRequest:
    """Return a request that nobody has made before."""
    return SplitRequest(token_hex(6), topic, partition, kind, lanes)


def open_producer(settings: Settings, topic: str, name: str) -> RoutedProducer:
    """Return a routed producer; a topic that has no slot table yet is adopted first.

    Raises
    ------
    HeadwayError
        If it cannot be adopted.
    """
    from balancer.routing.errors import TableLogUnavailable
    from balancer.routing.producer import RoutedProducer
    from balancer.routing.settings import RouteSettings

    properties, servers = brokers_of(settings)
    url = settings.store_url()
    if url is None:
        raise HeadwayError("a routed producer needs the store that announces tables: set [store] url = redis://...")
    try:
        is_adopted = read_table(settings, topic) is not None
    except TableLogUnavailable as error:
        raise HeadwayError(str(error)) from error
    if not is_adopted:
        leader = open_leader(settings, topic, settings.topics.get(topic) or TopicSettings())
        leader.step()
        leader.stop()
    return RoutedProducer(
        RouteSettings(
            name=name,
            topics=(topic,),
            bootstrap_servers=servers,
            store_url=url,
            cluster=settings.cluster,
            properties=properties,
        )
    )


def relay(settings: Settings, topic: str, source: str, name: str, say: Callable[[str], None]) -> None:
    """Carry ``source`` into a routed topic until SIGTERM or SIGINT."""
    import signal

    from balancer.routing.relay import Relay

    producer = open_producer(settings, topic, name)
    made = Relay(producer.settings, source, producer=producer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.stop())
    say(f"relaying {source} into {topic}")
    made.run()
    say(f"{made.relayed} records relayed")
