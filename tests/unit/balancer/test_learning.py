"""Knobs are learned by the planner's own arithmetic: what was learned is what is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.decision import scarce_price
from balancer.knobs import Knobs
from balancer.learning import Past, Tried, frame_of, ranked, try_knobs
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.batch import Setting
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.ticking import run_headway
from balancer.simulator.world import World

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MINUTES = 12 * 60
LEVELS = (0.5, 0.9, 0.99)


def stream() -> np.ndarray:
    minute = np.arange(MINUTES + 120)
    mean = 6000 * (1 + 0.5 * np.sin(minute / 360 * 2 * np.pi))
    return np.random.default_rng(5).poisson(mean).astype(float)


def clairvoyant(minutes: np.ndarray) -> ForecastBatch:
    """Return forecasts that know the truth, as wide as the noise is."""
    padded = np.concatenate([minutes, np.full(400, minutes[-1])])
    five = np.convolve(padded, np.full(5, 0.2), "full")[4:] / 60
    total = np.stack([five[m : m + 360 : 5] for m in range(60, 60 + MINUTES)])
    levels = total[:, :, None] * np.array([1.0, 1.05, 1.1])
    return ForecastBatch(60, 300, LEVELS, levels.astype(np.float32))


@pytest.mark.parametrize("start_s", [120.0, 300.0])
def test_learning_and_the_real_tick_do_the_same(start_s: float) -> None:
    minutes = stream()
    start = T0 + timedelta(minutes=60)
    world = World(
        ArrivalTrace(T0, 60, minutes[None]), start, start + timedelta(minutes=MINUTES), 10.0, start_s, max_replicas=64
    )
    batch = clairvoyant(minutes)
    knobs = Knobs(near_level=0.9, far_level=0.5, price_h=0.5, slack=0.05, dwell=timedelta(minutes=10))
    exact = run_headway(world, batch, knobs)
    past = Past(world.arrivals[None], minutes[None, 56:60], batch.cells()[None], LEVELS)
    setting = Setting(past.minutes, past.before[:, -1], 10.0, start_s, 6.0, 60.0)
    tried = try_knobs(past, [knobs], setting, frame_of(10.0, start_s, 60.0, 64), 24, (1.0,))
    assert tried.hours[0] == pytest.approx(exact.hours, rel=0.01)
    assert tried.late[0] == pytest.approx(exact.late_share, abs=1e-3)
    assert tried.rescales_per_day[0] == pytest.approx(exact.rescales_per_day, abs=2.0)
    assert exact.late_share < 1e-4


def test_the_cheapest_allowed_setting_is_first() -> None:
    knobs = tuple(Knobs(near_level=level) for level in (0.9, 0.95, 0.97, 0.99))
    tried = Tried(
        knobs,
        late=np.array([1e-3, 0.0, 0.0, 0.0]),
        late_stressed=np.array([1e-3, 1e-5, 1e-3, 0.0]),
        hours=np.array([100.0, 120.0, 110.0, 130.0]),
        rescales_per_day=np.array([10.0, 10.0, 10.0, 10.0]),
    )
    assert ranked(tried, 1e-4, 24)[:2].tolist() == [1, 3]
    busy = replace(tried, rescales_per_day=np.array([10.0, 30.0, 10.0, 10.0]))
    assert ranked(busy, 1e-4, 24)[0] == 3


def test_changes_get_dearer_as_the_budget_runs_out() -> None:
    prices = scarce_price(1.0, np.arange(24, 0, -1), 24)
    assert (np.diff(prices) > 0).all()
