"""Commands of README and docs that need nothing but ``data/`` run as they stand, in a folder of one's own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_docs_commands import CASES

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("statsforecast", "prophet")
"""Named in commands that need a library of the extra ``peers``."""
LINES = sorted({" ".join(line.split()) for _, line in CASES if " data/" in line})
RUN = [line for line in LINES if not any(peer in line for peer in PEERS)]
QUICK = ("headway assign", "headway plan")
"""The others train or play weeks again: ``make test-docs`` runs them, CI runs these."""


def test_there_are_some():
    assert len(RUN) >= 8


@pytest.mark.parametrize(
    "line", [line if line.startswith(QUICK) else pytest.param(line, marks=pytest.mark.slow) for line in RUN]
)
def test_it_runs_as_it_stands(line, tmp_path):
    (tmp_path / "data").symlink_to(ROOT / "data")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "HEADWAY_STATE": str(tmp_path / "state")}
    _, *words = shlex.split(line)
    command = [sys.executable, "-m", "headway", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr
    promised = [tmp_path / words[i + 1] for i, word in enumerate(words) if word in ("--html", "--report", "--out")]
    assert all(path.stat().st_size > 1000 for path in promised), done.stderr
