"""An artefact can be made again from its card, to the byte, and other data are told from the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from forecaster.calendar import Calendar, Event
from forecaster.errors import ArtefactRefused, InputRefused
from forecaster.forecast import Forecast
from forecaster.registry import ModelRegistry
from forecaster.reproduction import reproduce
from forecaster.retraining import already_trained, retrain
from forecaster.series import ArrivalSeries
from forecaster.topics import StreamId
from forecaster.training import TrainingPolicy
from tests.unit.forecaster.test_training import noisy_days

NOW = datetime(2026, 1, 20, tzinfo=UTC)
STREAM = StreamId("main", "orders")


def longer(series: ArrivalSeries) -> ArrivalSeries:
    """The same data with a day more behind them."""
    more = np.concatenate([series.counts, series.counts[:, -24:]], axis=1)
    return replace(series, counts=more, known=np.ones(more.shape, dtype=bool))


@pytest.mark.parametrize("method", ["auto", "median_blend"])
def test_the_card_gives_the_same_bytes_and_forecasts(method: str, tmp_path: Path) -> None:
    series, registry = noisy_days(6), ModelRegistry(tmp_path)
    done = retrain(series, STREAM, registry, NOW, TrainingPolicy(method=method, test_days=1, seed=5))
    card = registry.read_card(registry.folder(STREAM) / done.card.version)
    again = reproduce(card, longer(series))
    assert again.same_bytes and again.sha256 == card.sha256
    assert again.other_versions == ()
    kept, made = (m.predict(series, 24) for m in (registry.load(STREAM, card.version).method, again.method))
    assert isinstance(kept, Forecast) and isinstance(made, Forecast)
    assert np.array_equal(kept.rates, made.rates) and np.array_equal(kept.total, made.total)


def test_another_seed_is_not_the_same_and_the_calendar_is_part_of_the_recipe(tmp_path: Path) -> None:
    series, registry = noisy_days(5), ModelRegistry(tmp_path)
    sale = Event("sale", series.start, series.grid.start_of(series.first_index + 30), 2.0)
    policy = TrainingPolicy(method="boosting", test_days=1, calendar=Calendar("US", (sale,)))
    card = retrain(series, STREAM, registry, NOW, policy).card
    assert TrainingPolicy.from_recipe(card.recipe) == policy
    assert reproduce(card, series).same_bytes
    assert not reproduce(replace(card, recipe=card.recipe | {"holidays": None, "events": []}), series).same_bytes
    assert already_trained(series, STREAM, registry, policy) is not None
    assert already_trained(series, STREAM, registry, replace(policy, calendar=Calendar())) is None


def test_other_data_and_old_cards_are_refused(tmp_path: Path) -> None:
    series, registry = noisy_days(9), ModelRegistry(tmp_path)
    card = retrain(series, STREAM, registry, NOW, TrainingPolicy(method="median_blend", test_days=1)).card
    other = series.counts.copy()
    other[0, 3] += 1
    with pytest.raises(InputRefused, match="these data are not the same"):
        reproduce(card, replace(series, counts=other))
    with pytest.raises(InputRefused, match="these data are not the same"):
        reproduce(card, series.between(series.first_index + 5, series.end_index))
    with pytest.raises(ArtefactRefused, match="holds no recipe"):
        reproduce(replace(card, recipe={}), series)
    elsewhere = replace(card, versions=card.versions | {"numpy": "0.1"})
    assert reproduce(elsewhere, series).other_versions[0].startswith("numpy 0.1 ")
