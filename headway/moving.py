"""Movers of planned groups, wired from the settings: what ``serve`` and the commands that move data share."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

from balancer.leases.base import GroupView, LeaseStore, LeaseStoreLost, MoveRequest
from balancer.moves.machine import ENDS
from forecaster.topics import GroupId, TopicPartition
from headway.errors import HeadwayError, UnknownGroup
from headway.settings import Settings

if TYPE_CHECKING:
    from balancer.moves.duties import Duties
    from balancer.moves.kafka import PlannedGroup
    from balancer.moves.mover import Mover


@dataclass(frozen=True, slots=True)
class PlannedGroupParts:
    """Everything that moves one planned group."""

    mover: Mover
    duties: Duties
    source: PlannedGroup
    store: LeaseStore


def open_leases(settings: Settings, group: str) -> LeaseStore:
    """Open a group's leases.

    Raises
    ------
    HeadwayError
        If no store is configured: leases die with the embedded store, so planned groups need one of their own.
    """
    from balancer.leases.redis import RedisLeaseStore

    url = settings.store_url()
    if url is None:
        raise HeadwayError(
            "planned groups need a store that outlives this process: set [store] url = redis://... in headway.toml"
        )
    return RedisLeaseStore(url, settings.cluster, GroupId(group))


def open_planned_group(settings: Settings, group: str) -> PlannedGroupParts:
    """Wire a mover for one group; start it with ``parts.mover.start()``."""
    from balancer.moves.duties import Duties
    from balancer.moves.founding import KafkaFounder
    from balancer.moves.kafka import PlannedGroup
    from balancer.moves.mover import Mover

    own = settings.group(group)
    if own is None:
        raise UnknownGroup(group, settings.nearest(group))
    if not settings.kafka.bootstrap_servers:
        raise HeadwayError("no brokers: set [kafka] bootstrap_servers in headway.toml")
    properties = settings.kafka_properties()
    source = PlannedGroup(settings.kafka.bootstrap_servers, group, own.topics, properties)
    store = open_leases(settings, group)
    mover = Mover(store, source, KafkaFounder(source), f"{socket.gethostname()}.{os.getpid()}")
    return PlannedGroupParts(mover, Duties(source, store), source, store)


class Caretaker:
    """A mover and its duties on threads of their own, for as long as ``serve`` runs."""

    def __init__(self, parts: PlannedGroupParts, every_s: float = 15.0) -> None:
        self._parts = parts
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="headway-duties", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._parts.mover.start()
        self._thread.start()

    def _tend(self) -> None:
        from headway.logs import logger

        log = logger("moves")
        while not self._stopped.wait(self._every_s):
            token = self._parts.mover.token
            if token is None:
                continue
            try:
                self._parts.duties.tick(token, self._parts.store.view())
                self._parts.mover.paused = self._parts.duties.alarm
            except Exception as error:  # a broker or store that is away; the next tick looks again
                log.warning("duties of %s: %s", self._parts.source.group, error)

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._parts.mover.stop()


@contextmanager
def some_mover(parts: PlannedGroupParts) -> Iterator[None]:
    """Make sure that somebody leads the group while the block runs: ``serve`` if it does, else we."""
    parts.mover.start()
    try:
        yield
    finally:
        parts.mover.stop()


def wait_for(is_so: Callable[[GroupView], bool], store: LeaseStore, within_s: float, what: str) -> GroupView:
    """Wait until the group is so.

    Raises
    ------
    HeadwayError
        If it is not in time.
    """
    end = time.monotonic() + within_s
    while True:
        with contextlib.suppress(LeaseStoreLost):
            view = store.view()
            if is_so(view):
                return view
        if time.monotonic() > end:
            raise HeadwayError(f"{what} within {within_s:g} s; look at headway serve and at the workers' logs")
        time.sleep(0.05)


def move(parts: PlannedGroupParts, partition: TopicPartition, target: int, within_s: float) -> MoveRequest:
    """Ask for a move and wait for its end."""
    asked = MoveRequest(token_hex(6), partition, target)
    wait_for(lambda view: True, parts.store, within_s, "no planner founded the group")
    parts.store.request(asked)
    ends = {state.value for state in ENDS}

    def is_over(view: GroupView) -> bool:
        return asked.id in view.requests and view.requests[asked.id].state in ends

    return wait_for(is_over, parts.store, within_s, f"the move of {partition} did not end").requests[asked.id]
