"""Knobs are learned by the planner's own arithmetic: what was learned is what is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.decision import scarce_price
from balancer.demand import CELLS
from balancer.knobs import Knobs
from balancer.learning import AS_CHEAP, REACTIVE, Past, Tried, frame_of, kept, learn_knobs, ranked, try_knobs
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
    tried = try_knobs(past, [knobs], setting, frame_of(10.0, start_s, 60.0, 64), 24, (1.0,), in_place=False)
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


def test_how_a_week_is_cut_is_no_fault_of_a_setting() -> None:
    """A row that begins in a rise begins with the members that the setting itself would have had by then."""
    minutes = np.concatenate([np.linspace(600, 3600, 4), np.full(56, 3600.0)])[None]
    past = Past(minutes, np.full((1, 4), 600.0), np.full((1, 60, CELLS.count, 1), 70.0, np.float32), (0.99,))
    setting, frame = Setting(minutes, np.array([600.0]), 10.0, 300.0, 6.0, 60.0), frame_of(10.0, 300.0, 60.0, 64)
    assert try_knobs(past, [Knobs()], setting, frame, 24, (1.0,), in_place=False).late[0] > 0.01
    assert try_knobs(past, [Knobs()], setting, frame, 24, (1.0,)).late[0] == 0.0


def test_each_round_goes_on_with_the_best_careful_setting_however_cheap_the_others_are() -> None:
    knobs = tuple(Knobs(near_level=level, floor=floor) for level in (0.7, 0.95, 0.995) for floor in (0.6, 0.8, 1.0))
    nothing = np.zeros(9)
    hours = np.array([100.0, 100.2, 100.4, 109.0, 108.0, 110.0, 115.0, 116.0, 117.0])
    tried = Tried(knobs, nothing, nothing, hours, np.full(9, 10.0))
    assert kept(tried, 1e-4, 24, 3) == [knobs[0], knobs[1], knobs[4]]
    later = replace(tried, late_stressed=np.where(np.arange(9) == 4, 1e-2, 0.0))
    assert kept(later, 1e-4, 24, 2) == [knobs[0], knobs[3]]
    careful_first = replace(tried, hours=hours[::-1].copy())
    assert kept(careful_first, 1e-4, 24, 2) == [knobs[8], knobs[7]]


@pytest.mark.parametrize(("seed", "forecast"), [(0, 0.0), (1, 0.3), (2, 40.0)])
def test_what_is_learned_is_on_its_history_no_worse_than_the_best_reactive_rule(seed: int, forecast: float) -> None:
    """Whatever the forecasts are worth: of records an hour, of nothing, or of half of what comes."""
    rng = np.random.default_rng(seed)
    minutes = rng.poisson(1500 * np.repeat(rng.gamma(4.0, 0.5, 16), 15))[None].astype(float)
    cells = np.full((1, 240, CELLS.count, 2), forecast, np.float32) * np.array([1.0, 1.3], np.float32)
    past = Past(minutes, np.full((1, 4), minutes[0, 0]), cells, (0.5, 0.99))
    setting, frame = Setting(minutes, past.before[:, -1], 10.0, 120.0, 6.0, 60.0), frame_of(10.0, 120.0, 60.0, 64)
    knobs, _ = learn_knobs(past, setting, frame, late_target=0.02, budget=400)
    rules = try_knobs(past, [replace(knobs, learned_on=""), *REACTIVE], setting, frame, 400)
    late = np.maximum(rules.late / 0.01, rules.late_stressed / 0.02)
    keeps = (late[1:] <= 1.0) & (rules.rescales_per_day[1:] <= 0.9 * 400)
    assert keeps.any() and late[0] <= 1.0
    assert rules.hours[0] <= AS_CHEAP * rules.hours[1:][keeps].min()
