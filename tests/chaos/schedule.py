"""Random fault schedules: from a seed, always the same one (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What may happen at an instant."""

    KILL_WORKER = "kill_worker"
    FREEZE_WORKER = "freeze_worker"
    STOP_WORKER = "stop_worker"
    KILL_PLANNER = "kill_planner"
    FREEZE_PLANNER = "freeze_planner"
    RESTART_STORE = "restart_store"
    EMPTY_STORE = "empty_store"
    FAIL_OVER_STORE = "fail_over_store"
    FREEZE_STORE = "freeze_store"
    CUT_STORE = "cut_store"
    CUT_KAFKA = "cut_kafka"
    CLOCK_FORWARD = "clock_forward"
    CLOCK_BACK = "clock_back"
    KILL_BROKER = "kill_broker"
    FREEZE_BROKER = "freeze_broker"
    MOVE = "move"


WEIGHTS = {
    Fault.KILL_WORKER: 4,
    Fault.FREEZE_WORKER: 4,
    Fault.STOP_WORKER: 3,
    Fault.KILL_PLANNER: 3,
    Fault.FREEZE_PLANNER: 2,
    Fault.RESTART_STORE: 1,
    Fault.EMPTY_STORE: 1,
    Fault.FAIL_OVER_STORE: 1,
    Fault.FREEZE_STORE: 2,
    Fault.CUT_STORE: 3,
    Fault.CUT_KAFKA: 3,
    Fault.CLOCK_FORWARD: 1,
    Fault.CLOCK_BACK: 1,
    Fault.KILL_BROKER: 1,
    Fault.FREEZE_BROKER: 1,
    Fault.MOVE: 12,
}


@dataclass(frozen=True, slots=True)
class Event:
    """At ``at`` seconds from the start, ``fault`` happens to number ``whom`` and lasts for ``lasts`` seconds."""

    at: float
    fault: Fault
    whom: int
    lasts: float


def mode_of(seed: int) -> str:
    """Return the workers' mode in a schedule: mostly transactional.

    Examples
    --------
    >>> [mode_of(seed) for seed in range(1, 7)]
    ['transactional', 'transactional', 'transactional', 'sink', 'at_least_once', 'transactional']
    """
    return {4: "sink", 0: "at_least_once"}.get(seed % 5, "transactional")


def draw(seed: int, seconds: float, partitions: int) -> list[Event]:
    """Return a schedule.

    Examples
    --------
    >>> draw(7, 10.0, 6) == draw(7, 10.0, 6)
    True
    """
    rnd = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    events = []
    for _ in range(rnd.randint(4, 14)):
        fault = rnd.choices(kinds, weights)[0]
        whom = rnd.randrange(partitions) if fault is Fault.MOVE else rnd.randrange(3)
        events.append(Event(round(rnd.uniform(0, seconds), 2), fault, whom, round(rnd.uniform(0.2, 5.0), 2)))
    return sorted(events, key=lambda e: e.at)
