"""Rivals' mechanics against hand-computed cases from their sources."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.capacity import assigned_curve
from balancer.knobs import Knobs
from balancer.rivals.fixed import cheapest_path, cron_last_week, needed_replicas, perfect, static_peak
from balancer.rivals.flink import Flink
from balancer.rivals.keda_lag import KedaLag, capped_lag, hpa_wish
from balancer.rivals.rate_reactive import RateReactive
from balancer.rivals.tuning import Grid, Wish, history_weeks, keda_grid, rate_grid, score, tune
from balancer.rivals.window import HighestWithin
from balancer.simulator import compare as compare_module
from balancer.simulator.arrivals import ArrivalTrace, spread, zipf_shares
from balancer.simulator.batch import BatchPolicy, Seen, Setting, run_batch
from balancer.simulator.compare import RIVALS, compare
from balancer.simulator.ticking import run_headway
from balancer.simulator.world import World, run_rule

T0 = datetime(2026, 1, 5, tzinfo=UTC)


def seen(at_s: float, lag: float, rate: float, requested: int) -> Seen:
    return Seen(at_s, np.array([lag]), np.array([rate]), np.array([requested]), np.array([requested]))


def wish_of(metric: float, target: float, replicas: int) -> int:
    return int(hpa_wish(np.array([metric]), np.array([target]), np.array([replicas]), 64)[0])


def test_b1_integer_division_lets_keda_ask_for_more_than_there_are_partitions() -> None:
    lag = capped_lag(np.array([29.0]), np.array([5.0]), 5)
    assert lag[0] == 29.0
    assert wish_of(29.0, 5.0, 5) == 6


@pytest.mark.parametrize(("partitions", "stuck"), [(64, 59), (24, 22)])
def test_b2_the_last_step_is_swallowed_by_the_tolerance(partitions: int, stuck: int) -> None:
    capped = float(capped_lag(np.array([1e6]), np.array([10.0]), partitions)[0])
    assert wish_of(capped, 10.0, stuck) == stuck
    assert wish_of(capped, 10.0, stuck - 1) == partitions


def test_b4_an_hpa_doubles_step_by_step() -> None:
    rule = KedaLag(np.array([10.0]), 64)
    sizes, have = [], 1
    for k in range(5):
        have = int(rule.decide(seen(k * 15.0, 1e6, 0.0, have))[0])
        sizes.append(have)
    assert sizes == [4, 8, 16, 32, 64]


def test_hpa_goes_down_to_the_highest_wish_of_five_minutes() -> None:
    rule = KedaLag(np.array([10.0]), 64)
    have = int(rule.decide(seen(0.0, 200.0, 0.0, 20))[0])
    path = []
    for k in range(1, 25):
        have = int(rule.decide(seen(k * 15.0, 10.0, 0.0, have))[0])
        path.append(have)
    assert path[:18] == [20] * 18
    assert path[-1] == 1
    assert path.index(1) == 20  # poll at 30 s sees the fall; 20 syncs later the last high wish leaves the window


def test_rate_rule_by_hand() -> None:
    rule = RateReactive(np.array([0.8]), np.array([300.0]), 10.0, 64)
    assert int(rule.decide(seen(0.0, 1200.0, 80.0, 3))[0]) == 11  # (80 / 0.8 + 1200 / 120) / 10


@pytest.mark.parametrize("rule", ["keda", "rate"])
def test_a_rule_that_finds_a_group_counts_its_size_as_a_wish(rule: str) -> None:
    """An HPA records the size that it finds before it decides: it drops nothing for want of earlier wishes."""
    policy = (
        KedaLag(np.array([10.0]), 64) if rule == "keda" else RateReactive(np.array([0.8]), np.array([300.0]), 10.0, 64)
    )
    have, path = 13, []
    for k in range(24):
        have = int(policy.decide(seen(k * 15.0, 0.0, 20.0, have))[0])
        path.append(have)
    assert path[:20] == [13] * 20
    assert path[20] < 13


def test_flink_waits_an_hour_and_drops_at_most_sixty_percent() -> None:
    rule = Flink(np.array([0.7]), 10.0, 64)
    have, path = 40, []
    for k in range(241 + 30):
        have = int(rule.decide(seen(k * 15.0, 0.0, 10.0, have))[0])
        path.append(have)
    assert path[239] == 40
    assert path[240] == 16


def test_flink_stays_within_its_band() -> None:
    rule = Flink(np.array([0.7]), 10.0, 64)
    for k in range(400):
        assert int(rule.decide(seen(k * 15.0, 0.0, 60.0, 10))[0]) == 10  # utilisation 0.6


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_window_is_the_highest_of_the_last_wishes(wishes: list[int], lengths: list[int]) -> None:
    window = HighestWithin(np.array(lengths) * 15.0)
    for k, wish in enumerate(wishes):
        got = window.add(np.full(len(lengths), wish))
        assert got.tolist() == [max(wishes[max(0, k - n + 1) : k + 1]) for n in lengths]


def slow_cheapest(need: list[int], price: float) -> float:
    best = {n: (n / 60 if n >= need[0] else float("inf")) for n in range(1, max(need) + 1)}
    for level in need[1:]:
        best = {
            n: min(c + (price if m != n else 0.0) for m, c in best.items()) + (n / 60 if n >= level else float("inf"))
            for n in best
        }
    return min(best.values())


@given(st.lists(st.integers(1, 6), min_size=1, max_size=25), st.sampled_from([0.0, 0.01, 0.05, 0.3]))
def test_clairvoyant_path_is_the_cheapest(need: list[int], price: float) -> None:
    path = cheapest_path(np.array(need), price)
    assert (path >= np.array(need)).all()
    cost = path.sum() / 60 + price * np.count_nonzero(np.diff(path))
    assert cost == pytest.approx(slow_cheapest(need, price))


def test_perfect_keeps_its_budget_and_its_need() -> None:
    rng = np.random.default_rng(1)
    minutes = 6000 * (1.5 + np.sin(np.arange(2880) / 1440 * 6.28)) * rng.uniform(0.9, 1.1, 2880)
    path = perfect(minutes, 10.0, 64)
    assert np.count_nonzero(np.diff(path)) <= 48
    assert (path >= needed_replicas(minutes, 10.0, 64)).all()


def test_static_peak_reads_four_weeks() -> None:
    history = np.concatenate([np.full(10080, 1e6), np.full(4 * 10080, 600.0)])
    assert static_peak(history, 3.0, 64) == 4


def test_cron_copies_last_weeks_hours() -> None:
    week = np.full(10080, 480.0)
    week[600:660] = 4800.0
    path = cron_last_week(week, 10080, 10.0, 64)
    assert path[594] == 1
    assert path[595] == 10  # five minutes early
    assert path[659] == 10
    assert path[660] == 1


def sine_world(days: int = 4, run_days: int = 1) -> World:
    minute = np.arange(days * 1440)
    counts = np.random.default_rng(4).poisson(6000 * (1 + 0.6 * np.sin(minute / 1440 * 2 * np.pi))).astype(float)
    trace = ArrivalTrace(T0, 60, counts[None])
    return World(trace, T0 + timedelta(days=days - run_days), trace.end, capacity=10.0)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 59), st.sampled_from([0.0, 120.0, 300.0]))
def test_batch_agrees_with_the_exact_simulation(index: int, start_s: float) -> None:
    base = sine_world(3)
    world = World(base.trace, base.start, base.end, base.capacity, start_s=start_s)
    grid = rate_grid(10.0, 64)
    values = tuple(np.array([v]) for v in grid.settings[index])
    exact = run_rule(world, grid.build(values))
    rows, before = world.arrivals[None], world.history[-1:]
    batch = run_batch(grid.build(values), Setting(rows, before, 10.0, start_s, 6.0, 60.0), np.array([0]))
    assert batch.hours[0] == pytest.approx(exact.hours, rel=0.01)
    assert batch.late_share[0] == pytest.approx(exact.late_share, abs=0.01)
    assert batch.rescales[0] == pytest.approx(exact.rescales, abs=0.1 * exact.rescales + 2)


def test_tuning_takes_the_cheapest_that_keeps_the_limit() -> None:
    world = sine_world()
    rows, before = history_weeks(world.history)
    setting = world.setting(rows, before)
    grid = keda_grid(10.0, 64, None)
    late, hours, _ = score(grid, setting)
    _, words = tune(grid, setting, Wish(hours=float(np.median(hours))))
    allowed = hours <= np.median(hours)
    best = int(np.argmin(np.where(allowed, late, np.inf)))
    assert words == f"lag_threshold {grid.settings[best][0]:g}"


def test_rules_over_partitions_are_tuned_on_members_that_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    base = sine_world(2)
    shares = zipf_shares(8, 1.0, 0)
    world = World(spread(base.trace, shares), base.start, base.start + timedelta(minutes=30), capacity=60.0)
    assert world.shares == pytest.approx(shares, abs=0.01)
    tuned: list[Setting] = []

    def spy(grid: Grid, setting: Setting, wish: Wish) -> tuple[BatchPolicy, str]:
        tuned.append(setting)
        return grid.build(tuple(np.array([v]) for v in grid.settings[0])), "the first"

    monkeypatch.setattr(compare_module, "tune", spy)
    for name in ("keda_lag", "rate_reactive", "flink"):
        compare_module.run_rival(name, world, Wish(late_share=1e-4))
    compare_module.run_rival("flink", base, Wish(late_share=1e-4))
    expected = assigned_curve(60.0, world.shares, 8, "range")
    assert [s.curve.rates.tolist() for s in tuned[:3] if s.curve] == [expected.rates.tolist()] * 3
    assert tuned[3].curve is None


def test_a_lower_limit_holds_for_everybody_and_zero_lets_a_silent_group_sleep() -> None:
    minutes = np.concatenate([np.full(120, 600.0), np.zeros(60), np.full(60, 600.0)])
    trace = ArrivalTrace(T0, 60, minutes[None])
    world = World(trace, T0 + timedelta(hours=1), trace.end, capacity=10.0, min_replicas=3)
    for outcome in compare(world, RIVALS).values():
        assert min([replicas for _, replicas in outcome.changes[1:]], default=3) == 3  # the first is what was there
        assert outcome.hours >= 3 * 3 - 0.1
    asleep = World(trace, world.start, trace.end, capacity=10.0, min_replicas=0)
    slept = run_headway(asleep, None, Knobs())
    assert 0 in [replicas for _, replicas in slept.changes]
    assert slept.changes[-1][1] >= 1  # and wakes
    assert 0 not in [replicas for _, replicas in run_headway(replace(asleep, min_replicas=1), None, Knobs()).changes]
    with pytest.raises(ValueError, match="min_replicas=65"):
        replace(world, min_replicas=65)


def test_every_rival_runs_and_perfect_is_the_limit() -> None:
    outcomes = compare(sine_world(5), RIVALS)
    assert set(outcomes) == set(RIVALS)
    assert outcomes["perfect"].hours_vs_limit == pytest.approx(1.0)
    assert outcomes["perfect"].late_share < 1e-4
    assert outcomes["static_peak"].rescales <= 1
    for outcome in outcomes.values():
        assert {"late_share", "p50_s", "p99_s", "p999_s", "hours", "rescales", "rescales_per_day"} <= set(
            outcome.figures()
        )


def test_b31_what_an_hpa_does_after_a_spike_is_seen_before_it_is_applied() -> None:
    """Default behaviour: all the way up in a minute, nothing for five minutes, then all the way down at once."""
    rule = KedaLag(np.array([10.0]), 64)
    have, sizes = 4, []
    for k in range(40):
        have = int(rule.decide(seen(k * 15.0, 640.0 if k < 8 else 40.0, 0.0, have))[0])
        sizes.append(have)
    assert sizes[:4] == [8, 16, 32, 64]
    last_high = max(k for k in range(8) if sizes[k] == 64)
    first_low = next(k for k in range(8, 40) if sizes[k] < 64)
    assert 300 <= (first_low - last_high) * 15 <= 330
    assert sizes[first_low] == 4 and set(sizes[first_low:]) == {4}
