"""Movers of planned groups, wired from the settings: what ``serve`` and the commands that move data share."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

from balancer.leases.base import GroupView, LeaseStore, LeaseStoreLost, MoveRequest
from balancer.moves.machine import ENDS
from balancer.moves.members import instance_of
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.settings import Settings
from headway.consumers.routes import gate_lanes
from headway.errors import HeadwayError, UnknownGroup, one_line

if TYPE_CHECKING:
    from balancer.moves.duties import Duties
    from balancer.moves.kafka import PlannedGroup
    from balancer.moves.mover import Mover
    from balancer.plan import ScalingPlan


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
    gate_lanes(settings, group, own.topics, mover)
    return PlannedGroupParts(mover, Duties(source, store), source, store)


class Caretaker:
    """A mover, its duties and the plan that it follows, on threads of their own for as long as ``serve`` runs.

    Whoever leads the leases follows the plan that was published last, whoever made it: of several instances of
    ``serve`` one may plan while another moves.

    Parameters
    ----------
    parts
        What moves the group.
    published
        The plan to be followed, with its version; None while nothing may be moved.
    off
        Why nothing at all is to be granted or moved (mode ``off``); None while it is. Fences go on.
    gate
        What speaks against moving on these brokers; asked now and then. While anything does, the plan is not
        followed: what is free is granted, the silent are fenced, and moves asked for by hand take place.
    tell
        Told what is wrong with the group, None when nothing is.
    duties_every_s, look_every_s, gate_every_s
        Between looks at topics and members, at the plan, and at the gate.
    """

    def __init__(
        self,
        parts: PlannedGroupParts,
        published: Callable[[], tuple[int, ScalingPlan] | None],
        off: Callable[[], str | None] = lambda: None,
        gate: Callable[[], Sequence[str]] = lambda: (),
        tell: Callable[[str | None], None] = lambda why: None,
        duties_every_s: float = 15.0,
        look_every_s: float = 1.0,
        gate_every_s: float = 300.0,
    ) -> None:
        self._parts, self._published, self._off, self._gate, self._tell = parts, published, off, gate, tell
        self._duties_every_s, self._look_every_s, self._gate_every_s = duties_every_s, look_every_s, gate_every_s
        self._closed: Sequence[str] | None = None
        self._gate_due = 0.0
        self._followed: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="headway-duties", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._parts.mover.start()
        self._thread.start()

    def _tend(self) -> None:
        from headway.status.logs import logger

        log, due = logger("moves"), 0.0
        failing: str | None = None
        while not self._stopped.wait(self._look_every_s):
            token = self._parts.mover.token
            if token is None:
                self._followed = None
                continue
            try:
                if is_due := time.monotonic() >= due:
                    due = time.monotonic() + self._duties_every_s
                    self._parts.duties.tick(token, self._parts.store.view())
                    self._tell(self._parts.duties.alarm or "; ".join(self._closed or ()) or None)
                self._parts.mover.paused = self._parts.duties.alarm or self._off()
                if self._parts.mover.paused is None:
                    self._follow()
                if is_due and failing is not None:
                    failing = None
                    log.info("looking after a planned group goes on", group=self._parts.source.group)
            except Exception as error:  # a broker or store that is away; the next look comes soon
                why = one_line(error)
                if why != failing:
                    failing = why
                    log.warning("looking after a planned group failed", group=self._parts.source.group, why=why)
                    self._tell(why)

    def _follow(self) -> None:
        found = self._published()
        if found is None or found[0] == self._followed:
            return
        version, made = found
        assignment = made.steps[0].assignment
        if made.hold or not assignment or self._is_closed():
            return
        owners = {tp: instance_of(member) for member, owned in assignment.items() for tp in owned}
        if self._parts.mover.follow(owners, made.reasons) is not None:
            self._followed = version

    def _is_closed(self) -> bool:
        if self._closed is None or time.monotonic() >= self._gate_due:
            self._closed = self._gate()
            self._gate_due = time.monotonic() + (15.0 if self._closed else self._gate_every_s)
        return bool(self._closed)

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._parts.mover.stop()
        if self._thread.is_alive():
            self._thread.join(5)


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
