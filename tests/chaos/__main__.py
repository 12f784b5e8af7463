"""Random fault schedules on real Kafka: ``python -m tests.chaos [--seed N] [--schedules 200] [--brokers 1]``.

Each schedule of at most 20 s runs under load; a ``read_committed`` reader then counts lost, repeated and reordered
records per key. Results are kept in a file, so that a run that was interrupted goes on where it stopped; figures
count for one version of the code. A failing seed is replayed with ``--seed``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import confluent_kafka as ck

from tests.chaos.bed import ROOT
from tests.chaos.run import run
from tests.chaos.version import code_version
from tests.peers.kafka import VERSION, Kafka


def main() -> int:
    """Run schedules; exit code 1 if any lost, repeated or reordered a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a schedule")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rate", type=float, default=200.0, help="records/s")
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "chaos.jsonl", help="where results are kept")
    args = parser.parse_args()
    version = code_version()
    args.file.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {r["seed"] for r in known if r["version"] == version and r["brokers"] == args.brokers}
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.schedules)
    bad = 0
    with tempfile.TemporaryDirectory() as folder, Kafka(folder, brokers=args.brokers) as kafka:
        for seed in seeds:
            if args.seed is None and seed in done:
                continue
            result = run(seed, kafka, seconds=min(args.seconds, 20.0), rate=args.rate)
            v = result.verdict
            bad += not v.is_clean
            faults = " ".join(e.fault.value for e in result.events)
            print(
                f"seed {seed}: produced {v.produced} lost {v.lost} repeated {v.repeated} reordered {v.reordered}, "
                f"{result.restarts} restarts, {result.seconds:.0f} s: {faults}",
                flush=True,
            )
            row = {"seed": seed, "version": version, "brokers": args.brokers, "kafka": VERSION, **asdict(v)}
            row |= {"client": ck.libversion()[0], "restarts": result.restarts, "seconds": round(result.seconds, 1)}
            with args.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rows = [json.loads(line) for line in args.file.read_text().splitlines()]
    rows = [r for r in rows if r["version"] == version]
    sums = {k: sum(r[k] for r in rows) for k in ("produced", "lost", "repeated", "reordered")}
    print(f"{len(rows)} schedules at version {version}: {sums}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
