"""The demo end to end on a small trace: figures, page, and going on after everything was killed with -9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

KEYS = {"late_share", "hours", "hours_vs_peak_static", "rescales_per_day", "wape", "coverage", "url"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Eleven days of a daily pattern, one value in five minutes."""
    file = tmp_path_factory.mktemp("trace") / "small.csv"
    start, steps = datetime(2026, 1, 1, tzinfo=UTC), 11 * 288
    at = np.arange(steps)
    rng = np.random.default_rng(0)
    values = rng.poisson(300 * (30 + 25 * np.sin(2 * np.pi * at / 288)))
    rows = [f"{(start + timedelta(minutes=5 * int(i))).isoformat()},all,{v}" for i, v in zip(at, values, strict=True)]
    file.write_text("timestamp,series,value\n" + "\n".join(rows) + "\n")
    return file


def start(trace, state):
    command = [sys.executable, "-m", "headway", "demo", "--once", "--json", "--port", "0", "--trace", str(trace)]
    environ = {**os.environ, "HEADWAY_STATE": str(state), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def read_until(process, words):
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"{words!r} was never said: {''.join(seen)}")


@pytest.mark.slow
def test_killed_with_9_in_the_middle_the_next_run_goes_on_with_everything_acknowledged(trace, tmp_path):
    first = start(trace, tmp_path)
    try:
        url = read_until(first, "page and API").split()[-1]
        read_until(first, "members")
        look_at(url)
    finally:
        first.kill()  # SIGKILL
        first.communicate()
    second = start(trace, tmp_path)
    out, err = second.communicate(timeout=900)
    assert second.returncode == 0, err
    assert "an earlier run was cut off" in err
    summary = json.loads(out)
    assert set(summary) >= KEYS
    assert summary["resumed_at"] is not None
    policies = summary["policies"]
    assert summary["late_share"] <= 0.01
    assert summary["hours"] < policies["static_peak"]["hours"]

    kept = read_store(trace, tmp_path)
    assert kept["known"] == kept["steps"]
    assert kept["sum"] == kept["expected"]


def look_at(url):
    """Ask page and API while the demo runs."""
    with urllib.request.urlopen(f"{url}v1/groups/worldcup/plan", timeout=60) as answer:
        assert json.load(answer)["steps"]
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert b"Headway" in answer.read()


def read_store(trace, state):
    """Compare what the store holds of the replayed days with the trace."""
    code = """
import json, sys
from pathlib import Path
from headway.demo_setup import demo_settings, read_scene
from headway.wiring import open_series, store_url
from forecaster.stores.base import SeriesKey
scene = read_scene(Path(sys.argv[1]))
settings = demo_settings(scene, 0)
with store_url(settings) as url:
    store = open_series(settings, url)
    series = scene.series
    key = SeriesKey("worldcup", "arrivals", None, series.grid.step_s)
    cells = store.read(key, series.first_index, series.end_index)
    print(json.dumps({"known": int(cells.known.sum()), "steps": series.steps, "sum": int(cells.values.sum()),
                      "expected": int(series.counts.sum())}))
    store.close()
"""
    environ = {**os.environ, "HEADWAY_STATE": str(state)}
    command = [sys.executable, "-c", code, str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    return json.loads(done.stdout)
