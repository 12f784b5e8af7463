from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from balancer.key_sketch import KeySketch
from balancer.routing.hashing import crc32

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
SLOTS = 4096


def zipf_keys(seed: int, records: int, keys: int = 1_000_000, exponent: float = 1.1) -> np.ndarray:
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    cumulative = np.cumsum(weights / weights.sum())
    return np.searchsorted(cumulative, np.random.default_rng(seed).random(records))


def fed(rows: np.ndarray, sketch: KeySketch, now: datetime = NOW) -> None:
    keys = [f"{k:x}" for k in rows.tolist()]
    sketch.add(keys, [crc32(k.encode()) % SLOTS for k in keys], float(len(keys)), now)


def test_the_hottest_hundred_of_a_million_keys_in_less_than_a_megabyte():
    sketch = KeySketch(SLOTS)
    rows = zipf_keys(1, 300_000)
    for part in np.array_split(rows, 30):
        fed(part, sketch)
    truth = np.bincount(rows, minlength=200)
    top = {f"{k:x}" for k in np.argsort(-truth, kind="stable")[:100].tolist()}
    found = {h.key for h in sketch.heavy(0.0, NOW, most=100)}
    assert len(top & found) >= 95
    assert sketch.size_bytes <= 1_000_000


def test_the_truth_lies_within_the_bounds():
    sketch, rows = KeySketch(SLOTS, counters=8), zipf_keys(2, 50_000, keys=10_000)
    fed(rows, sketch)
    truth = np.bincount(rows) / rows.size
    for heavy in sketch.heavy(0.001, NOW):
        assert heavy.low - 1e-9 <= truth[int(heavy.key, 16)] <= heavy.high + 1e-9


def test_what_is_old_is_forgotten():
    sketch = KeySketch(SLOTS, window=timedelta(minutes=15))
    sketch.add(["aa"] * 10, [1] * 10, 1000.0, NOW)
    later = NOW + timedelta(minutes=16)
    sketch.add(["bb"] * 10, [2] * 10, 1000.0, later)
    assert {h.key: round(h.share, 2) for h in sketch.heavy(0.1, later)} == {"aa": 0.5, "bb": 0.5}
    latest = NOW + timedelta(minutes=32)
    sketch.add(["cc"] * 10, [3] * 10, 1000.0, latest)
    assert {h.key for h in sketch.heavy(0.1, latest)} == {"bb", "cc"}
    assert sketch.heavy(0.1, NOW + timedelta(hours=3)) == []
    assert sketch.slot_shares(NOW + timedelta(hours=3)).sum() == 0
