"""What is known of each group right now, in memory: everything that a reader of the API gets without any I/O.

Jobs write, requests read. Documents are serialised once and kept until something about the group changes, so that
ten thousand readers cost what one costs. When the store is away the board still holds the last good answers with
their ages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from balancer.group import GroupSnapshot
from balancer.plan import ScalingPlan
from balancer.plans.base import Decision
from forecaster.forecast import Forecast, NoForecast
from forecaster.packed import KeptForecasts
from headway.status.wire import Document, bound_document, encode, instant, plan_document, snapshot_document

KEPT_POINTS = 20_000
STEADY_FOR = timedelta(minutes=5)
"""Of a group whose members do not change, one point is kept each so long."""
KEPT_DECISIONS = 100
"""Of those that changed something: what is answered while the store is away."""


UNSCORED = (False, ("no forecast has been scored yet",))


@dataclass(slots=True)
class ReplicaPoint:
    """Members at one instant: requested, working, and what the reactive rule would have asked for."""

    at: datetime
    requested: int | None
    working: int | None
    reactive: int | None = None

    @property
    def numbers(self) -> tuple[int | None, int | None, int | None]:
        """Members, without the instant."""
        return self.requested, self.working, self.reactive


@dataclass(slots=True)
class GroupView:
    """One group on the board. Instants are when each input was last good; None is "never yet"."""

    name: str
    topics: tuple[str, ...]
    mode: str = "recommend"
    paused: bool = False
    paused_until: datetime | None = None
    forecasts: KeptForecasts = field(default_factory=KeptForecasts)
    plan: ScalingPlan | None = None
    plan_version: int | None = None
    snapshot: GroupSnapshot | None = None
    at: dict[str, datetime] = field(default_factory=dict)
    """Input → when it was last good: arrivals, forecast, plan, snapshot, actuation."""
    problems: dict[str, str] = field(default_factory=dict)
    """Input → why it could not be refreshed; gone when it could again."""
    quality: dict[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Topic → rolling WAPE and coverage of the acting forecast."""
    gates: dict[str, tuple[bool, tuple[str, ...]]] = field(default_factory=dict)
    """Topic → whether its forecast may be acted on, and why."""
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=KEPT_DECISIONS))
    replicas: deque[ReplicaPoint] = field(default_factory=lambda: deque(maxlen=KEPT_POINTS))
    latencies: deque[tuple[datetime, float]] = field(default_factory=lambda: deque(maxlen=KEPT_POINTS))
    """Observed p99 latency in seconds."""
    record_shares: dict[str, float] = field(default_factory=dict)
    """Topic → records per offset, where it was sampled."""
    acting_until: datetime | None = None
    capacity_per_member: float | None = None
    """Records/s of one member, configured or learned."""
    lead_time: timedelta | None = None
    """How long a member takes until it is useful, as the last plan took it."""
    cache: dict[object, bytes] = field(default_factory=dict)

    def saw(self, point: ReplicaPoint) -> None:
        """Keep how many members there are; within five minutes of nothing new, the last point takes the instant."""
        if len(self.replicas) > 1:
            before, last = self.replicas[-2], self.replicas[-1]
            if before.numbers == last.numbers == point.numbers and point.at - before.at < STEADY_FOR:
                self.replicas.pop()
        self.replicas.append(point)

    def remember(self, decision: Decision) -> None:
        """Keep a decision; one that repeats the one before takes its place."""
        last = self.decisions[-1] if self.decisions else None
        same = last is not None and (last.plan.replicas, last.plan.hold) == (decision.plan.replicas, decision.plan.hold)
        if last is not None and same and last.actuation is None and decision.actuation is None:
            self.decisions[-1] = decision
        else:
            self.decisions.append(decision)

    @property
    def state(self) -> str:
        """One of three: ``fine``, ``attention``, ``acting``."""
        if self.problems or (self.plan is not None and self.plan.hold):
            return "attention"
        if self.acting_until is not None and self.snapshot is not None and self.snapshot.at < self.acting_until:
            return "acting"
        return "fine"

    @property
    def scores(self) -> Mapping[str, float | None]:
        """Rolling WAPE and coverage of the acting forecast; of several topics, those of the worst."""
        return max(self.quality.values(), key=lambda scores: scores.get("wape") or 0.0, default={})

    @property
    def gate(self) -> tuple[bool, tuple[str, ...]]:
        """Whether the forecasts of all topics may be acted on, and why."""
        if len(self.topics) <= 1:
            return next(iter(self.gates.values()), UNSCORED)
        found = {topic: self.gates.get(topic, UNSCORED) for topic in self.topics}
        may_act = all(word for word, _ in found.values())
        told = (f"{t}: {why}" for t, (word, reasons) in found.items() if word == may_act for why in reasons)
        return may_act, tuple(told)

    @property
    def rung(self) -> str:
        """The worst rung among the group's topics; ``none`` before the first forecast."""
        found = [self.forecasts.totals(topic) for topic in self.forecasts]
        rungs = [f.rung for f in found if isinstance(f, Forecast)]
        if len(rungs) < len(self.topics) or any(isinstance(f, NoForecast) for f in found):
            return "none"
        order = list(type(rungs[0])) if rungs else []
        return str(max(rungs, key=order.index)) if rungs else "none"


Event = tuple[str, Document]


class Board:
    """All groups that are watched, and whoever listens to their changes."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupView] = {}
        self._troubles: dict[str, str] = {}
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Event], None]] = []

    def add(self, name: str, topics: tuple[str, ...], mode: str = "recommend") -> GroupView:
        """Put a group on the board, or return it if it is there."""
        with self._lock:
            view = self._groups.setdefault(name, GroupView(name, topics, mode))
            view.topics = topics or view.topics
            view.problems.update(self._troubles)
            return view

    def remove(self, name: str) -> None:
        """Take a group off the board."""
        with self._lock:
            self._groups.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups, sorted."""
        return tuple(sorted(self._groups))

    def get(self, name: str) -> GroupView | None:
        """Return a group's view, or None."""
        return self._groups.get(name)

    def update(self, name: str, kind: str, change: Callable[[GroupView], None], at: datetime | None = None) -> None:
        """Change a group's view, forget its serialised documents, and tell the listeners.

        ``kind`` names the input that is fresh as of ``at``; a problem noted under that name is over.
        """
        with self._lock:
            view = self._groups.get(name)
            if view is None:
                return
            change(view)
            if at is not None:
                view.at[kind] = at
                view.problems.pop(kind, None)
            view.cache = {}
        self.tell(kind, {"group": name, "kind": kind, "at": None if at is None else instant(at)})

    def problem(self, name: str, kind: str, why: str) -> None:
        """Note that an input could not be refreshed; what is there keeps its age."""
        with self._lock:
            view = self._groups.get(name)
            if view is None or view.problems.get(kind) == why:
                return
            view.problems[kind] = why
            view.cache = {}
        self.tell("problem", {"group": name, "kind": kind, "why": why})

    def trouble(self, kind: str, why: str | None) -> None:
        """Note what concerns every group there is or will be, or that it is over (None)."""
        with self._lock:
            if why is None:
                self._troubles.pop(kind, None)
            else:
                self._troubles[kind] = why
            for view in self._groups.values():
                if why is None:
                    view.problems.pop(kind, None)
                else:
                    view.problems[kind] = why
                view.cache = {}
        self.tell("problem", {"group": None, "kind": kind, "why": why})

    @property
    def troubles(self) -> dict[str, str]:
        """What concerns every group."""
        return dict(self._troubles)

    def solved(self, name: str, kind: str) -> None:
        """Note that a problem is over, where no input became fresh by it."""

        def forget(view: GroupView) -> None:
            view.problems.pop(kind, None)

        self.update(name, kind, forget)

    def rendered(self, name: str, key: object, build: Callable[[GroupView], object]) -> bytes:
        """Return a document of a group as JSON, built once until the group changes.

        Raises
        ------
        KeyError
            If the group is not on the board.
        """
        view = self._groups[name]
        cache = view.cache
        found = cache.get(key)
        if found is None:
            found = encode(build(view))
            if len(cache) < 256:
                cache[key] = found
        return found

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` for every change, from whatever thread made it; return how to stop."""
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def tell(self, kind: str, document: Document) -> None:
        """Tell the listeners something that is no group's change."""
        for listener in list(self._listeners):
            listener((kind, document))


def group_document(view: GroupView, now: datetime) -> dict[str, Any]:
    """Return a group's state: mode, rung, gate, what bounds it, the age of every input, and the next step."""
    plan = view.plan
    coming = [s for s in plan.steps if s.start > now] if plan is not None else []
    return {
        "group": view.name,
        "topics": list(view.topics),
        "state": view.state,
        "mode": view.mode,
        "paused": view.paused,
        "paused_until": None if view.paused_until is None else instant(view.paused_until),
        "rung": view.rung,
        "gate": {"may_act": view.gate[0], "reasons": list(view.gate[1])},
        "bound_by": None if plan is None else bound_document(plan.bound_by),
        "hold": None if plan is None else plan.hold,
        "reasons": [] if plan is None else list(plan.reasons),
        "replicas": {
            "requested": None if view.snapshot is None else view.snapshot.replicas,
            "working": None if view.snapshot is None else view.snapshot.working,
            "planned": None if plan is None else plan.replicas,
        },
        "next": None
        if not coming
        else {"from": instant(coming[0].start), "replicas": coming[0].replicas, "demand": round(coming[0].demand, 4)},
        "snapshot": None if view.snapshot is None else snapshot_document(view.snapshot),
        "capacity_per_member": view.capacity_per_member,
        "lead_time_s": None if view.lead_time is None else view.lead_time.total_seconds(),
        "record_shares": {topic: round(share, 4) for topic, share in view.record_shares.items()},
        "latency_p99_s": view.latencies[-1][1] if view.latencies else None,
        "scores": dict(view.scores),
        "ages": {kind: max((now - at).total_seconds(), 0.0) for kind, at in sorted(view.at.items())},
        "problems": dict(view.problems),
        "now": instant(now),
    }


def plan_view(view: GroupView) -> dict[str, Any]:
    """Return a group's plan, or why there is none yet."""
    if view.plan is None:
        why = view.problems.get("plan") or "no plan has been made yet; the first comes with the next tick"
        return {
            "group": view.name,
            "steps": [],
            "bound_by": {"kind": "none", "id": None, "from": None},
            "reasons": [why],
            "lower_bound": None,
            "replicas": None,
            "version": None,
            "made_at": None,
        }
    return plan_document(view.plan, view.plan_version)
