"""Random fault schedules on real Kafka: ``python -m tests.chaos [--seed N] [--schedules 200] [--brokers 1]``.

Each schedule of at most 20 s runs under load; a ``read_committed`` reader then counts lost, repeated and reordered
records per key. Results are kept in a file, so that a run that was interrupted goes on where it stopped; figures
count for one version of the code. A failing seed is replayed with ``--seed``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from tests.chaos.bed import ROOT
from tests.chaos.run import run
from tests.chaos.schedule import mode_of
from tests.chaos.version import code_version
from tests.peers.kafka import VERSION, Kafka


def main() -> int:
    """Run schedules; exit code 1 if any lost, repeated or reordered a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a schedule, 20 at most")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--lanes", type=int, default=3, help="schedules at once, each on brokers of its own")
    parser.add_argument("--rate", type=float, default=200.0, help="records/s")
    parser.add_argument("--for-s", type=float, default=1e9, help="begin no schedule after so many seconds")
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "chaos.jsonl", help="where results are kept")
    args = parser.parse_args()
    args.file.parent.mkdir(parents=True, exist_ok=True)
    version, end = code_version(), time.monotonic() + args.for_s
    known = {r["seed"] for r in _rows(args.file) if r["version"] == version and r["brokers"] == args.brokers}
    seeds = [s for s in range(args.first, args.first + args.schedules) if s not in known]
    if args.seed is not None:
        seeds, args.lanes = [args.seed], 1
    found = Findings(args, version)
    with contextlib.ExitStack() as stack:
        free: queue.Queue[Kafka] = queue.Queue()
        for _ in range(args.lanes):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            free.put(stack.enter_context(Kafka(folder, brokers=args.brokers, doors=3)))

        def one(seed: int) -> None:
            if time.monotonic() < end:
                kafka = free.get()
                try:
                    found.take(seed, kafka)
                finally:
                    free.put(kafka)

        with ThreadPoolExecutor(args.lanes) as pool:
            list(pool.map(one, seeds))
    if args.seed is not None:
        return found.bad
    found.summarise()
    return 1 if found.bad else 0


class Findings:
    """Runs schedules and writes down what came of each."""

    def __init__(self, args: argparse.Namespace, version: str) -> None:
        self._args, self._version = args, version
        self._lock = threading.Lock()
        self.bad = 0

    def take(self, seed: int, kafka: Kafka) -> None:
        """Run one schedule; a bed that cannot even start is no finding, and is tried again with the next run."""
        args = self._args
        try:
            result = run(seed, kafka, seconds=min(args.seconds, 20.0), rate=args.rate)
        except (TimeoutError, AssertionError, ck.KafkaException, RuntimeError) as error:
            print(f"seed {seed}: did not run: {str(error)[:2000]}", flush=True)
            return
        v = result.verdict
        faults = " ".join(e.fault.value for e in result.events)
        row = {"seed": seed, "version": self._version, "mode": mode_of(seed), "brokers": args.brokers, **asdict(v)}
        row |= {"kafka": VERSION, "client": ck.libversion()[0], "restarts": result.restarts}
        row |= {"seconds": round(result.seconds, 1), "lanes": args.lanes, "faults": faults}
        with self._lock:
            self.bad += not v.is_clean
            print(
                f"seed {seed} ({mode_of(seed)}): produced {v.produced} lost {v.lost} repeated {v.repeated} "
                f"reordered {v.reordered}, {result.restarts} restarts, {result.seconds:.0f} s: {faults}",
                flush=True,
            )
            with args.file.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def summarise(self) -> None:
        """Add up what is known at this version, and keep that."""
        rows = [r for r in _rows(self._args.file) if r["version"] == self._version]
        sums = {k: sum(r[k] for r in rows) for k in ("produced", "lost", "repeated", "reordered", "restarts")}
        kept = {
            "schedules": len(rows),
            "modes": dict(Counter(r["mode"] for r in rows)),
            "brokers": dict(Counter(str(r["brokers"]) for r in rows)),
            "faults": dict(Counter(f for r in rows for f in r["faults"].split())),
            "bad_seeds": [r["seed"] for r in rows if r["lost"] or r["repeated"] or r["reordered"]],
            "judged_again": [r["seed"] for r in rows if "note" in r],
            **sums,
            "version": self._version,
            "versions": {"kafka": VERSION, "librdkafka": ck.libversion()[0], "python": platform.python_version()},
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "command": "make chaos",
        }
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")
        print({name: kept[name] for name in ("schedules", "modes", "brokers", *sums)})


RESULT = ROOT / "benchmarks" / "results" / "chaos.json"


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    sys.exit(main())
