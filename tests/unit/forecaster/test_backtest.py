"""Rolling origins: nothing leaks, figures equal a plain loop, whatever the map."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.backtest import BacktestPlan, backtest
from forecaster.errors import InputRefused
from forecaster.forecast import ForecastResult
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from tests.unit.forecaster.naive_oracle import Yesterday


def some_series(days: int = 10, rows: int = 2, seed: int = 0, step_s: int = 3600) -> ArrivalSeries:
    rng = np.random.default_rng(seed)
    steps = days * 86_400 // step_s
    counts = rng.poisson(50, (rows, steps)).astype(float)
    known = rng.random((rows, steps)) > 0.05
    return ArrivalSeries(
        "orders", TimeGrid(step_s, "Europe/Berlin"), 1000, tuple(range(rows)), np.where(known, counts, 0), known
    )


def test_the_last_forecast_is_kept_for_plots_and_no_other() -> None:
    series = some_series()
    plan = BacktestPlan(24, 3, 24, (0.9,))
    kept = backtest(series, {"naive": Yesterday()}, plan).methods["naive"].last
    assert kept is not None
    assert kept.origin == series.grid.start_of(series.end_index - 24)
    assert kept.rates.shape == (2, 24, 2)


def test_figures_equal_a_plain_loop() -> None:
    series = some_series()
    plan = BacktestPlan(30, 4, 24, (0.9,), lead_steps=(1, 6))
    report = backtest(series, {"naive": Yesterday()}, plan).methods["naive"]
    origins = plan.origin_indices(series)
    assert origins[-1] + 30 == series.end_index
    for row in range(2):
        scaled, errors, actuals, covered, lead = [], [], [], [], []
        y, known = series.counts[row], series.known[row]
        for origin in origins:
            o = origin - series.first_index
            pairs = [abs(y[t] - y[t - 24]) for t in range(24, o) if known[t] and known[t - 24]]
            for h in range(30):
                if not known[o + h]:
                    continue
                point = y[o - 24 + h % 24] if known[o - 24 + h % 24] else 0.0
                scaled.append(abs(y[o + h] - point) / np.mean(pairs))
                errors.append(abs(y[o + h] - point))
                actuals.append(y[o + h])
                covered.append(y[o + h] <= 2 * point)
                if h == 5:
                    lead.append((abs(y[o + h] - point), y[o + h]))
        got = report.series[row]
        assert got.mase == pytest.approx(np.mean(scaled))
        assert got.wape == pytest.approx(sum(errors) / sum(actuals))
        assert got.coverage[0.9] == pytest.approx(np.mean(covered))
        assert got.points == len(errors)
        if row == 0:
            first_lead = sum(e for e, _ in lead) / sum(a for _, a in lead)
        else:
            second_lead = sum(e for e, _ in lead) / sum(a for _, a in lead)
    assert report.mean.mase == pytest.approx(np.mean([s.mase for s in report.series]))
    assert report.leads[6].wape == pytest.approx((first_lead + second_lead) / 2)
    assert sum(s.points for s in report.by_lead) == sum(s.points for s in report.by_hour) == report.mean.points
    assert report.by_lead[5].points == sum(int(series.known[:, o - 1000 + 5].sum()) for o in origins)
    assert report.answered == 1.0
    assert report.rungs == {"yesterday": 4}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_nothing_after_an_origin_changes_its_forecast(seed: int, k: int) -> None:
    """What a method is shown ends at its origin, and what it is fitted on ends at the first one."""
    series = some_series(seed=3)
    plan = BacktestPlan(24, 4, 24)
    origin = plan.origin_indices(series)[k]
    seen: list[ArrivalSeries] = []

    @dataclass
    class Spy(Yesterday):
        def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float]) -> ForecastResult:
            if history.end_index == origin:
                seen.append(history)
            return Yesterday.predict(self, history, horizon_steps, levels)

    at = origin - series.first_index
    rng = np.random.default_rng(seed)
    counts = series.counts.copy()
    counts[:, at:] = rng.poisson(1000, counts[:, at:].shape)
    for tried in (series, replace(series, counts=counts)):
        report = backtest(tried, {"spy": Spy()}, plan)
        assert report.methods["spy"].reasons == (f"fitted to {plan.origin_indices(series)[0]}",)
    before, after = seen
    assert before.end_index == after.end_index == origin
    np.testing.assert_array_equal(before.counts, after.counts)


def test_refit_fits_at_every_origin_and_a_fitted_method_is_left_alone() -> None:
    series = some_series()
    plan = BacktestPlan(24, 3, 24, refit=True)
    report = backtest(series, {"own": Yesterday(), "loaded": Yesterday()}, plan, fitted=frozenset({"loaded"}))
    assert set(report.methods["own"].reasons) == {f"fitted to {o}" for o in report.origins}
    assert report.methods["loaded"].reasons == ("fitted to None",)


def test_the_methods_that_are_passed_in_stay_unfitted() -> None:
    method = Yesterday()
    backtest(some_series(), {"naive": method}, BacktestPlan(24, 2, 24))
    assert method.fitted_to is None


def test_any_map_gives_the_same_figures() -> None:
    series, plan = some_series(rows=3), BacktestPlan(12, 5, 12)
    methods = {"a": Yesterday(), "b": Yesterday(need=2)}
    here = backtest(series, methods, plan)
    with ThreadPoolExecutor(3) as pool:
        there = backtest(series, methods, plan, map=pool.map)
    assert {n: m.series for n, m in here.methods.items()} == {n: m.series for n, m in there.methods.items()}


def test_refusals_are_counted_with_their_reason_not_scored() -> None:
    series, plan = some_series(days=6), BacktestPlan(24, 4, 24)
    report = backtest(series, {"picky": Yesterday(need=4)}, plan).methods["picky"]
    assert report.answered == 0.5
    assert report.rungs == {"none": 2, "yesterday": 2}
    assert "48 of 96 steps" in report.reasons
    assert report.mean.points == int(series.known[:, -48:].sum())
    never = backtest(series, {"picky": Yesterday(need=99)}, plan).methods["picky"]
    assert (never.answered, never.mean.mase, never.mean.points) == (0.0, None, 0)


def test_seconds_come_from_the_clock_alone() -> None:
    ticks = iter(range(100))
    report = backtest(some_series(), {"a": Yesterday()}, BacktestPlan(24, 2, 24), clock=lambda: float(next(ticks)))
    # one second to fit, one a forecast, over two series and two origins
    assert report.methods["a"].seconds_per_series == pytest.approx(3 / 4)


def test_too_short_a_series_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputRefused, match="need at least 217 steps, there are 48; use fewer origins"):
        backtest(some_series(days=2), {"a": Yesterday()}, BacktestPlan(24, 9, 24))


@pytest.mark.parametrize("bad", [{"horizon_steps": 0}, {"origins": 0}, {"every_steps": 0}, {"lead_steps": (25,)}])
def test_impossible_plans_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must"):
        BacktestPlan(**{"horizon_steps": 24, "origins": 2, "every_steps": 24, **bad})


def test_a_partition_that_was_left_out_is_not_scored() -> None:
    @dataclass
    class Halfway(Yesterday):
        def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float]) -> ForecastResult:
            return Yesterday.predict(self, history.select([1]), horizon_steps, levels)

    series, plan = some_series(), BacktestPlan(24, 3, 24)
    half = backtest(series, {"half": Halfway()}, plan).methods["half"]
    assert (half.series[0].points, half.series[0].mase) == (0, None)
    assert half.series[1] == backtest(series, {"whole": Yesterday()}, plan).methods["whole"].series[1]
