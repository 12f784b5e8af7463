"""Three days of the whole product in seconds: a clock change, more partitions, a restart every midnight, no leak."""

from datetime import UTC, datetime

from benchmarks import soak


def test_three_days_pass_without_a_failure_or_a_leak(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "START", datetime(2026, 3, 28, tzinfo=UTC))  # Berlin changes its clocks on the second
    monkeypatch.setattr(soak, "GROWS_IN_WEEK", 2 / 7)
    seen = soak.soak(3 / 7, tmp_path, seed=1, life=soak.DAY)
    first, _, last = seen["weeks"]
    assert seen["failures"] == []
    assert seen["job_runs"] >= 3 * soak.DAY
    assert seen["rescales"] >= 3
    assert seen["expired"] > 0
    assert last["rung"] not in ("none", "last_value")
    assert last["descriptors"] <= first["descriptors"]
    assert last["threads"] <= first["threads"]
    assert {k: n for k, n in last["keys"].items() if k in ("plan", "log", "fence", "learned", "topics")} == {
        k: n for k, n in first["keys"].items() if k in ("plan", "log", "fence", "learned", "topics")
    }
