"""A period that is neither day nor week is learned where the data show it, and changes nothing where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forecaster.backtest import BacktestPlan, backtest
from forecaster.extra_seasons import ExtraSeason, ExtraSeasons
from forecaster.forecast import Forecast, NoForecast
from forecaster.ladder import Ladder
from forecaster.methods.catalogue import make_method
from forecaster.registry import as_bytes
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from forecaster.training import trainable


def with_job(hours: int, height: float, days: int = 28, seed: int = 0, step_s: int = 3600) -> ArrivalSeries:
    """Two partitions with a day, and a job every so many hours that multiplies what arrives."""
    grid, rng = TimeGrid(step_s), np.random.default_rng(seed)
    t = np.arange(days * grid.steps_per_day)
    rate = np.exp(1 + 0.8 * np.sin(t * 2 * np.pi / grid.steps_per_day)) * 100
    on = t * step_s // 3600 % hours == 0
    counts = rng.poisson(np.stack([rate, 3 * rate]) * (1 + height * on)).astype(float)
    return ArrivalSeries("t", grid, 24_000, (0, 1), counts, np.full(counts.shape, True))


@pytest.mark.parametrize(("hours", "height"), [(10, 3.0), (10, 0.5), (11, 1.0)])
def test_a_job_that_wanders_through_the_day_is_forecast(hours: int, height: float) -> None:
    methods = {"plain": make_method("median_blend"), "extra": ExtraSeasons(make_method("median_blend"))}
    report = backtest(with_job(hours, height), methods, BacktestPlan(24, 5, 24))
    plain, extra = (report.methods[name].mean for name in methods)
    assert extra.mase is not None and plain.mase is not None
    assert extra.mase < 0.6 * plain.mase
    covered = extra.coverage[0.9]
    assert covered is not None and 0.8 < covered < 0.99
    assert f"a period of {hours} h is in the data and in the forecast" in report.methods["extra"].reasons


def test_without_such_a_period_the_method_is_itself() -> None:
    series = with_job(24, 1.0)
    assert ExtraSeason.of(series) is None
    own = ExtraSeasons(make_method("median_blend")).predict(series, 24)
    bare = make_method("median_blend").predict(series, 24)
    assert isinstance(own, Forecast) and isinstance(bare, Forecast)
    assert np.array_equal(own.rates, bare.rates) and np.array_equal(own.total, bare.total)
    assert own.reasons == bare.reasons


def test_what_is_taken_out_comes_back_and_medians_add_up() -> None:
    series = with_job(10, 2.0)
    season = ExtraSeason.of(series)
    assert season is not None and season.steps == 10
    result = ExtraSeasons(make_method("median_blend")).predict(series, 48, (0.5, 0.9))
    assert isinstance(result, Forecast)
    assert np.allclose(result.at_level(0.5).sum(axis=0), result.total[:, 0], rtol=1e-6)
    plain = make_method("median_blend").predict(season.taken_out(series), 48, (0.5, 0.9))
    assert isinstance(plain, Forecast)
    ratio = result.total[:, 0] / plain.total[:, 0]
    on = (series.end_index + np.arange(48)) % 10 == 0
    assert ratio[on].min() > 2 * ratio[~on].max()


def test_gaps_stay_gaps_and_nothing_after_the_origin_counts() -> None:
    series = with_job(10, 2.0)
    known = series.known.copy()
    known[0, 100:130] = False
    holes = replace(series, known=known, counts=np.where(known, series.counts, 0.0))
    season = ExtraSeason.of(holes)
    assert season is not None
    assert np.array_equal(season.taken_out(holes).known, known)
    cut = series.end_index - 48
    changed = replace(series, counts=np.where(np.arange(series.steps) >= series.steps - 48, 9e9, series.counts))
    method = ExtraSeasons(make_method("median_blend"))
    answers = [method.predict(s.between(s.first_index, cut), 24) for s in (series, changed)]
    assert all(isinstance(a, Forecast) for a in answers)
    assert np.array_equal(answers[0].rates, answers[1].rates)  # type: ignore[union-attr]


def test_finer_steps_and_a_refusal_pass_through() -> None:
    fine = with_job(10, 3.0, step_s=1800)
    season = ExtraSeason.of(fine)
    assert season is not None and season.steps == 20
    short = fine.between(fine.first_index, fine.first_index + 3)
    assert isinstance(ExtraSeasons(make_method("last_week")).predict(short, 4), NoForecast)


def test_the_ladder_and_what_is_trained_use_it() -> None:
    series = with_job(10, 3.0)
    answer = Ladder().predict(series, 24)
    assert isinstance(answer, Forecast)
    assert any("a period of 10 h" in reason for reason in answer.reasons)
    own = trainable("auto", 0)
    assert isinstance(own, ExtraSeasons)
    assert own.name == own.method.name
    fitted = ExtraSeasons(make_method("median_blend")).fit([series])
    assert as_bytes(fitted)


def test_no_value_exceeds_four_times_the_largest_count() -> None:
    series = with_job(10, 60.0)
    result = ExtraSeasons(make_method("median_blend")).predict(series, 48, (0.5, 0.999))
    assert isinstance(result, Forecast)
    assert (result.rates.max(axis=(1, 2)) * 3600 <= 4.0001 * series.counts.max(axis=1)).all()
    assert result.total.max() * 3600 <= 4.0001 * series.counts.sum(axis=0).max()
