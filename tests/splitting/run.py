"""Random schedules of splits, merges, crashes and stale producers under load, and their verdicts."""

from __future__ import annotations

import contextlib
import queue
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from balancer.routing.errors import RouteStoreUnavailable
from tests.peers.kafka import Kafka
from tests.splitting.bed import Bed, Patience
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
        at += rnd.expovariate(1.5)
    return events


class Schedules:
    """A bed on which schedules run one after the other; each is judged on everything written until then."""

    def __init__(self, kafka: Kafka, *, groups: int, transactional: bool = True) -> None:
        self.bed = Bed(kafka, "chaos", partitions=2, groups=groups, max_partitions=7)
        self.groups, self.transactional = groups, transactional
        self.due: list[tuple[float, str]] = []
        self.before = Verdict()
        self._done: set[str] = set()

    def __enter__(self) -> Schedules:
        bed = self.bed.__enter__()
        bed.planner()
        for group in range(self.groups):
            for instance in (1, 2):
                bed.worker(group, instance)
        for number in range(2):
            bed.producer(number, rate=60, keys=10, transactional=self.transactional)
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
        done = self._ended()
        for event in events:
            while time.monotonic() < began + event.at:
                self.tend()
                time.sleep(0.02)
            self.apply(event)
        while time.monotonic() < began + seconds or self.due:
            self.tend()
            time.sleep(0.02)
        made = self.bed.made()
        patience = Patience()
        while True:
            self.tend()
            outputs = {g: self.bed.rows(g) for g in self.bed.groups}
            total = judge(made, outputs)
            table = self.bed.table()
            handled = sum(map(len, outputs.values()))
            if not total.lost or patience.is_over((handled, table.epoch if table else None)):
                break
            time.sleep(0.2)
        verdict = Verdict(
            total.made - self.before.made,
            total.lost,
            total.repeated - self.before.repeated,
            total.reordered - self.before.reordered,
            total.examples,
        )
        self.before = total
        took = time.monotonic() - began
        return Result(seed, tuple(events), verdict, self.groups, self.transactional, self._ended() - done, took)

    def _ended(self) -> int:
        with contextlib.suppress(RouteStoreUnavailable):
            self._done |= {r.id for r in self.bed.store.requests(self.bed.topic) if r.state == "done"}
        return len(self._done)


def run(
    brokers: Sequence[Kafka],
    seeds: Sequence[int],
    seconds: float = 4.0,
    per_bed: int = 12,
    *,
    transactional: bool = True,
) -> Iterator[Result]:
    """Run schedules, some on each bed, and as many beds at once as there are brokers; every third has two groups.

    Each bed has a store of its own, so beds must not share a broker at a time: a leader fences every routed producer
    that its store does not know.
    """
    free: queue.Queue[Kafka] = queue.Queue()
    for one in brokers:
        free.put(one)
    found: queue.Queue[Result | BaseException | None] = queue.Queue()
    stopping = threading.Event()
    parts = [seeds[i : i + per_bed] for i in range(0, len(seeds), per_bed)]

    def on_one_bed(number: int, part: Sequence[int]) -> None:
        kafka = free.get()
        try:
            with Schedules(kafka, groups=2 if number % 3 == 0 else 1, transactional=transactional) as schedules:
                for seed in part:
                    if stopping.is_set():
                        return
                    found.put(schedules.run(seed, seconds))
        except BaseException as error:
            found.put(error)
        finally:
            free.put(kafka)
            found.put(None)

    with ThreadPoolExecutor(max_workers=len(brokers)) as pool:
        for number, part in enumerate(parts):
            pool.submit(on_one_bed, number, part)
        ended = 0
        try:
            while ended < len(parts):
                result = found.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    ended += 1
                else:
                    yield result
        finally:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
