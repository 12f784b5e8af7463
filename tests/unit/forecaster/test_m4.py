"""The M4 Hourly scores: benchmarks reproduce what was published, and bad input is refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from forecaster import m4
from forecaster.errors import InputRefused
from forecaster.ingest.trace import read_each
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

TRACES = Path(os.environ.get("HEADWAY_TRACES", Path(__file__).parents[3] / ".." / "shared" / "traces"))


def one(name: str, counts) -> ArrivalSeries:
    counts = np.asarray(counts, dtype=float)[None]
    return ArrivalSeries("m4", TimeGrid(3600), 0, (0,), counts, np.full(counts.shape, True), (name,))


def test_owa_of_naive2_is_one_and_published_figures_come_out():
    figures = m4.scores([np.arange(48.0)], np.full((1, 48), 1.0), np.full((1, 48), 1.0))
    assert figures.smape == figures.mase == figures.owa == 0


def test_naive2_and_seasonal_naive_come_out_as_published():
    """18.383 / 2.395 and 13.912 / 1.193 on all 414 series."""
    if not (TRACES / "m4_hourly_train.csv.gz").exists():
        pytest.fail(f"M4 Hourly is not in {TRACES}; set HEADWAY_TRACES to the folder of the traces")
    train, test = (read_each(TRACES / f"m4_hourly_{part}.csv.gz") for part in ("train", "test"))
    future = {s.names[0]: s.counts[0] for s in test}
    x, y = [s.counts[0] for s in train], np.stack([future[s.names[0]] for s in train])
    assert len(x) == 414
    for draw, official in ((m4.naive2, m4.NAIVE2_OFFICIAL), (m4.seasonal_naive, m4.SEASONAL_NAIVE_OFFICIAL)):
        found = m4.scores(x, y, np.stack([draw(row) for row in x]))
        assert (round(found.smape, 3), round(found.mase, 3)) == official


def test_factors_agree_with_statsmodels_classical_decomposition():
    from statsmodels.tsa.seasonal import seasonal_decompose

    rng = np.random.default_rng(3)
    x = (10 + 5 * np.sin(np.arange(240) * np.pi / 12)) * rng.lognormal(0, 0.1, 240)
    oracle = seasonal_decompose(x, model="multiplicative", period=24).seasonal[:24]
    np.testing.assert_allclose(m4.seasonal_factors(x), oracle, rtol=1e-9)


def test_the_blend_beats_its_benchmarks_on_a_small_set():
    rng = np.random.default_rng(0)
    t = np.arange(28 * 24)
    shapes = [1 + 0.6 * np.sin((t + p) * np.pi / 12) + 0.2 * (t // 24 % 7 >= 5) for p in range(8)]
    series = [np.round(500 * s * rng.lognormal(0, 0.05, len(t)), 1) for s in shapes]
    train = [one(f"H{i}", s[:-48]) for i, s in enumerate(series)]
    test = [one(f"H{i}", s[-48:]) for i, s in enumerate(series)]
    found = m4.run(train, test, lambda: 0.0)
    assert found["blend"].owa < 0.5 * min(found["seasonal_naive"].owa, found["naive2"].owa)


def test_parts_of_different_sets_are_refused():
    with pytest.raises(InputRefused, match="different series"):
        m4.run([one("H1", np.ones(400))], [one("H2", np.ones(48))], lambda: 0.0)


def test_a_short_test_part_is_refused():
    with pytest.raises(InputRefused, match="H1 has not 48"):
        m4.run([one("H1", np.ones(400))], [one("H1", np.ones(47))], lambda: 0.0)


def test_a_gap_is_refused():
    gap = ArrivalSeries("m4", TimeGrid(3600), 0, (0,), np.zeros((1, 48)), np.zeros((1, 48), dtype=bool), ("H1",))
    with pytest.raises(InputRefused, match="gap"):
        m4.run([one("H1", np.ones(400))], [gap], lambda: 0.0)
