"""Permanent accuracy scenarios: an id never changes its meaning; a new question gets a new id.

``python -m tests.accuracy.scenarios [ID …]`` measures and rewrites ``figures.json``; the difference is reviewed like
code. What differs between machines (threads, libraries) is within the tolerance of the test.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forecaster.backtest import BacktestPlan, backtest
from forecaster.ingest.trace import read_trace
from forecaster.methods.base import Method
from forecaster.methods.catalogue import make_method
from forecaster.series import ArrivalSeries
from forecaster.zero_shot import shipped

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared" / "traces"))
FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One backtest of one method. Steps, horizon and spacing are in seconds; ``weeks`` of history at most."""

    file: str
    method: str
    horizon_s: int = 86_400
    origins: int = 7
    every_s: int = 86_400
    step_s: int | None = None
    timezone: str = "UTC"
    series: tuple[str, ...] = ()
    weeks: int = 9


NEW_YORK = "America/New_York"
SCENARIOS = {
    "D01-taxi-day-ahead": Scenario("data/nyc_taxi_30min", "blend", timezone=NEW_YORK),
    "D02-taxi-untrained": Scenario("data/nyc_taxi_30min", "median_blend", timezone=NEW_YORK),
    "D03-bikes-day-ahead": Scenario("data/dc_bikeshare_1h", "blend", timezone=NEW_YORK),
    "D04-bikes-untrained": Scenario("data/dc_bikeshare_1h", "median_blend", timezone=NEW_YORK),
    "D05-worldcup-day-ahead": Scenario("data/worldcup98_1min", "blend", step_s=300, timezone="Europe/Paris"),
    "D06-worldcup-untrained": Scenario("data/worldcup98_1min", "median_blend", step_s=300, timezone="Europe/Paris"),
    "D07-bikes-naive": Scenario("data/dc_bikeshare_1h", "yesterday", timezone=NEW_YORK),
    "T01-pedestrians-day-ahead": Scenario(
        "melbourne_pedestrians_1h",
        "blend",
        timezone="Australia/Melbourne",
        series=("sensor00", "sensor06", "sensor10", "sensor16", "sensor20", "sensor26"),
    ),
    "T02-services-day-ahead": Scenario("crane_metrics_1min", "blend", step_s=300, origins=4),
    "T03-mentions-hour-ahead": Scenario(
        "twitter_mentions_5min", "own", horizon_s=3600, origins=28, every_s=21_600, timezone=NEW_YORK, weeks=5
    ),
    "T04-balancer-untrained": Scenario("aws_elb_requests_5min", "median_blend", origins=4),
    "T05-building-day-ahead": Scenario("calit2_entries_30min", "blend", timezone="America/Los_Angeles"),
    "Z01-taxi-three-days-old": Scenario("data/nyc_taxi_30min", "zero_shot", origins=2, timezone=NEW_YORK, weeks=0),
    "Z02-bikes-three-days-old": Scenario("data/dc_bikeshare_1h", "zero_shot", origins=2, timezone=NEW_YORK, weeks=0),
}
"""Id → scenario; D over ``data/``, T over the traces, Z the shipped model on young streams (``weeks=0``: five days)."""


def measure(scenario: Scenario) -> dict[str, float | None]:
    """Return the figures of a scenario."""
    series = load(scenario)
    step = series.grid.step_s
    plan = BacktestPlan(scenario.horizon_s // step, scenario.origins, scenario.every_s // step)
    fitted = frozenset({"it"}) if scenario.method == "zero_shot" else frozenset[str]()
    mean = backtest(series, {"it": method_of(scenario.method)}, plan, fitted=fitted).methods["it"].mean
    losses = [v for v in mean.scaled_pinball.values() if v is not None]
    return {
        "mase": mean.mase,
        "wape": mean.wape,
        "scaled_pinball": sum(losses) / len(losses) if losses else None,
        **{f"coverage_{q:g}": c for q, c in mean.coverage.items() if q > 0.5},
    }


def method_of(name: str) -> Method:
    if name != "zero_shot":
        return make_method(name)
    method, why = shipped()
    assert method is not None, why
    return method


def load(scenario: Scenario) -> ArrivalSeries:
    """Read what a scenario is about: its series, its step, its last weeks."""
    folder, _, name = scenario.file.rpartition("/")
    path = (ROOT / folder if folder else TRACES) / f"{name}.csv.gz"
    with tempfile.TemporaryDirectory() as temporary:
        if scenario.series:
            rows = pd.read_csv(path)
            # one source writes -1 for "not known"; such rows are gaps
            path = Path(temporary) / path.name
            rows[rows["series"].isin(scenario.series) & (rows["value"] >= 0)].to_csv(path, index=False)
        series = read_trace(path, timezone=scenario.timezone)
    if scenario.step_s is not None:
        series = series.at_step(scenario.step_s)
    days = 7 * scenario.weeks or 5
    return series.between(series.end_index - days * series.grid.steps_per_day, series.end_index)


def main(ids: list[str]) -> None:
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in ids or SCENARIOS:
        figures[name] = {k: None if v is None else round(v, 5) for k, v in measure(SCENARIOS[name]).items()}
        print(name, figures[name], flush=True)
        FIGURES.write_text(json.dumps({k: figures[k] for k in SCENARIOS if k in figures}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
