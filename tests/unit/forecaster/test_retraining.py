"""When a stream is trained again, and what a round leaves behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from forecaster.errors import InputRefused
from forecaster.registry import ModelRegistry
from forecaster.retraining import (
    RetrainPolicy,
    already_trained,
    finish,
    last_trained,
    prepare,
    retrain,
    run_round,
    settle,
)
from forecaster.topics import StreamId
from forecaster.training import TrainingPolicy
from tests.unit.forecaster.test_training import noisy_days

NOW = datetime(2026, 1, 20, tzinfo=UTC)
DAY = timedelta(days=1)
STREAM = StreamId("main", "orders")
POLICY = TrainingPolicy(method="median_blend", test_days=2)


@pytest.mark.parametrize(
    ("last", "drift", "expected"),
    [
        (None, None, "it was never trained"),
        (NOW - 8 * DAY, None, "it was trained 8.0 days ago"),
        (NOW - 6 * DAY, None, None),
        (NOW - 2 * DAY, "WAPE doubled", "drift: WAPE doubled"),
        (NOW - DAY / 2, "WAPE doubled", None),
    ],
)
def test_training_is_due_on_schedule_or_on_drift_after_a_rest(
    last: datetime | None, drift: str | None, expected: str | None
) -> None:
    assert RetrainPolicy().due(last, NOW, drift) == expected


@pytest.mark.parametrize("bad", [{"every": timedelta(hours=1)}, {"rest": timedelta(0)}, {"keep": 1}])
def test_impossible_policies_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        RetrainPolicy(**bad)


def test_a_round_keeps_promotes_and_can_be_resumed(tmp_path: Path) -> None:
    registry, series = ModelRegistry(tmp_path), noisy_days()
    assert already_trained(series, STREAM, registry) is None
    first = retrain(series, STREAM, registry, NOW, POLICY)
    assert first.promoted
    assert registry.current(STREAM) == first.card.version
    assert (first.card.data_end, first.card.partitions) == (series.end.isoformat(), 3)
    assert already_trained(series, STREAM, registry, POLICY) == first.card
    assert already_trained(series, STREAM, registry) is None
    assert already_trained(series.between(0, 100), STREAM, registry, POLICY) is None
    assert last_trained(registry, STREAM) == NOW
    assert last_trained(registry, StreamId("main", "other")) is None
    second = retrain(series, STREAM, registry, NOW + DAY, POLICY)
    assert not second.promoted
    assert registry.current(STREAM) == first.card.version
    assert registry.versions(STREAM) == (first.card.version, second.card.version)


def test_a_champion_that_cannot_be_opened_is_named_and_replaced(tmp_path: Path) -> None:
    registry, series = ModelRegistry(tmp_path), noisy_days()
    first = retrain(series, STREAM, registry, NOW, POLICY)
    (registry.folder(STREAM) / first.card.version / "forecaster.joblib").write_bytes(b"")
    second = retrain(series, STREAM, registry, NOW + DAY, POLICY)
    assert second.promoted
    assert "what served before cannot be compared with" in second.reason
    assert registry.load(STREAM).card.version == second.card.version


def test_a_champion_of_another_step_is_not_compared_with(tmp_path: Path) -> None:
    registry, series = ModelRegistry(tmp_path), noisy_days()
    retrain(series, STREAM, registry, NOW, POLICY)
    other = retrain(series.at_step(7200), STREAM, registry, NOW + DAY, POLICY)
    assert "was trained on steps of 3600 s" in other.reason


def test_a_refusal_of_one_stream_is_a_result(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path)
    short = prepare(noisy_days(1), STREAM, registry, POLICY)
    assert isinstance(run_round(short), InputRefused)
    fine = prepare(noisy_days(), STREAM, registry, POLICY)
    training = run_round(fine)
    assert not isinstance(training, InputRefused)
    assert settle(fine, training, registry, NOW).promoted


def test_only_so_many_artefacts_are_kept(tmp_path: Path) -> None:
    registry, series = ModelRegistry(tmp_path), noisy_days(6)
    policy = replace(POLICY, test_days=1)
    for k in range(4):
        retrain(series, STREAM, registry, NOW + k * DAY, policy, keep=2)
    assert len(registry.versions(STREAM)) <= 3
    assert registry.current(STREAM) in registry.versions(STREAM)


def test_the_same_data_give_the_same_artefact(tmp_path: Path) -> None:
    series = noisy_days()
    cards = [retrain(series, STREAM, ModelRegistry(tmp_path / n), NOW, POLICY).card for n in ("a", "b")]
    assert cards[0] == cards[1]
    assert np.isclose(cards[0].scores["challenger"]["mase"], cards[1].scores["challenger"]["mase"])


def test_what_was_kept_but_not_promoted_when_the_process_died_is_promoted_on_resuming(tmp_path: Path) -> None:
    registry, series = ModelRegistry(tmp_path), noisy_days()
    card = retrain(series, STREAM, registry, NOW, POLICY).card
    (registry.folder(STREAM) / "current.json").unlink()
    assert finish(card, STREAM, registry, NOW + DAY)
    assert registry.current(STREAM) == card.version
    assert not finish(card, STREAM, registry, NOW + 2 * DAY)
    other = registry.save(STREAM, registry.load(STREAM).method, replace(card, created_at=(NOW - DAY).isoformat()))
    registry.rollback(STREAM, NOW + 3 * DAY, other.version)
    assert not finish(card, STREAM, registry, NOW + 4 * DAY)  # it was rolled back on purpose
    assert registry.current(STREAM) == other.version


def test_what_a_killed_process_left_half_written_goes_after_an_hour(tmp_path: Path) -> None:
    import os

    registry, series = ModelRegistry(tmp_path), noisy_days()
    retrain(series, STREAM, registry, NOW, POLICY)
    half, young = (registry.folder(STREAM) / f".20260101T000000Z.{name}" for name in ("old", "young"))
    for folder in (half, young):
        folder.mkdir()
        (folder / "forecaster.joblib").write_bytes(b"x")
    os.utime(half, (1, 1))
    registry.prune(STREAM)
    assert young.exists() and not half.exists()
    assert len(registry.versions(STREAM)) == 1
