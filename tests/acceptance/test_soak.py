"""A day and a half of the whole product in seconds: a clock change, more partitions, restarts, no leak."""

from datetime import UTC, datetime

from benchmarks import soak


def test_days_with_restarts_pass_without_a_failure_or_a_leak(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "START", datetime(2026, 3, 28, 12, tzinfo=UTC))  # Berlin changes its clocks that night
    monkeypatch.setattr(soak, "GROWS_IN_WEEK", 1 / 7)
    seen = soak.soak(1.5 / 7, tmp_path, seed=1, life=soak.DAY // 2)
    first, middle, last = seen["weeks"]
    assert seen["failures"] == []
    assert seen["job_runs"] >= 2 * soak.DAY
    assert seen["rescales"] >= 2
    assert seen["expired"] > 0
    # after a day the grid answers; partitions that came with the clock change are in no forecast yet: the gate closes
    assert (first["rung"], middle["rung"], last["rung"]) == ("last_value", "grid_state", "last_value")
    # a leak would be one in each of the two lives that follow the first
    assert last["descriptors"] <= first["descriptors"] + 1
    assert last["threads"] <= first["threads"] + 1
    once = {"plan", "log", "fence", "learned", "topics", "meta", "decision"}
    assert [n for kind, n in last["keys"].items() if kind in once] == [1] * len(once)
