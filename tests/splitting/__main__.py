"""Random splitting schedules on real Kafka: ``python -m tests.splitting [--seed N] [--schedules 300] [--plain]``.

Each schedule runs a few seconds under load; a ``read_committed`` reader then counts lost, repeated and reordered
records per key over all producers and groups. Results are kept in a file, so that a run that was interrupted goes on
where it stopped; only results of the code as it is count. A failing seed is replayed with ``--seed`` (and its
neighbours on the same bed with ``--first``).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.chaos.bed import ROOT
from tests.chaos.version import code_version
from tests.peers.kafka import Kafka
from tests.splitting.run import run


def main() -> int:
    """Run schedules; exit code 1 if any lost, repeated or (with transactions) reordered a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--plain", action="store_true", help="producers without transactions: reordering is counted")
    parser.add_argument("--at-once", type=int, default=2, help="beds at a time, each on a broker of its own")
    parser.add_argument("--within", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "splitting.jsonl")
    args = parser.parse_args()
    args.file.parent.mkdir(parents=True, exist_ok=True)
    version = code_version("balancer/routing")
    known = [json.loads(line) for line in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {r["seed"] for r in known if r["version"] == version and r["transactional"] == (not args.plain)}
    seeds = [s for s in range(args.first, args.first + args.schedules) if s not in done]
    seeds = [args.seed] if args.seed is not None else seeds
    began, bad = time.monotonic(), 0
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(max(1, args.at_once))]
        brokers = [stack.enter_context(Kafka(folder)) for folder in folders]
        for result in run(brokers, seeds, min(args.seconds, 20.0), transactional=not args.plain):
            v = result.verdict
            bad += bool(v.lost or v.repeated or (v.reordered and result.transactional))
            print(
                f"seed {result.seed}: made {v.made} lost {v.lost} repeated {v.repeated} reordered {v.reordered}, "
                f"{result.done} done, {result.groups} groups, {result.seconds:.0f} s: "
                + " ".join(e.what for e in result.events)
                + ("" if v.is_clean else f" {v.examples}"),
                flush=True,
            )
            row = {"seed": result.seed, "version": version, "done": result.done, "groups": result.groups}
            row |= {"transactional": result.transactional, "seconds": round(result.seconds, 1), **asdict(v)}
            with args.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if time.monotonic() - began > args.within:
                break
    rows = [r for line in args.file.read_text().splitlines() if (r := json.loads(line))["version"] == version]
    sums = {k: sum(r[k] for r in rows if r["transactional"]) for k in ("made", "lost", "repeated", "reordered", "done")}
    print(f"{sum(r['transactional'] for r in rows)} schedules with transactions of this version: {sums}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
