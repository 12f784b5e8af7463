"""The shipped zero-shot model in the first days of a topic: ``python -m benchmarks.zero_shot [--traces FOLDER]``.

Only the last 14 days of each set are used, which the model has never seen. A topic is taken to be 1, 2, 4 or 7 days
old at each daily origin; its next day is forecast by the zero-shot model and by the rungs that would stand in for it.
Figures are means over series, then over sets: MASE scaled by the day-seasonal naive of the whole 14 days (a day-old
history has no scale of its own), and coverage pooled over all points.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.accuracy import mean_scores, seasonal_scales, tally
from forecaster.forecast import Forecast
from forecaster.ingest.trace import read_each
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.methods.catalogue import make_method
from forecaster.series import ArrivalSeries
from forecaster.zero_shot import shipped

ROOT = Path(__file__).resolve().parent.parent
AGES_DAYS = (1, 2, 4, 7)
RIVALS = ("yesterday", "last_value", "median_blend")
ZONES = {"melbourne_pedestrians_1h": "Australia/Melbourne", "twitter_mentions_5min": "America/New_York"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared" / "traces"))
    parser.add_argument("--traces", type=Path, default=default)
    args = parser.parse_args()
    method, why = shipped()
    if method is None:
        sys.exit(f"no zero-shot model: {why}")
    methods = {"zero_shot": method, **{name: make_method(name) for name in RIVALS}}
    found: dict[str, dict[str, dict[str, object]]] = {}
    for file in sorted(args.traces.glob("*.csv.gz")):
        if file.name.startswith("m4_hourly_test"):
            continue
        name = file.name.removesuffix(".csv.gz")
        found[name] = measure(held_back(file, ZONES.get(name, "UTC")), methods)
        print(name, flush=True)
    means = {
        str(age): {
            rule: {
                "mase": round(float(np.mean([s[str(age)][rule]["mase"] for s in found.values()])), 4),
                "coverage_0.95": round(float(np.mean([s[str(age)][rule]["coverage_0.95"] for s in found.values()])), 4),
            }
            for rule in methods
        }
        for age in AGES_DAYS
    }
    print(f"\n{'age':>4} " + " ".join(f"{m:>22}" for m in methods) + "   (MASE, coverage of 0.95)")
    for age, row in means.items():
        print(f"{age:>3}d " + " ".join(f"{r['mase']:>13.3f} {r['coverage_0.95']:>8.3f}" for r in row.values()))
    out = ROOT / "benchmarks" / "results" / "zero_shot.json"
    out.parent.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    versions = {n: version(n) for n in ("numpy", "scikit-learn")}
    result = {"means": means, "sets": found, "machine": machine, "versions": versions}
    out.write_text(json.dumps(result | {"command": "python -m benchmarks.zero_shot"}, indent=1) + "\n")


def held_back(file: Path, timezone: str) -> list[ArrivalSeries]:
    """Return the last 14 days of every series, hourly; -1 stands for "not known" in one of the sources."""
    rows = pd.read_csv(file)
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / file.name
        rows[rows["value"] >= 0].to_csv(clean, index=False)
        every = read_each(clean, timezone=timezone)
    hourly = [s if s.grid.step_s >= 3600 else s.at_step(3600) for s in every][:60]
    return [s.between(s.end_index - 14 * 24, s.end_index) for s in hourly]


def measure(every: list[ArrivalSeries], methods: dict[str, Method]) -> dict[str, dict[str, object]]:
    out: dict[str, dict[str, object]] = {}
    for age in AGES_DAYS:
        out[str(age)] = {}
        for name, method in methods.items():
            began, scores, asked = time.perf_counter(), [], 0
            for series in every:
                scale = seasonal_scales(series.counts, series.known, 24, [series.steps])[:, 0] / 3600
                sums = None
                for origin in range(series.end_index - 24, series.first_index + age * 24 - 1, -48):
                    history = series.between(origin - age * 24, origin)
                    result = method.predict(history, 24, DEFAULT_LEVELS)
                    asked += 1
                    if not isinstance(result, Forecast):
                        continue
                    ahead = series.between(origin, origin + 24)
                    one = tally(ahead.rates(), ahead.known, result.rates, DEFAULT_LEVELS, scale)
                    one = one.regrouped([0] * 24, 1)
                    sums = one if sums is None else sums + one
                if sums is not None:
                    scores.append(sums.scores()[0])
            mean = mean_scores(scores)
            out[str(age)][name] = {
                "mase": mean.mase,
                "wape": mean.wape,
                "coverage_0.95": mean.coverage[0.95],
                "ms_per_forecast": round(1000 * (time.perf_counter() - began) / asked, 2),
            }
    return out


if __name__ == "__main__":
    main()
