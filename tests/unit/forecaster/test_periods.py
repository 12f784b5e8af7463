"""Periods are found where they are, and never in noise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from forecaster.periods import find_periods, found_periods
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

HOURS = np.arange(35 * 24)


def steps(values: np.ndarray, day: int = 24) -> list[int]:
    return [p.steps for p in find_periods(values, day)]


def autoregressive(rng: np.random.Generator, size: int, keep: float) -> np.ndarray:
    out = rng.normal(size=size)
    for i in range(1, size):
        out[i] += keep * out[i - 1]
    return out


NOISES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "white": lambda rng, n: rng.normal(size=n),
    "heavy-tailed": lambda rng, n: rng.standard_t(2, size=n),
    "bursts": lambda rng, n: 5.0 * (rng.random(n) < 0.01) + 0.1 * rng.normal(size=n),
    "wandering": lambda rng, n: autoregressive(rng, n, 0.9),
    "slowly wandering": lambda rng, n: autoregressive(rng, n, 0.99),
    "random walk": lambda rng, n: np.cumsum(rng.normal(size=n)),
}


@pytest.mark.parametrize("kind", NOISES)
def test_noise_has_a_period_in_less_than_one_of_a_hundred_draws(kind: str) -> None:
    rng = np.random.default_rng(7)
    found = [steps(NOISES[kind](rng, len(HOURS))) for _ in range(100)]
    assert sum(bool(f) for f in found) <= 1


@pytest.mark.parametrize("period", [18 * 5, 20 * 5, 25 * 5, 40 * 5])
def test_a_job_of_any_whole_period_is_found_beside_the_day(period: int) -> None:
    rng = np.random.default_rng(period)
    t = np.arange(28 * 288)
    z = 0.6 * np.sin(t * 2 * np.pi / 288) + (t % period < period // 8) + rng.normal(0, 0.3, len(t))
    assert steps(z, 288) == [288, period]


def test_d1_day_and_weekend_are_both_found() -> None:
    rng = np.random.default_rng(1)
    z = np.cos(HOURS * np.pi / 12) + 0.8 * (HOURS // 24 % 7 >= 5) + rng.normal(0, 0.3, len(HOURS))
    assert steps(z) == [24, 168]


def test_a_weekly_job_without_a_day_is_weekly() -> None:
    rng = np.random.default_rng(2)
    z = 2.0 * (HOURS % 168 < 10) + rng.normal(0, 0.3, len(HOURS))
    assert 168 in steps(z)


def test_a_job_every_ten_hours_is_found_beside_nothing_else() -> None:
    rng = np.random.default_rng(3)
    z = 1.0 * (HOURS % 10 == 0) + rng.normal(0, 0.2, len(HOURS))
    assert steps(z) == [10]


def test_one_accident_is_no_period() -> None:
    z = np.random.default_rng(4).normal(0, 0.1, len(HOURS))
    z[[100, 110, 600]] += 20.0
    assert steps(z) == []


def test_gaps_constants_and_short_histories_have_none() -> None:
    gaps = np.cos(HOURS * np.pi / 12)
    gaps[100:200] = np.nan
    assert steps(gaps) == [24]
    assert steps(np.full(500, 3.0)) == []
    assert steps(np.full(500, np.nan)) == []
    assert steps(np.arange(10.0)) == []
    assert steps(np.zeros(0)) == []


@pytest.mark.parametrize("step_s", [60, 300, 1800])
def test_the_day_of_a_topic_is_found_on_its_wall_clock(step_s: int) -> None:
    """Four weeks around a clock change: in UTC the second half lies an hour off."""
    grid = TimeGrid(step_s, "Europe/Berlin")
    first, count = grid.index_of(datetime(2026, 3, 15, tzinfo=UTC)), 28 * grid.steps_per_day
    busy = grid.day_slots(first, count) * step_s // 3600 == 8
    counts = np.random.default_rng(0).poisson(np.where(busy, 500.0, 20.0), (2, count)).astype(float)
    series = ArrivalSeries("t", grid, first, (0, 1), counts, np.full(counts.shape, True))
    found = found_periods(series)
    assert [p.hours for p in found] == [24.0]
    assert found[0].share > 0.9
    assert found[0].to_dict() == {"period_s": 86400, "share": round(found[0].share, 4)}


def test_a_partition_that_was_hardly_ever_known_does_not_hide_the_rest() -> None:
    grid, count = TimeGrid(3600), 28 * 24
    counts = np.stack([100.0 + 90.0 * np.cos(np.arange(count) * np.pi / 12), np.zeros(count)])
    known = np.ones(counts.shape, dtype=bool)
    known[1, 10:] = False
    series = ArrivalSeries("t", grid, 0, (0, 1), counts, known)
    assert [p.hours for p in found_periods(series)] == [24.0]
    nothing = ArrivalSeries("t", grid, 0, (0,), np.zeros((1, count)), np.zeros((1, count), dtype=bool))
    assert found_periods(nothing) == () == found_periods(nothing.between(0, 0))


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_handful_of_values_shows_no_period_and_warns_of_nothing(steps: int) -> None:
    assert find_periods(np.arange(steps, dtype=float), 288) == ()
