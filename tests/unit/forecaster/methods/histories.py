"""Histories that every method must survive, and a few helpers to make them."""

from __future__ import annotations

import numpy as np

from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

HOUR = 3600
MONDAY = 2922 * 24  # 1978-01-01T00:00Z was a Sunday; hours since 1970


def series(counts, step_s=HOUR, timezone="UTC", known=None, first=MONDAY, topic="t") -> ArrivalSeries:
    counts = np.atleast_2d(np.asarray(counts, dtype=float))
    known = np.isfinite(counts) if known is None else known
    first = first * HOUR // step_s
    return ArrivalSeries(
        topic, TimeGrid(step_s, timezone), first, tuple(range(len(counts))), np.where(known, counts, 0.0), known
    )


def daily(days=21, rows=3, step_s=HOUR, seed=0, level=1000.0, noise=0.05) -> np.ndarray:
    """Counts with a day, a weekend and noise; each row has its own peak."""
    rng = np.random.default_rng(seed)
    day = 86_400 // step_s
    t = np.arange(days * day)
    peak = rng.uniform(0, 24, rows)[:, None]
    hour = (t % day) * 24 / day
    shape = 1.0 + 0.8 * np.cos((hour[None] - peak) * np.pi / 12)
    weekend = np.where((t // day) % 7 >= 5, 0.5, 1.0)[None]
    return np.round(level * shape * weekend * rng.lognormal(0, noise, (rows, len(t))))


def _spike() -> np.ndarray:
    counts = np.full((1, 21 * 24), 10.0)
    counts[0, 400] = 1e6
    return counts


def _gaps() -> np.ndarray:
    counts = daily()
    counts[:, 10 * 24 : 17 * 24] = np.nan
    return counts


def _gap_at_end() -> np.ndarray:
    counts = daily()
    counts[:, -7 * 24 :] = np.nan
    return counts


def _step_change() -> np.ndarray:
    counts = daily()
    counts[:, 11 * 24 :] *= 10
    return counts


def _young_partition() -> np.ndarray:
    counts = daily()
    counts[1, :-5] = np.nan
    return counts


def _vanished() -> np.ndarray:
    counts = daily()
    counts[2, 12 * 24 :] = np.nan
    return counts


def _never_seen() -> np.ndarray:
    counts = daily()
    counts[0] = np.nan
    return counts


def _growing() -> np.ndarray:
    return daily() * np.exp(np.linspace(0, 5, 21 * 24))[None]


HARD_CASES = {
    "plain": daily(),
    "constant": np.full((2, 21 * 24), 7.0),
    "zeros": np.zeros((2, 21 * 24)),
    "zero_row_among_others": np.vstack([daily(rows=1), np.zeros((1, 21 * 24))]),
    "one_spike": _spike(),
    "week_of_gaps": _gaps(),
    "week_of_gaps_at_the_end": _gap_at_end(),
    "step_change": _step_change(),
    "counts_of_1e12": daily(level=1e12),
    "tiny_rates": daily(level=0.3),
    "younger_than_a_day": daily(days=1)[:, :11],
    "one_step": np.array([[5.0]]),
    "three_days": daily(days=3),
    "ten_days": daily(days=10),
    "young_partition": _young_partition(),
    "vanished_partition": _vanished(),
    "never_seen_partition": _never_seen(),
    "exponential_growth": _growing(),
    "half_missing": np.where(np.random.default_rng(1).random((3, 21 * 24)) < 0.5, np.nan, daily()),
}
