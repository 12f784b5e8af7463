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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits

from benchmarks.traces import FOLDER, HELD_OUT, TUNED_ON, ZONES, load
from forecaster.accuracy import mean_scores, seasonal_scales, tally
from forecaster.backtest import BacktestPlan, backtest
from forecaster.forecast import Forecast, Rung
from forecaster.ingest.trace import read_each
from forecaster.m4 import run as run_m4
from forecaster.methods.catalogue import make_method
from forecaster.methods.grid_state import GridState
from forecaster.peers.catalogue import PEERS, make_method_or_peer
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
PEERS_RUN = ("statsforecast_mstl", "statsforecast_ets", "statsforecast_theta", "mlforecast_lightgbm")
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
    """Hourly steps, a day ahead, daily origins over the last week.

    Two readings of one error: on the scale of the days before (MASE), and against repeating yesterday on the same test
    days, which does not depend on how quiet a set once was.
    """
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
    against = {n: _mean(v[n] / v["yesterday"] for v in mase.values()) for n in names}
    print(f"  {'mean over sets':26s} " + "  ".join(f"{n} {v:.3f}" for n, v in mean.items()))
    calm = {n: _mean(mase[s][n] for s in TUNED_ON) for n in names}
    print(f"  {'mean over tuned_on':26s} " + "  ".join(f"{n} {v:.3f}" for n, v in calm.items()))
    print(f"  {'against yesterday':26s} " + "  ".join(f"{n} {v:.3f}" for n, v in against.items()))
    return {
        "traces_mase": {"mean": mean, "tuned_on": calm, "against_yesterday": against, "sets": mase},
        "coverage_day": coverage,
        "pinball_day": pinball,
    }


def lead(kept: dict[str, Any] | None = None, sets: Sequence[str] = ()) -> dict[str, Any]:
    """The next hour at 1 and 5 minutes, an origin every 65 minutes over the last week; coverage of each quarter too.

    With ``sets`` the others keep the figures of ``kept``.
    """
    kept = kept or {}
    wape = dict(kept["lead_wape"]["sets"]) if sets else {}
    coverage, pinball = (dict(kept.get(k, {})) if sets else {} for k in ("coverage", "pinball_lead"))
    for name, step_s in LEAD_SETS:
        if sets and name not in sets:
            continue
        series = load(name, step_s)
        found = {n: _lead_scores(series, make_method(n)) for n in ("short_lead", "last_value")}
        wape[name] = {n: {str(at): mean_scores(of["leads"][at]).wape for at in (900, 3600)} for n, of in found.items()}
        ours = found["short_lead"]
        whole = mean_scores(ours["all"])
        coverage[name] = _covers(whole) | {"quarters": [_covers(mean_scores(q)) for q in ours["quarters"]]}
        pinball[name] = {n: _mean(mean_scores(of["all"]).scaled_pinball.values()) for n, of in found.items()}
        print(f"  {name:26s} {wape[name]}  cover {coverage[name]}  pinball {pinball[name]}", flush=True)
    mean = {
        n: {at: _mean(v[n][at] for v in wape.values()) for at in ("900", "3600")} for n in ("short_lead", "last_value")
    }
    against = {at: _mean(v["short_lead"][at] / v["last_value"][at] for v in wape.values()) for at in ("900", "3600")}
    print(f"  {'mean over sets':26s} {mean}  against the last value {against}")
    return {
        "lead_wape": {"mean": mean, "against_last_value": against, "sets": wape},
        "coverage": coverage,
        "pinball_lead": pinball,
    }


def _lead_scores(series: ArrivalSeries, method: Any) -> dict[str, Any]:
    """Score a method, trained on all but the last week: of the whole week, of its quarters, and at two leads."""
    step_s, rows = series.grid.step_s, len(series.partitions)
    reach, every = 3600 // step_s, 3900 // step_s
    first = series.end_index - 7 * series.grid.steps_per_day
    method = method.fit([series.between(series.first_index, first)])
    origins = range(first, series.end_index - reach + 1, every)
    quarters: list[Any] = [None] * 4
    leads: dict[int, Any] = {900: None, 3600: None}
    row, step = np.repeat(np.arange(rows), reach), np.tile(np.arange(reach), rows)
    for k, origin in enumerate(origins):
        history = series.between(series.first_index, origin)
        said = method.predict(history, reach, LEVELS)
        ahead = series.between(origin, origin + reach)
        scale = seasonal_scales(history.counts, history.known, series.grid.steps_per_day, [history.steps])[:, 0]
        points = tally(ahead.rates(), ahead.known, said.rates, LEVELS, scale / step_s)
        quarter = 4 * k // len(origins)
        quarters[quarter] = _added(quarters[quarter], points.regrouped(row, rows))
        for at in leads:
            alone = points.regrouped(np.where(step == at // step_s - 1, row, rows), rows + 1)
            leads[at] = _added(leads[at], alone)
    whole = quarters[0] + quarters[1] + quarters[2] + quarters[3]
    return {
        "all": whole.scores(),
        "quarters": [[s for s in q.scores() if s.points] for q in quarters],
        "leads": {at: t.scores()[:-1] for at, t in leads.items()},
    }


def _added(sums: Any, more: Any) -> Any:
    return more if sums is None else sums + more


def _covers(scores: Any) -> dict[str, Any]:
    return {str(q): v for q, v in scores.coverage.items() if q > 0.5} | {"points": scores.points}


def mstl(kept: dict[str, Any] | None = None, sets: Sequence[str] = ()) -> dict[str, Any]:
    """Peers refitted at each origin, and ours trained once, on at most two series of each set; two origins.

    ``mstl`` is statsmodels'; the other peers run where their library is installed. With ``sets`` the others keep the
    figures of ``kept``, so that a long run can be cut in pieces.
    """
    others = [n for n in PEERS_RUN if all(find_spec(of) is not None for of in PEERS[n].libraries)]
    names = ("blend", "mstl", *others)
    found: dict[str, dict[str, Any]] = dict((kept or {}).get("vs_mstl", {}).get("sets", {})) if sets else {}
    for name in sets or ZONES:
        series = load(name, 3600, 8)
        part = series.select(range(min(2, len(series.partitions))))
        began = clock()
        fitted = make_method("blend").fit([series.between(series.first_index, series.end_index - 48)])
        fit_s = (clock() - began) / len(series.partitions)
        methods = {"blend": fitted, "mstl": StatsmodelsMSTL(), **{n: make_method_or_peer(n) for n in others}}
        report = backtest(part, methods, BacktestPlan(24, 2, 24, LEVELS), clock=clock, fitted=frozenset(methods))
        found[name] = {
            "mase": {n: report.methods[n].mean.mase for n in names},
            "pinball": {n: _mean(report.methods[n].mean.scaled_pinball.values()) for n in names},
            "seconds_per_series": {n: report.methods[n].seconds_per_series for n in names} | {"fit": fit_s},
        }
        print(f"  {name:26s} " + "  ".join(f"{k} {_short(v)}" for k, v in found[name].items()), flush=True)
    means = {
        figure: {n: _mean(of[figure].get(n) for of in found.values()) for n in next(iter(found.values()))[figure]}
        for figure in ("mase", "pinball", "seconds_per_series")
    }
    times = means["seconds_per_series"]["mstl"] / means["seconds_per_series"]["blend"]
    print("  mean  " + "  ".join(f"{k} {_short(v)}" for k, v in means.items()))
    print(f"  {times:.1f} times the speed of MSTL")
    pinned = f"at most two series a set, two origins, {len(found)} sets"
    return {"vs_mstl": means | {"sets": found, "pinned_to": pinned, "times_faster": times, "versions": _versions()}}


def _versions() -> dict[str, str]:
    have = [p for p in ("numpy", "scikit-learn", "statsmodels", "statsforecast", "mlforecast") if find_spec(_module(p))]
    return {p: version(p) for p in have} | {"python": platform.python_version()}


def _module(package: str) -> str:
    return {"scikit-learn": "sklearn"}.get(package, package)


def _short(figures: dict[str, Any]) -> str:
    return " ".join(f"{n} {v:.3f}" if v is not None else f"{n} -" for n, v in figures.items())


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


def _kept() -> dict[str, Any]:
    return json.loads(RESULT.read_text()) if RESULT.exists() else {}


PARTS = {"m4": m4, "traces": traces, "lead": lead, "mstl": mstl, "speed": speed}
RESUMED = {"lead": lead, "mstl": mstl}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--sets", default="", help="of parts lead and mstl: measure these alone")
    args = parser.parse_args()
    chosen = args.part.split(",")
    RESULT.parent.mkdir(exist_ok=True)
    found: dict[str, Any] = {}
    sets = [s for s in args.sets.split(",") if s]
    with threadpool_limits(1):
        for name in chosen:
            print(name, flush=True)
            found |= RESUMED[name](_kept(), sets) if name in RESUMED else PARTS[name]()
    kept = _kept() | found  # other parts may have been measured meanwhile
    kept |= {
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "clock": "CPU seconds of one thread",
        "versions": kept["versions"] if chosen == ["mstl"] and "versions" in kept else _versions(),
        "command": "python -m benchmarks.forecast " + " ".join(sys.argv[1:]),
        "commands": kept.get("commands", {})
        | {name: f"python -m benchmarks.forecast --part {name}" for name in chosen},
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "tuned_on": list(TUNED_ON),
        "held_out": list(HELD_OUT),
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"wrote {RESULT}")


if __name__ == "__main__":
    main()
