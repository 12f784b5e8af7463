"""Periods are found where they are, and never in noise."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.periods import find_periods

HOURS = np.arange(35 * 24)


def steps(values, day=24):
    return [p.steps for p in find_periods(values, day)]


@pytest.mark.parametrize("seed", range(40))
def test_noise_has_no_period(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=len(HOURS))
    assert steps(noise) == []


@pytest.mark.parametrize("seed", range(10))
def test_slowly_wandering_noise_has_no_day(seed):
    rng = np.random.default_rng(seed)
    drift = np.zeros(len(HOURS))
    for i in range(1, len(HOURS)):
        drift[i] = 0.9 * drift[i - 1] + rng.normal()
    assert 24 not in steps(drift)


def test_d1_day_and_weekend_are_both_found():
    rng = np.random.default_rng(1)
    z = np.cos(HOURS * np.pi / 12) + 0.8 * (HOURS // 24 % 7 >= 5) + rng.normal(0, 0.3, len(HOURS))
    assert steps(z) == [24, 168]


def test_a_weekly_job_without_a_day_is_weekly():
    rng = np.random.default_rng(2)
    z = 2.0 * (HOURS % 168 < 10) + rng.normal(0, 0.3, len(HOURS))
    assert 168 in steps(z)


def test_a_job_every_ten_hours_is_found_beside_nothing_else():
    rng = np.random.default_rng(3)
    z = 1.0 * (HOURS % 10 == 0) + rng.normal(0, 0.2, len(HOURS))
    assert steps(z) == [10]


def test_gaps_constants_and_short_histories_have_none():
    gaps = np.cos(HOURS * np.pi / 12)
    gaps[100:200] = np.nan
    assert steps(gaps) == [24]
    assert steps(np.full(500, 3.0)) == []
    assert steps(np.full(500, np.nan)) == []
    assert steps(np.arange(10.0)) == []
