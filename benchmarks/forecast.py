"""Forecasting: accuracy against naive rules and MSTL, coverage, and speed. One thread.

Run as ``python -m benchmarks.forecast`` (``--part m4,traces,lead,mstl,speed`` for some of it). Writes
``benchmarks/results/forecast.json``; parts that are not run keep their last figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from benchmarks.traces import FOLDER, HELD_OUT, TUNED_ON, ZONES, load
from forecaster.backtest import BacktestPlan, backtest
from forecaster.forecast import Forecast, Rung
from forecaster.ingest.trace import read_each
from forecaster.m4 import run as run_m4
from forecaster.methods.catalogue import make_method
from forecaster.methods.grid_state import GridState
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

RESULT = Path(__file__).parent / "results" / "forecast.json"
LEVELS = (0.5, 0.9, 0.95, 0.99)
LEAD_SETS = (
    ("twitter_mentions_5min", 300),
    ("aws_elb_requests_5min", 300),
    ("worldcup98_1min", 60),
    ("crane_metrics_1min", 60),
)
clock = time.process_time


class StatsmodelsMSTL(BaseEstimator):
    """statsmodels' MSTL with seasons of a day and a week; the rest is carried on by simple exponential smoothing."""

    name = "mstl"

    def fit(self, histories):
        """Learn nothing; it is refitted at each origin."""
        return self

    def predict(self, history: ArrivalSeries, horizon_steps: int, levels=LEVELS) -> Forecast:
        """Decompose, carry on, and spread as normal errors."""
        from statsmodels.tsa.holtwinters import SimpleExpSmoothing
        from statsmodels.tsa.seasonal import MSTL

        day, week = history.grid.steps_per_day, history.grid.steps_per_week
        rates = np.empty((len(history.partitions), horizon_steps, len(levels)))
        for row, counts in enumerate(history.with_gaps_as_nan()):
            known = np.isfinite(counts)
            y = np.interp(np.arange(len(counts)), np.flatnonzero(known), counts[known])[-8 * week :]
            periods = (day, week) if len(y) >= 2 * week else (day,)
            parts = MSTL(y, periods=periods).fit()
            seasonal = np.atleast_2d(np.asarray(parts.seasonal).T)
            rest = y - seasonal.sum(axis=0)
            flat = SimpleExpSmoothing(rest, initialization_method="estimated").fit().forecast(horizon_steps)
            path = flat + sum(
                s[len(s) - p + np.arange(horizon_steps) % p] for s, p in zip(seasonal, periods, strict=True)
            )
            spread = np.std(np.asarray(parts.resid)) * np.array([_normal(q) for q in levels])
            rates[row] = np.maximum(path[:, None] + spread, 0) / history.grid.step_s
        return Forecast(
            history.topic, history.end, history.grid.step, history.partitions, tuple(levels), rates,
            rates.sum(axis=0), self.name, Rung.NONE,
        )  # fmt: skip


def _normal(level: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(level))


def m4() -> dict[str, Any]:
    found = run_m4(*(read_each(FOLDER / f"m4_hourly_{part}.csv.gz") for part in ("train", "test")), clock)
    for name, s in found.items():
        print(
            f"  {name:16s} sMAPE {s.smape:7.3f}  MASE {s.mase:6.3f}  OWA {s.owa:6.4f}  {s.ms_per_series:7.2f} ms/series"
        )
    return {"m4_owa": found["blend"].owa, "m4_ms_per_series": found["blend"].ms_per_series}


def traces() -> dict[str, Any]:
    """Hourly steps, a day ahead, daily origins over the last week."""
    names = ("blend", "median_blend", "grid", "last_week", "yesterday")
    mase, coverage, pinball = {}, {}, {}
    for name in ZONES:
        series = load(name, 3600)
        report = backtest(series, {n: make_method(n) for n in names}, BacktestPlan(24, 7, 24, LEVELS), clock=clock)
        mase[name] = {n: report.methods[n].mean.mase for n in names}
        ours = report.methods["blend"].mean
        coverage[name] = {str(q): v for q, v in ours.coverage.items() if q > 0.5} | {"points": ours.points}
        pinball[name] = {n: _mean(report.methods[n].mean.scaled_pinball.values()) for n in names}
        shown = "  ".join(f"{n} {mase[name][n]:.3f}" for n in names)
        print(f"  {name:26s} {shown}  cover {[round(v, 3) for v in ours.coverage.values()][1:]}", flush=True)
    mean = {n: _mean(v[n] for v in mase.values()) for n in names}
    print(f"  {'mean over sets':26s} " + "  ".join(f"{n} {v:.3f}" for n, v in mean.items()))
    return {"traces_mase": {"mean": mean, "sets": mase}, "coverage_day": coverage, "pinball_day": pinball}


def lead() -> dict[str, Any]:
    """The next hour at 1 and 5 minutes, an origin every 65 minutes over the last week."""
    out, coverage = {}, {}
    for name, step_s in LEAD_SETS:
        series = load(name, step_s)
        reach = 3600 // step_s
        plan = BacktestPlan(reach, 7 * 86_400 // 3900, 3900 // step_s, LEVELS, (900 // step_s, reach))
        methods = {n: make_method(n) for n in ("short_lead", "last_value")}
        report = backtest(series, methods, plan, clock=clock)
        out[name] = {n: {str(k * step_s): v.wape for k, v in report.methods[n].leads.items()} for n in report.methods}
        ours = report.methods["short_lead"].mean
        coverage[name] = {str(q): v for q, v in ours.coverage.items() if q > 0.5} | {"points": ours.points}
        print(f"  {name:26s} {out[name]}  cover {[round(v, 3) for v in ours.coverage.values()][1:]}", flush=True)
    mean = {
        n: {at: _mean(v[n][at] for v in out.values()) for at in ("900", "3600")} for n in ("short_lead", "last_value")
    }
    print(f"  {'mean over sets':26s} {mean}")
    return {"lead_wape": {"mean": mean, "sets": out}, "coverage": coverage}


def mstl() -> dict[str, Any]:
    """MSTL refitted at each origin, and ours, on at most three series of each set; two origins."""
    ours, theirs, seconds = [], [], {"blend": 0.0, "mstl": 0.0}
    for name in ZONES:
        series = load(name, 3600, 8)
        part = series.select(range(min(3, len(series.partitions))))
        began = clock()
        fitted = make_method("blend").fit([series.between(series.first_index, series.end_index - 48)])
        seconds["fit"] = seconds.get("fit", 0.0) + clock() - began
        methods = {"blend": fitted, "mstl": StatsmodelsMSTL()}
        report = backtest(part, methods, BacktestPlan(24, 2, 24, LEVELS), clock=clock, fitted=frozenset(methods))
        ours.append(report.methods["blend"].mean.mase)
        theirs.append(report.methods["mstl"].mean.mase)
        for n in methods:
            seconds[n] += report.methods[n].seconds_per_series / len(ZONES)
        print(f"  {name:26s} blend {ours[-1]:.3f}  mstl {theirs[-1]:.3f}", flush=True)
    found = {
        "mase": {"blend": _mean(ours), "mstl": _mean(theirs)},
        "pinned_to": "three series a set, two origins",
        "seconds_per_forecast": seconds,
    }
    print(f"  {found}")
    return {"vs_mstl": found}


def speed() -> dict[str, Any]:
    """A trained model on many partitions at five-minute steps, a day ahead with quantiles."""
    grid = TimeGrid(300)
    rng = np.random.default_rng(0)
    t = np.arange(8 * 7 * 288)

    def many(rows: int) -> ArrivalSeries:
        peak, size = rng.uniform(0, 288, (rows, 1)), rng.lognormal(4, 1, (rows, 1))
        shape = 1 + 0.7 * np.cos((t[None] % 288 - peak) * 2 * np.pi / 288).astype(np.float32)
        counts = rng.poisson(size * shape).astype(float)
        return ArrivalSeries("speed", grid, 5_000_000, tuple(range(rows)), counts, np.full(counts.shape, True))

    thousand = many(1000)
    began = clock()
    model = make_method("own").fit([thousand])
    retrain = clock() - began
    print(f"  retrain 1,000 partitions x 8 weeks: {retrain:.1f} s", flush=True)
    seconds_1000 = min(_timed(lambda: model.predict(thousand, 288, LEVELS)) for _ in range(2))
    print(f"  forecast 1,000 x 288: {seconds_1000:.2f} s", flush=True)
    seconds_10000 = 10 * seconds_1000  # in blocks of 1,000 rows: a forecast has no work across blocks but the sum
    state = GridState.of(thousand.between(thousand.end_index - 2 * 288, thousand.end_index).select(range(100)))
    wide = GridState(
        grid, state.slot_steps, state.next_index,
        *(np.repeat(a, 100, axis=0) for a in (state.unit, state.sets, state.level, state.error)),
        *(np.repeat(a, 100, axis=1) for a in (state.day, state.week)),
        np.zeros(10_000), np.zeros(10_000, dtype=np.int64),
    )  # fmt: skip
    tick = rng.poisson(50, 10_000).astype(float)
    update = float(np.median([_timed(lambda: wide.update(tick, np.full(10_000, True))) for _ in range(30)]))
    print(f"  update 10,000 partitions: {1000 * update:.2f} ms, {wide.bytes_per_row:.0f} bytes a partition")
    return {
        "retrain_1000_s": retrain,
        "seconds_1000": seconds_1000,
        "seconds_10000": seconds_10000,
        "update_10000_ms": 1000 * update,
        "state_bytes_per_partition": wide.bytes_per_row,
    }


def _timed(work: Callable[[], object]) -> float:
    began = clock()
    work()
    return clock() - began


def _mean(values: Any) -> float | None:
    have = [v for v in values if v is not None]
    return float(np.mean(have)) if have else None


PARTS = {"m4": m4, "traces": traces, "lead": lead, "mstl": mstl, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default=",".join(PARTS))
    chosen = parser.parse_args().part.split(",")
    RESULT.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    with threadpool_limits(1):
        for name in chosen:
            print(name, flush=True)
            kept |= PARTS[name]()
    kept |= {
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "clock": "CPU seconds of one thread",
        "versions": {p: version(p) for p in ("numpy", "scikit-learn", "statsmodels")}
        | {"python": platform.python_version()},
        "command": "python -m benchmarks.forecast " + " ".join(sys.argv[1:]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "tuned_on": list(TUNED_ON),
        "held_out": list(HELD_OUT),
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"wrote {RESULT}")


if __name__ == "__main__":
    main()
