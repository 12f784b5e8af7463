"""The demo as a newcomer runs it, twice, and how soon the terminal answers: ``python -m benchmarks.demo``.

The rivals are the rules that the demo itself plays beside Headway on the same arrivals.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import keep_figures

ROOT = Path(__file__).resolve().parent.parent


def timed(*command: str, environ: dict[str, str] | None = None) -> tuple[float, str]:
    """Run a command; return seconds and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (environ or {}),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began, done.stdout.decode()


def main() -> None:
    """Measure and keep."""
    python = sys.executable
    figures: dict[str, Any] = {
        "import_cli_s": statistics.median(timed(python, "-c", "import headway.cli")[0] for _ in range(5)),
        "help_s": statistics.median(timed(python, "-m", "headway", "--help")[0] for _ in range(5)),
    }
    with tempfile.TemporaryDirectory() as folder:
        environ = {"HEADWAY_STATE": folder}
        for name in ("first_s", "second_s"):
            figures[name], printed = timed(
                python, "-m", "headway", "demo", "--once", "--json", "--port", "0", environ=environ
            )
            figures["run"] = json.loads(printed)
    for key, value in figures.items():
        print(f"{key:14} {value if not isinstance(value, float) else round(value, 3)}")
    keep_figures("demo", figures)


if __name__ == "__main__":
    main()
