"""Memory of a whole round of training by number of partitions: ``python -m benchmarks.training``.

Eight weeks in steps of five minutes, each size in a process of its own, whose greatest resident memory is read at the
end; the rival is the same process that only loads the data. ``--sizes 250,1000`` chooses the partitions.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import keep_figures

START = datetime(2026, 1, 5, tzinfo=UTC)
DAYS = 56
STEP_S = 300


def one(partitions: int, train: bool) -> dict[str, Any]:
    """Train once in this process; return peak memory in MB and CPU seconds."""
    from forecaster.registry import ModelRegistry
    from forecaster.retraining import retrain
    from forecaster.synthetic import Traffic, generate
    from forecaster.timegrid import TimeGrid
    from forecaster.topics import StreamId
    from forecaster.training import TrainingPolicy

    traffic = Traffic(rate=50.0 * partitions, partitions=partitions, skew=0.5)
    series = generate(START, timedelta(days=DAYS), TimeGrid(STEP_S), traffic, seed=1).series
    began = time.process_time()
    if train:
        with tempfile.TemporaryDirectory() as folder:
            retrain(series, StreamId("bench", "t"), ModelRegistry(Path(folder)), START, TrainingPolicy(test_days=2))
    used = time.process_time() - began
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "cpu_s": used}


def main() -> None:
    """Measure each size in a process of its own, print a table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="250,1000")
    parser.add_argument("--one", nargs=2, metavar=("PARTITIONS", "TRAIN"))
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(int(args.one[0]), args.one[1] == "yes")))
        return
    rows = {}
    for size in (int(s) for s in args.sizes.split(",")):
        found = {train: _apart(size, train) for train in ("no", "yes")}
        rows[str(size)] = {
            "peak_mb": round(found["yes"]["peak_mb"]),
            "load_only_mb": round(found["no"]["peak_mb"]),
            "cpu_s": round(found["yes"]["cpu_s"], 1),
        }
        print(f"{size:>6} partitions: {rows[str(size)]}")
    sizes = sorted(rows, key=int)
    least, most = rows[sizes[0]], rows[sizes[-1]]
    span = int(sizes[-1]) - int(sizes[0])
    slope = round(1000 * (most["peak_mb"] - least["peak_mb"]) / span) if span else None
    print(f"MB per 1,000 partitions: {slope}")
    keep_figures("training", {"sizes": rows, "mb_per_1000_partitions": slope}, ("numpy", "scikit-learn"))


def _apart(size: int, train: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.training", "--one", str(size), train]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


if __name__ == "__main__":
    main()
