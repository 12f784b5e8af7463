"""Artefacts: whole or not at all, refused with the remedy, one current, and a way back."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forecaster import registry as registry_module
from forecaster.errors import ArtefactRefused
from forecaster.registry import Card, ModelRegistry
from forecaster.topics import StreamId
from tests.unit.forecaster.naive_oracle import Yesterday

STREAM = StreamId("main", "orders")
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def card(at: datetime = NOW) -> Card:
    return Card(
        topic="orders",
        cluster="main",
        method="yesterday",
        step_s=60,
        timezone="UTC",
        data_start="2026-01-01T00:00:00+00:00",
        data_end="2026-01-05T00:00:00+00:00",
        data_steps=5760,
        partitions=3,
        known_share=1.0,
        data_sha256="0" * 64,
        seed=0,
        created_at=at.isoformat(),
    )


@pytest.fixture
def models(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(tmp_path / "models")


def saved(models: ModelRegistry, need: int = 1, at: datetime = NOW) -> str:
    version = models.save(STREAM, Yesterday(need=need), card(at)).version
    models.promote(STREAM, version, at)
    return version


def test_what_was_saved_comes_back(models: ModelRegistry) -> None:
    assert models.current(STREAM) is None
    version = saved(models, need=3)
    back = models.load(STREAM)
    assert back.method == Yesterday(need=3)
    assert back.card.version == version == "20260105T090000Z"
    assert replace(back.card, version="", versions={}, sha256="", bytes=0) == card()
    assert back.card.versions["scikit-learn"]
    assert models.streams() == (STREAM,)


def test_two_saves_in_one_second_are_two_versions(models: ModelRegistry) -> None:
    assert [saved(models), saved(models)] == ["20260105T090000Z", "20260105T090000Z-2"]
    assert models.versions(STREAM) == ("20260105T090000Z", "20260105T090000Z-2")


def test_no_name_climbs_out_of_the_folder(models: ModelRegistry) -> None:
    for topic in ("../../etc", "..", ".", "a/b", "%2E%2E", ".hidden"):
        folder = models.folder(StreamId("main", topic))
        assert folder.parent == models.root / "main"
        assert folder.resolve() == folder.absolute()
        models.promote(StreamId("main", topic), models.save(StreamId("main", topic), Yesterday(), card()).version, NOW)
    assert {s.topic for s in models.streams()} == {"../../etc", "..", ".", "a/b", "%2E%2E", ".hidden"}


def damage(models: ModelRegistry, how: str) -> None:
    folder = models.folder(STREAM) / str(models.current(STREAM))
    raw = json.loads((folder / "card.json").read_text())
    if how == "flipped byte":
        content = bytearray((folder / "forecaster.joblib").read_bytes())
        content[len(content) // 2] ^= 1
        (folder / "forecaster.joblib").write_bytes(content)
    elif how == "cut short":
        content = (folder / "forecaster.joblib").read_bytes()
        (folder / "forecaster.joblib").write_bytes(content[:-10])
    elif how == "no model":
        (folder / "forecaster.joblib").unlink()
    elif how == "no card":
        (folder / "card.json").unlink()
    elif how == "empty card":
        (folder / "card.json").write_text("")
    elif how == "card of something else":
        (folder / "card.json").write_text('{"name": "resnet"}')
    elif how == "card without a field":
        (folder / "card.json").write_text(json.dumps({k: v for k, v in raw.items() if k != "seed"}))
    elif how == "newer format":
        (folder / "card.json").write_text(json.dumps(raw | {"format": 2}))
    elif how == "other scikit-learn":
        (folder / "card.json").write_text(json.dumps(raw | {"versions": {"scikit-learn": "1.2.0"}}))
    elif how == "current.json cut":
        (models.folder(STREAM) / "current.json").write_text('{"versi')
    elif how == "current.json names what is gone":
        (models.folder(STREAM) / "current.json").write_text('{"version": "20200101T000000Z", "previous": []}')


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("flipped byte", "SHA-256 differs"),
        ("cut short", "SHA-256 differs"),
        ("no model", "half-written"),
        ("no card", "half-written"),
        ("empty card", "not JSON"),
        ("card of something else", "not a card of Headway"),
        ("card without a field", "incomplete card"),
        ("newer format", "newer than this Headway reads .* upgrade Headway"),
        ("other scikit-learn", r"written under scikit-learn 1\.2\.0.*install scikit-learn==1\.2\.\*"),
        ("current.json cut", "damaged"),
        ("current.json names what is gone", "half-written"),
    ],
)
def test_what_cannot_be_trusted_is_refused_with_the_remedy(models: ModelRegistry, how: str, says: str) -> None:
    saved(models)
    damage(models, how)
    with pytest.raises(ArtefactRefused, match=says) as refused:
        models.load(STREAM)
    assert str(models.root) in str(refused.value)
    assert "headway" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_damaged_artefact_is_never_unpickled(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(models)
    damage(models, "flipped byte")
    monkeypatch.setattr(registry_module.joblib, "load", lambda *_: pytest.fail("opened"))
    with pytest.raises(ArtefactRefused, match="SHA-256"):
        models.load(STREAM)


def test_a_pickle_that_raises_or_holds_something_else_is_refused(models: ModelRegistry) -> None:
    version = models.save(STREAM, "just text", card()).version  # type: ignore[arg-type]
    with pytest.raises(ArtefactRefused, match="holds a str, not a forecasting method"):
        models.promote(STREAM, version, NOW)
    assert models.current(STREAM) is None


def test_a_key_refuses_what_it_did_not_sign(tmp_path: Path) -> None:
    unsigned = ModelRegistry(tmp_path)
    saved(unsigned)
    keyed = ModelRegistry(tmp_path, key=b"secret")
    with pytest.raises(ArtefactRefused, match="is not signed"):
        keyed.load(STREAM)
    saved(keyed, at=NOW + timedelta(hours=1))
    assert keyed.load(STREAM).method == Yesterday()
    with pytest.raises(ArtefactRefused, match="signed with another key"):
        ModelRegistry(tmp_path, key=b"other").load(STREAM)
    path = keyed.folder(STREAM) / str(keyed.current(STREAM)) / "card.json"
    path.write_text(path.read_text().replace('"partitions": 3', '"partitions": 4'))
    with pytest.raises(ArtefactRefused, match="or was changed"):
        keyed.load(STREAM)


def test_rollback_goes_back_and_never_forth(models: ModelRegistry) -> None:
    first, second, third = (saved(models, need=n, at=NOW + timedelta(hours=n)) for n in (1, 2, 3))
    assert models.current(STREAM) == third
    assert models.rollback(STREAM, NOW) == second
    assert models.rollback(STREAM, NOW) == first
    with pytest.raises(ArtefactRefused, match="nothing to go back to"):
        models.rollback(STREAM, NOW)
    assert models.rollback(STREAM, NOW, to=third) == third
    assert models.load(STREAM).method == Yesterday(need=3)
    with pytest.raises(ArtefactRefused, match="no version 19990101T000000Z; there are"):
        models.rollback(STREAM, NOW, to="19990101T000000Z")


def test_a_rollback_to_what_is_damaged_changes_nothing(models: ModelRegistry) -> None:
    first, second = saved(models), saved(models, at=NOW + timedelta(hours=1))
    (models.folder(STREAM) / first / "forecaster.joblib").unlink()
    with pytest.raises(ArtefactRefused, match="half-written"):
        models.rollback(STREAM, NOW)
    assert models.current(STREAM) == second


def test_a_damaged_current_file_is_mended_as_its_message_says(models: ModelRegistry) -> None:
    version = saved(models)
    damage(models, "current.json cut")
    assert models.rollback(STREAM, NOW, to=version) == version
    assert models.current(STREAM) == version


def test_a_writer_that_died_leaves_nothing_to_read(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    version = saved(models)
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        models.save(STREAM, Yesterday(), card(NOW + timedelta(days=1)))
    monkeypatch.undo()
    assert models.versions(STREAM) == (version,)
    assert models.load(STREAM).card.version == version
    assert saved(models, at=NOW + timedelta(days=1)) == "20260106T090000Z"


def test_a_full_disk_is_one_line_and_changes_nothing(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    version = saved(models)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtefactRefused, match=r"No space left on device.*make room"):
        models.save(STREAM, Yesterday(), card(NOW + timedelta(days=1)))
    with pytest.raises(ArtefactRefused, match="No space left"):
        models.promote(STREAM, version, NOW)
    monkeypatch.undo()
    assert models.current(STREAM) == version
    assert sorted(p.name for p in models.folder(STREAM).iterdir()) == [version, "current.json"]


def test_pruning_keeps_what_serves_and_its_predecessor(models: ModelRegistry) -> None:
    kept = [saved(models, at=NOW + timedelta(hours=h)) for h in range(4)]
    models.rollback(STREAM, NOW, to=kept[0])
    assert models.prune(STREAM, keep=1) == (kept[1],)
    assert models.load(STREAM).card.version == kept[0]
