"""A ridge per lead: quantiles that hold at every level of the stream."""

from __future__ import annotations

import numpy as np

from forecaster.methods.lead_ridge import DAY, LeadRidge


def of_two_kinds(days: int) -> np.ndarray:
    """Return big days that are steady, and small ones, every other day, that are wild in proportion."""
    rng = np.random.default_rng(11)
    is_big = np.arange(days * DAY) // DAY % 2 == 0
    noise = np.exp(np.where(is_big, 0.01, 0.3) * np.repeat(rng.standard_normal(days * DAY // 5), 5))
    return np.where(is_big, 60_000.0, 600.0) * noise


def test_each_level_of_the_stream_has_a_spread_of_its_own() -> None:
    minutes = of_two_kinds(16)
    model = LeadRidge().fit(minutes, 14 * DAY)
    wide = {}
    for day in (14, 15):  # a big one and a small one
        origins = np.arange(day * DAY + 240, (day + 1) * DAY - 240, 7)
        ahead = model.quantiles(minutes, origins)[:, 1] * 60
        truth = np.array([minutes[o + 5 : o + 10].mean() for o in origins])
        wide[day] = np.median(ahead[:, -1] / ahead[:, 0])
        assert (truth <= ahead[:, -1]).mean() > 0.9
    assert wide[14] - 1 < (wide[15] - 1) / 5
