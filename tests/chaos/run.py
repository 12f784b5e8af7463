"""Runs one fault schedule under load, and judges what came out."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from dataclasses import dataclass
from secrets import token_hex

import redis

from balancer.leases.base import LeaseStoreError, MoveRequest
from forecaster.topics import TopicPartition
from tests.chaos.bed import Bed
from tests.chaos.proxy import Door, Proxy
from tests.chaos.rows import Verdict
from tests.chaos.schedule import Event, Fault, draw, mode_of
from tests.peers.kafka import Kafka


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule did, and what came of it."""

    seed: int
    verdict: Verdict
    events: tuple[Event, ...]
    restarts: int
    seconds: float


class Chaos:
    """A bed under faults: an orchestrator that restarts what ended, and healers that come due."""

    def __init__(self, bed: Bed, seed: int) -> None:
        self.bed = bed
        self.rnd = random.Random(seed ^ 0xC0FFEE)
        self.healers: list[tuple[float, str]] = []
        self.restarts = 0
        self.planners = 0
        self.proxies: dict[str, Proxy] = {}
        self.doors: dict[str, Door] = {}

    def start(self, doors: list[list[tuple[int, int]]]) -> None:
        bed = self.bed
        bed.start_planner("planner", inside=False)
        bed.start_flow()
        for i, ports in zip((1, 2, 3), doors, strict=True):
            self.proxies[f"w{i}"] = Proxy(bed.server.port)
            self.doors[f"w{i}"] = Door(ports)
            self.worker(f"w{i}")
        bed.share_out(1, 2, 3, tend=self.tend)

    def worker(self, name: str) -> None:
        """Start a worker; all its connections lead through proxies of the test."""
        url = f"redis://127.0.0.1:{self.proxies[name].port}/0"
        self.bed.worker(name, int(name[1]), store_url=url, bootstrap_servers=self.doors[name].bootstrap)

    def tend(self) -> None:
        """Do what an orchestrator does: start again what ended, and end faults that are over."""
        bed = self.bed
        for name in ("w1", "w2", "w3"):
            process = bed.processes.get(name)
            if process is None or process.poll() is not None:
                self.restarts += 1
                self.worker(name)
        planner = bed.processes.get("planner")
        if planner is None or planner.poll() is not None:
            self.planners += 1
            bed.start_planner("planner", inside=False)
        now = time.monotonic()
        for due, what in list(self.healers):
            if now >= due:
                self.healers.remove((due, what))
                self._heal(what)

    def _heal(self, what: str) -> None:
        kind, _, name = what.partition(" ")
        if kind == "resume":
            with contextlib.suppress(KeyError, ProcessLookupError):
                self.bed.processes[name].send_signal(signal.SIGCONT)
        elif kind == "proxy":
            self.proxies[name].heal()
        elif kind == "door":
            self.doors[name].heal()
        elif kind == "store":
            self.bed.server.resume()
        elif kind == "broker-resume":
            with contextlib.suppress(KeyError):
                self.bed.kafka.resume(int(name))
        elif kind == "broker-restart":
            self.bed.kafka.restart(int(name), wait=False)  # another node may be frozen at the moment

    def apply(self, event: Event) -> None:
        """Let a fault happen."""
        bed, name = self.bed, f"w{event.whom + 1}"
        until = time.monotonic() + event.lasts
        process = bed.processes.get(name)
        fault = event.fault
        if fault is Fault.MOVE:
            with contextlib.suppress(LeaseStoreError):
                target = self.rnd.choice((1, 2, 3))
                bed.store.request(MoveRequest(token_hex(5), TopicPartition(bed.input, event.whom), target))
        elif fault is Fault.KILL_WORKER and process is not None:
            process.kill()
        elif fault is Fault.STOP_WORKER and process is not None:
            process.terminate()
        elif fault is Fault.FREEZE_WORKER and process is not None:
            process.send_signal(signal.SIGSTOP)
            self.healers.append((until, f"resume {name}"))
        elif fault is Fault.KILL_PLANNER:
            bed.processes["planner"].kill()
        elif fault is Fault.FREEZE_PLANNER:
            bed.processes["planner"].send_signal(signal.SIGSTOP)
            self.healers.append((until, "resume planner"))
            if "standby" not in bed.processes:
                bed.start_planner("standby", inside=False)  # leads when the lead runs out; the first one wakes to that
        elif fault is Fault.CUT_STORE:
            proxy = self.proxies[name]
            (proxy.cut if event.lasts < 2.5 else proxy.freeze)()
            self.healers.append((until, f"proxy {name}"))
        elif fault is Fault.CUT_KAFKA:
            door = self.doors[name]
            (door.cut if event.lasts < 2.5 else door.freeze)()
            self.healers.append((until, f"door {name}"))
        elif fault in (Fault.CLOCK_FORWARD, Fault.CLOCK_BACK):
            with contextlib.suppress(redis.RedisError):
                bed.turn_clock(event.lasts * (3 if fault is Fault.CLOCK_FORWARD else -3))
        else:
            self._server_fault(event, until)

    def _server_fault(self, event: Event, until: float) -> None:
        bed, fault = self.bed, event.fault
        if fault is Fault.FREEZE_STORE:
            bed.server.pause()
            self.healers.append((until, "store"))
        elif fault in (Fault.RESTART_STORE, Fault.EMPTY_STORE, Fault.FAIL_OVER_STORE):
            old = bed.folder / "old"
            if fault is Fault.FAIL_OVER_STORE:
                # What a replica is that was cut off a moment ago: the file as it was, without its tail.
                shutil.copytree(bed.server.folder, old, dirs_exist_ok=True)
                time.sleep(0.7)
            bed.server.kill()
            if fault is not Fault.RESTART_STORE:
                bed.server.empty()
            if fault is Fault.FAIL_OVER_STORE:
                shutil.copytree(old, bed.server.folder, dirs_exist_ok=True)
                shutil.rmtree(old)
            time.sleep(min(event.lasts, 1.5))
            bed.server.start()
        elif not bed.kafka.processes:
            return  # all brokers are away already
        elif fault is Fault.KILL_BROKER:
            node = self.rnd.choice(list(bed.kafka.processes))
            bed.kafka.kill(node)
            if bed.kafka.brokers == 1:
                bed.kafka.restart(node)
            else:
                self.healers.append((until, f"broker-restart {node}"))
        elif fault is Fault.FREEZE_BROKER:
            node = self.rnd.choice(list(bed.kafka.processes))
            bed.kafka.pause(node)
            self.healers.append((until, f"broker-resume {node}"))

    def close(self) -> None:
        """Close the proxies, and leave the brokers as they were found."""
        for proxy in [*self.proxies.values(), *self.doors.values()]:
            proxy.close()
        kafka = self.bed.kafka
        for node in kafka.processes:
            kafka.resume(node)
        for node in range(1, kafka.brokers + 1):
            if node not in kafka.processes:
                kafka.restart(node)


def run(seed: int, kafka: Kafka, *, seconds: float = 8.0, partitions: int = 6, rate: float = 200) -> Result:
    """Run the schedule of a seed; raise what a bed raises when it cannot even start.

    ``kafka`` must have three doors.
    """
    events = draw(seed, seconds, partitions)
    began = time.monotonic()
    bed = Bed(f"chaos{seed}", kafka=kafka, partitions=partitions, rate=rate, durable=True, mode=mode_of(seed))
    with bed:
        chaos = Chaos(bed, seed)
        try:
            chaos.start(kafka.doors[:3])
            start = time.monotonic()
            for event in events:
                while time.monotonic() < start + event.at:
                    chaos.tend()
                    time.sleep(0.02)
                chaos.apply(event)
            while time.monotonic() < start + seconds or chaos.healers:
                chaos.tend()
                time.sleep(0.02)
            _, verdict = bed.finish(within_s=300, tend=chaos.tend)
            if not verdict.is_clean:
                kept = bed.folder.with_name(f"headway-chaos-{seed}-logs")
                kept.mkdir(exist_ok=True)
                for pattern in ("*.log", "rows.*", "*.rows", "sink*", "made.json"):
                    for path in bed.folder.glob(pattern):
                        shutil.copy(path, kept)
        finally:
            chaos.close()
    return Result(seed, verdict, tuple(events), chaos.restarts, time.monotonic() - began)
