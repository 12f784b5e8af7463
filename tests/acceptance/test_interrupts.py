"""Ctrl-C as a terminal sends it, to all processes at once: no traceback, exit code 130, and a word on what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORLDCUP = str(ROOT / "data" / "worldcup98_1min.csv.gz")
CASES = {
    "ingest": (["--input", WORLDCUP, "--topic", "web"], "series, step", "the same command completes it"),
    "train": (["--input", WORLDCUP, "--out", "models"], "training", "--resume"),
    "report": (
        ["--group", "web", "--input", WORLDCUP, "--capacity", "150", "--days", "2"],
        "series, step",
        "no report was written",
    ),
    "serve": ([], "page and API", "groups keep the members they have"),
    "demo": (["--port", "0"], "page and API", "goes on from the last minute"),
}
KILLED = {130, -signal.SIGINT}
"""A shell shows both as 130; CPython takes the second where a class was being made when the signal came."""


@pytest.mark.parametrize("name", CASES)
def test_it_ends_in_order(name, tmp_path):
    arguments, when, left = CASES[name]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "HEADWAY_STATE": str(tmp_path / "state"), "HEADWAY_API__PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "-m", "headway", name, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        said = ""
        while not re.search(when, said):
            line = process.stderr.readline()
            assert line, said
            said += line
        os.killpg(process.pid, signal.SIGINT)
        said += process.stderr.read()
        assert process.wait(120) in KILLED, said
    assert "Traceback" not in said
    assert f"headway {name}: stopped; " in said.splitlines()[-1]
    assert left in said.splitlines()[-1]
