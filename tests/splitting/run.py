"""Random schedules of splits, merges, crashes and stale producers under load, and their verdicts."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from balancer.routing.errors import RouteStoreUnavailable
from tests.peers.kafka import Kafka
from tests.splitting.bed import Bed
from tests.splitting.flow import read_input
from tests.splitting.rows import Verdict, judge

EVENTS = {
    "split": 6,
    "merge": 5,
    "kill producer": 1.5,
    "freeze producer": 1.5,
    "kill worker": 1,
    "kill planner": 1,
    "freeze planner": 0.7,
    "freeze store": 0.7,
}


@dataclass(frozen=True, slots=True)
class Event:
    """At second ``at``: what, to whom, for how long."""

    at: float
    what: str
    whom: int
    lasts: float
    lanes: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule did, and what came of it."""

    seed: int
    events: tuple[Event, ...]
    verdict: Verdict
    groups: int
    transactional: bool
    done: int
    """Splits and merges that went through."""
    seconds: float


def draw(seed: int, seconds: float) -> list[Event]:
    """Return the events of a seed: a fixed function of it."""
    rnd = random.Random(seed)
    events, at = [], rnd.uniform(0.0, 0.5)
    while at < seconds:
        (what,) = rnd.choices(list(EVENTS), list(EVENTS.values()))
        events.append(Event(at, what, rnd.randrange(4), rnd.uniform(0.3, 3.5), rnd.choice((2, 2, 3))))
        at += rnd.expovariate(1.2)
    return events


class Schedules:
    """A bed on which schedules run one after the other; each is judged on everything written until then."""

    def __init__(self, kafka: Kafka, *, groups: int, transactional: bool = True) -> None:
        self.bed = Bed(kafka, "chaos", partitions=2, groups=groups, max_partitions=7)
        self.groups, self.transactional = groups, transactional
        self.due: list[tuple[float, str]] = []
        self.before = Verdict()

    def __enter__(self) -> Schedules:
        bed = self.bed.__enter__()
        bed.planner()
        for group in range(self.groups):
            for instance in (1, 2):
                bed.worker(group, instance)
        for number in range(2):
            bed.producer(number, rate=100, keys=10, transactional=self.transactional)
        bed.flowing()
        return self

    def __exit__(self, *error: object) -> None:
        self.bed.__exit__(*error)

    def tend(self) -> None:
        """Start again what ended, and end faults that are over."""
        for name in list(self.bed.configs):
            process = self.bed.processes.get(name)
            if process is None or process.poll() is not None:
                self.bed.again(name)
        now = time.monotonic()
        for at, name in [d for d in self.due if now >= d[0]]:
            self.due.remove((at, name))
            if name == "store":
                self.bed.server.resume()
            elif name in self.bed.processes:
                self.bed.processes[name].send_signal(signal.SIGCONT)

    def apply(self, event: Event) -> None:
        bed, (verb, _, what) = self.bed, event.what.partition(" ")
        until = time.monotonic() + event.lasts
        if event.what in ("split", "merge"):
            with contextlib.suppress(RouteStoreUnavailable):
                bed.request(event.what, event.whom % bed.partitions, event.lanes)
            return
        if what == "store":
            bed.server.pause()
            self.due.append((until, "store"))
            return
        name = {
            "producer": f"p{event.whom % 2}",
            "worker": f"w{event.whom % self.groups}{1 + event.whom % 2}",
            "planner": "planner",
        }[what]
        process = bed.processes.get(name)
        if process is None:
            return
        if verb == "kill":
            process.kill()
        else:
            process.send_signal(signal.SIGSTOP)
            self.due.append((until, name))

    def run(self, seed: int, seconds: float) -> Result:
        """Run one schedule; then everything written so far must come through, whole and in order."""
        events, began = draw(seed, seconds), time.monotonic()
        ended = self._ended()
        for event in events:
            while time.monotonic() < began + event.at:
                self.tend()
                time.sleep(0.02)
            self.apply(event)
        while time.monotonic() < began + seconds or self.due:
            self.tend()
            time.sleep(0.02)
        made = read_input(self.bed.kafka.bootstrap, self.bed.topic)
        limit = time.monotonic() + 90
        while True:
            self.tend()
            outputs = {g: self.bed.rows(g) for g in self.bed.groups}
            total = judge(made, outputs)
            if not total.lost or time.monotonic() > limit:
                break
            time.sleep(0.5)
        verdict = Verdict(
            total.made - self.before.made,
            total.lost,
            total.repeated - self.before.repeated,
            total.reordered - self.before.reordered,
            total.examples,
        )
        self.before = total
        took = time.monotonic() - began
        return Result(seed, tuple(events), verdict, self.groups, self.transactional, self._ended() - ended, took)

    def _ended(self) -> int:
        with contextlib.suppress(RouteStoreUnavailable):
            return sum(r.state == "done" for r in self.bed.store.requests(self.bed.topic))
        return 0


def run(
    kafka: Kafka, seeds: Sequence[int], seconds: float = 6.0, per_bed: int = 12, *, transactional: bool = True
) -> Iterator[Result]:
    """Run schedules, some on each bed; every third bed has two groups."""
    for start in range(0, len(seeds), per_bed):
        groups = 2 if (seeds[start] // per_bed) % 3 == 0 else 1
        with Schedules(kafka, groups=groups, transactional=transactional) as schedules:
            for seed in seeds[start : start + per_bed]:
                yield schedules.run(seed, seconds)
