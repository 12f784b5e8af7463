"""A challenger serves only when it is better on what neither has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pytest
from scipy.stats import norm

from forecaster import training
from forecaster.errors import InputRefused
from forecaster.forecast import Forecast, ForecastResult
from forecaster.methods.base import Method
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from forecaster.training import Champion, TrainingPolicy, data_digest, train, trainable
from tests.unit.forecaster.naive_oracle import Yesterday


@dataclass
class SeasonMean(Yesterday):
    """Mean of the known days per slot, times ``factor``: better than yesterday on noise around a fixed profile."""

    name: str = "season_mean"

    def predict(self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float]) -> ForecastResult:
        mean = history.counts.reshape(len(history.partitions), -1, 24).mean(axis=1)[:, :horizon_steps, None]
        rates = (mean + np.sqrt(mean) * norm.ppf(levels)) * self.factor / history.grid.step_s
        result = Yesterday.predict(self, history, horizon_steps, levels)
        if not isinstance(result, Forecast):
            return result
        return replace(result, rates=rates, total=rates.sum(axis=0))


def noisy_days(days: int = 24) -> ArrivalSeries:
    rng = np.random.default_rng(5)
    profile = 100 + 80 * np.sin(np.arange(24) / 24 * 2 * np.pi)
    counts = rng.poisson(np.tile(profile, days), (3, days * 24)).astype(float)
    return ArrivalSeries("orders", TimeGrid(3600), 0, (0, 1, 2), counts, np.full(counts.shape, True))


def trained(monkeypatch: pytest.MonkeyPatch, method: Method, champion: Champion | None = None, margin: float = 0.0):
    monkeypatch.setattr(training, "trainable", lambda *_: method)
    return train(noisy_days(), TrainingPolicy(margin=margin), champion)


def test_a_first_model_serves_when_it_beats_the_naives(monkeypatch: pytest.MonkeyPatch) -> None:
    done = trained(monkeypatch, SeasonMean())
    assert done.promote
    assert done.reason.startswith("first model of this stream: quantile score 0.")
    assert set(done.report.methods) == {"challenger", "yesterday", "last_week"}


def test_a_model_that_is_worse_than_yesterday_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    done = trained(monkeypatch, SeasonMean(factor=2.0))
    assert not done.promote
    assert "is worse than repeating yesterday" in done.reason


def test_a_challenger_must_be_better_than_the_champion(monkeypatch: pytest.MonkeyPatch) -> None:
    series = noisy_days()
    worse = Champion(SeasonMean(factor=1.08), series.grid.start_of(10))
    done = trained(monkeypatch, SeasonMean(), worse)
    assert done.promote
    assert "is better than the champion's" in done.reason
    same = Champion(SeasonMean(), series.end)
    assert not trained(monkeypatch, SeasonMean(), same).promote
    assert not trained(monkeypatch, SeasonMean(), worse, margin=0.5).promote
    silent = Champion(SeasonMean(need=999), series.end)
    assert "gave no forecast" in trained(monkeypatch, SeasonMean(), silent).reason


def test_a_champion_is_judged_on_what_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was fitted on the test period is judged by a copy fitted before it; an older one as it is."""
    series = noisy_days()
    first = series.end_index - 24 - 6 * 24
    seen = trained(monkeypatch, SeasonMean(), Champion(SeasonMean(fitted_to=-1), series.end))
    assert seen.report.methods["champion"].reasons == (f"fitted to {first}",)
    older = trained(monkeypatch, SeasonMean(), Champion(SeasonMean(fitted_to=-1), series.grid.start_of(first)))
    assert older.report.methods["champion"].reasons == ("fitted to -1",)


def test_what_is_kept_is_fitted_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    done = trained(monkeypatch, SeasonMean())
    assert isinstance(done.method, SeasonMean)
    assert done.method.fitted_to == noisy_days().end_index


def test_too_little_data_is_refused_with_what_happens_meanwhile() -> None:
    with pytest.raises(InputRefused, match=r"2\.0 days of data, training needs 3; until then the shipped zero-shot"):
        train(noisy_days(2), TrainingPolicy())
    silent = noisy_days(5)
    unknown = replace(silent, known=np.zeros_like(silent.known), counts=np.zeros_like(silent.counts))
    with pytest.raises(InputRefused, match=r"0\.0 days of data"):
        train(unknown, TrainingPolicy())


def test_a_short_history_holds_back_a_third_at_most() -> None:
    plan = training.judgement(noisy_days(4), TrainingPolicy())
    assert (plan.origins, plan.horizon_steps) == (1, 24)
    plan = training.judgement(noisy_days(40), TrainingPolicy(horizon=timedelta(hours=6)))
    assert (plan.origins, plan.horizon_steps) == (7, 6)


def test_training_is_reproducible_from_its_card() -> None:
    series = noisy_days()
    assert data_digest(series) == data_digest(noisy_days())
    changed = series.counts.copy()
    changed[0, 0] += 1
    assert data_digest(replace(series, counts=changed)) != data_digest(series)
    assert data_digest(replace(series, known=series.counts < 0)) != data_digest(series)
    series = noisy_days(5).select([0])
    one, two = (train(series, TrainingPolicy(method="boosting", test_days=1, seed=3)) for _ in range(2))
    a, b = (t.method.predict(series, 24) for t in (one, two))
    assert isinstance(a, Forecast)
    assert isinstance(b, Forecast)
    np.testing.assert_array_equal(a.rates, b.rates)


def test_the_named_method_is_trained() -> None:
    assert trainable("grid", 0).name == "grid"
    with pytest.raises(InputRefused, match="no forecasting method 'gird'; did you mean 'grid'"):
        trainable("gird", 0)


@pytest.mark.parametrize("bad", [{"test_days": 0}, {"horizon": timedelta(0)}, {"margin": 0.9}])
def test_impossible_policies_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        TrainingPolicy(**bad)
