"""What serve does without; each in a process of its own, since imports cannot be taken back."""

from __future__ import annotations

import subprocess
import sys


def said(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_serve_runs_on_loads_no_pandas_and_who_asks_for_it_gets_it() -> None:
    code = """
import sys
from headway.work.footprint import keep_small
keep_small()
import headway.api.server, headway.cli.serve, headway.assembly, headway.wiring, headway.work.workshop, headway.work.jobs
import forecaster.desk, forecaster.methods.catalogue
print("pandas" in sys.modules, "sklearn" in sys.modules)
from datetime import UTC, datetime, timedelta
import numpy as np
from forecaster.forecast import Forecast, Rung
f = Forecast("t", datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1), (0,), (0.5,), np.ones((1, 2, 1)),
             np.ones((2, 1)), "blend", Rung.OWN_MODEL)
print(len(f.to_frame()))
"""
    assert said(code) == ["False", "True", "2"]


def test_freed_memory_goes_back() -> None:
    code = """
import numpy as np
from headway.work.footprint import give_back
def rss():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) / 1024
large = np.ones(4_000_000); del large  # glibc now takes up to 32 MB from its heap
many = [np.ones(100_000) for _ in range(100)]
keeper = [np.ones(100)]
full = rss(); del many
give_back()
print(full - rss() > 50)
"""
    assert said(code) == ["True"]
