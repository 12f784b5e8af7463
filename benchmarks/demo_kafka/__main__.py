"""Planned members on real Kafka, scaled ahead of a replayed spike, beside a group that is scaled by its lag.

    make demo-kafka

Brings up one broker and one store on loopback in a folder that goes with it, replays an afternoon of the 1998 World
Cup's web site onto a topic, and lets two groups read the same records at the same time: one under Headway, one under
the usual rule. Members are real processes that start when they are asked for. Ends by itself with a table;
``KEEP=1`` keeps it as ``benchmarks/results/demo_kafka.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from confluent_kafka.admin import AdminClient, NewTopic

from balancer.actuators.process import ProcessActuator, WorkerCommand
from benchmarks.demo_kafka.members import ROW
from benchmarks.demo_kafka.ours import GROUP, TICK_S, Ours, every, write_config
from benchmarks.demo_kafka.outcome import Ledger, delays, figures
from benchmarks.demo_kafka.rival import LagScaler, tuned
from benchmarks.demo_kafka.scene import THEIRS, FastClock, Scene, make_scene
from benchmarks.demo_kafka.tempo import PACE, PARTITIONS, TOPIC
from benchmarks.figures import keep_figures
from forecaster.forecast import Forecast
from forecaster.stores.embedded import EmbeddedServer
from forecaster.topics import GroupId
from headway.cli.output import emit_table
from headway.configuration.settings import load
from headway.demo import learned_on_history
from headway.demo_setup import served
from headway.wiring import open_application
from tests.peers import needs
from tests.peers.kafka import Kafka, free_ports

ROOT = Path(__file__).resolve().parents[2]


def say(text: str = "") -> None:
    """Tell whoever watches."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Play it; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo-kafka", description=__doc__.split("\n")[0])
    parser.add_argument("--keep", action="store_true", help="keep the result as a figure of the README")
    keep = parser.parse_args().keep
    began = time.monotonic()
    for need in needs.install("kafka"):
        say(f"no {need.what}: apt-get install {' '.join(need.packages)}")
        return 1
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.disable(logging.CRITICAL)  # a mover that founds its books anew says so; here that is every time
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-demo-kafka-")))
        result = play(folder, stack, began)
    result["seconds"] = round(time.monotonic() - began, 1)
    result["load"] = round(os.getloadavg()[1], 1)
    tell(result)
    if keep:
        keep_figures("demo_kafka", result, ("confluent-kafka", "numpy"))
    return 0


def play(folder: Path, stack: ExitStack, began: float) -> dict[str, Any]:
    """Set the stage, replay, and return the figures."""
    say("1. one broker of Apache Kafka and a store, on loopback (the first time, Maven fetches 44 MB)")
    kafka = stack.enter_context(Kafka(folder / "kafka"))
    server = stack.enter_context(EmbeddedServer(folder / "store"))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    scene, clock = make_scene(), FastClock()
    world = scene.world
    config = write_config(folder, server.url, kafka.bootstrap, free_ports(1)[0], scene)
    settings = load(config)

    say("2. five weeks of history: Headway learns its forecast and its knobs, the rival its lag threshold")
    app = stack.enter_context(open_application(settings, clock))
    knobs = learned_on_history(world)
    policy, words = tuned(scene)
    environ = {"DEMO_RECORDS_S": f"{scene.capacity * PACE}", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    worker = ["-m", "headway", "worker", "--group", str(GROUP), "--topics", TOPIC, "--mode", "at_least_once"]
    worker += ["--handler", "benchmarks.demo_kafka.members:handle", "--instance", "{instance}", "--config", str(config)]
    plain = ["-m", "benchmarks.demo_kafka.members", kafka.bootstrap, THEIRS, TOPIC]
    rows = {name: folder / "rows" / name for name in (str(GROUP), THEIRS)}
    commands = {
        GroupId(name): WorkerCommand((sys.executable, *line), environ | {"DEMO_ROWS": str(rows[name])}, grace_s=6)
        for name, line in ((str(GROUP), worker), (THEIRS, plain))
    }
    supervisor = ProcessActuator(commands, folder / "logs")
    stack.callback(supervisor.close)

    first = math.ceil(float(world.history[-15:].mean()) / 60 / (0.8 * scene.capacity))
    say(f"3. both groups begin with {first} members: processes that handle {_per_s(scene)} records/s each")
    ledgers = {str(GROUP): Ledger(), THEIRS: Ledger()}

    def scale(name: str, members: int) -> None:
        supervisor.scale(GroupId(name), members, clock())
        ledgers[name].note(time.monotonic(), members)

    ours = Ours(app, settings, scene, supervisor, knobs)
    stack.callback(ours.stop)
    ours.start()
    for name in ledgers:
        scale(name, first)
    _wait_for_members(ours, admin, first, folder)
    url = stack.enter_context(served(app, settings))

    minutes = world.arrivals
    producer = _producer(folder, kafka.bootstrap, minutes, stack)
    start = clock.start()
    print(start, file=producer.stdin, flush=True)
    theirs = LagScaler(kafka.bootstrap, policy, first, lambda n: scale(THEIRS, n), clock)
    theirs.start()
    stack.callback(theirs.stop)
    end = start + minutes.size * 60 / PACE
    say(
        f"4. {world.start:%d %B %Y %H:%M} to {world.end:%H:%M} UTC, {PACE:.0f} times as fast: {end - start:.0f} s; "
        f"page: {url}\n   late is what waits longer than {scene.slo_wall_s:.1f} s. "
        f"The rival is KEDA's lag rule, {words}\n"
    )
    _replay(ours, theirs, supervisor, clock, end, ledgers)
    producer.wait(30)
    say("\n5. the trace is over: what waits is handled, then both groups are counted")
    made = json.loads((folder / "made.json").read_text())
    _wait_until_handled(rows, sum(made["counts"]))
    theirs.stop()
    needed = _needed(minutes, scene, start, first)
    result: dict[str, Any] = {
        name: figures(delays(rows[key], made["counts"]), ledgers[key], start, end, scene.slo_wall_s, needed)
        for name, key in (("headway", str(GROUP)), ("by_lag", THEIRS))
    }
    return {
        **result,
        "pace": PACE,
        "late_after_s": round(scene.slo_wall_s, 2),
        "replayed_s": round(end - start, 1),
        "partitions": PARTITIONS,
        "member_records_s": _per_s(scene),
        "peak_records_s": round(float(np.convolve(minutes, np.ones(5) / 5, "valid").max()) / 60 * PACE, 1),
        "rival": f"cooperative-sticky, KEDA's lag rule, {words}",
        "ready_s": round(start - began, 1),
    }


def _per_s(scene: Scene) -> int:
    return round(scene.capacity * PACE)


def _producer(folder: Path, bootstrap: str, minutes: Any, stack: ExitStack) -> subprocess.Popen[str]:
    """Start the producer; it waits to be told when to begin."""
    config = {"bootstrap": bootstrap, "minutes": minutes.tolist(), "file": str(folder / "made.json")}
    line = [sys.executable, "-m", "benchmarks.demo_kafka.producer", json.dumps(config)]
    process = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)
    assert process.stdin is not None and process.stdout is not None
    stack.enter_context(process.stdin)
    with process.stdout as said:
        if said.readline().strip() != "ready":
            raise RuntimeError("the producer did not start; its words are above")
    return process


def _wait_for_members(ours: Ours, admin: AdminClient, count: int, folder: Path) -> None:
    """Wait until every partition is held under Headway, and the rival's members share all of theirs."""

    def planned() -> bool:
        tick = ours.step()
        owners = [m for m in tick.snapshot.members if m.partitions] if tick.snapshot is not None else []
        return len(owners) == count and sum(len(m.partitions) for m in owners) == PARTITIONS

    def ordinary() -> bool:
        members = admin.describe_consumer_groups([THEIRS])[THEIRS].result(10).members
        held = [len(m.assignment.topic_partitions) for m in members if m.assignment]
        return len(held) == count and sum(held) == PARTITIONS

    for is_so in (planned, ordinary):
        _until(is_so, 90, lambda: "\n".join(p.read_text()[-800:] for p in sorted((folder / "logs").glob("*.log"))))


def _until(is_so: Callable[[], bool], within_s: float, else_say: Callable[[], str]) -> None:
    limit = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > limit:
            raise TimeoutError(f"not so within {within_s:g} s\n{else_say()}")
        time.sleep(0.1)


def _replay(
    ours: Ours, theirs: LagScaler, supervisor: ProcessActuator, clock: FastClock, end: float, ledgers: dict[str, Ledger]
) -> None:
    told, asked = clock() - timedelta(hours=1), ledgers[str(GROUP)].changes[-1][1]
    say("   trace   arrivals  in 20 min (95 %)     Headway  lag    by lag  lag")
    while time.monotonic() < end:
        tick = ours.step()
        now = clock()
        if tick.actuation is not None and tick.actuation.replicas != asked:
            before, asked = asked, tick.actuation.replicas
            ledgers[str(GROUP)].note(time.monotonic(), asked)
            words = ("→", "no more throughput")
            why = next((r for r in tick.plan.reasons if any(w in r for w in words)), tick.plan.reasons[0])
            say(f"   {now:%H:%M}   Headway {before} → {asked}: {why.partition(': ')[2] or why}")
        if now - told >= timedelta(minutes=7.5) and tick.snapshot is not None:
            told = now
            rate, known = tick.snapshot.arrival_rate
            lag, _ = tick.snapshot.lag
            arrivals = f"{rate * PACE:.0f}/s" if known == 1 else "unknown"
            ahead = _ahead(tick.forecast)
            live = sum(w.pid is not None and not w.draining for w in supervisor.workers(THEIRS))
            say(
                f"   {now:%H:%M} {arrivals:>9} {ahead:>16}     {tick.snapshot.working:2} of {asked:2}"
                f" {lag:5.0f}  {live:2} of {theirs.requested:2} {theirs.lag:5.0f}"
            )
        every(TICK_S, lambda: time.monotonic() < end)


def _ahead(forecast: object) -> str:
    """Return the median and the 95 % quantile that are forecast for twenty minutes on, in records/s of the wall."""
    if not isinstance(forecast, Forecast):
        return "-"
    row = forecast.total[4]
    median, high = (row[forecast.level_index(q)] * PACE for q in (0.5, 0.95))
    return f"{median:5.0f} ({high:.0f})"


def _needed(minutes: Any, scene: Scene, start: float, first: int) -> dict[int, float]:
    """Return members → when the arrivals of five minutes first needed so many, beyond those that were there."""
    mean = np.convolve(minutes, np.ones(5) / 5, "valid") / 60 / scene.capacity
    highest = math.ceil(float(mean.max()))
    return {n: start + float(np.argmax(mean > n - 1)) * 60 / PACE for n in range(first + 1, highest + 1)}


def _wait_until_handled(rows: dict[str, Path], count: int) -> None:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if all(sum(p.stat().st_size for p in folder.glob("*.rows")) >= count * ROW.size for folder in rows.values()):
            break
        time.sleep(0.2)
    time.sleep(0.3)


def tell(result: dict[str, Any]) -> None:
    """Print the table."""
    names = {"headway": "Headway, planned", "by_lag": "cooperative-sticky, by lag"}
    table = [
        [words, f["late"], f"{100 * f['late_share']:.2f} %", f"{f['p50_s']:.2f}", f["p99_s"] and f"{f['p99_s']:.2f}",
         f["member_seconds"], f["rescales"], f["asked_before_need_s"]]
        for key, words in names.items() for f in [result[key]]
    ]  # fmt: skip
    print()
    heads = ["group", "late", "share", "p50 s", "p99 s", "member-seconds", "rescales", "asked before needed, s"]
    emit_table(heads, table)
    print(
        f"\nthe same {result['headway']['records']} records for both, late after {result['late_after_s']} s, "
        f"{result['seconds']:.0f} s in all"
    )
    if result["load"] > 2 * (os.cpu_count() or 1):
        print(f"other work kept this machine busy (load {result['load']:.0f}): both groups were slower for it")


if __name__ == "__main__":
    sys.exit(main())
