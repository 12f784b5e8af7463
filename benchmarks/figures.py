"""Where a benchmark leaves its figures: one JSON file, with the machine, the versions and the command."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep_figures(name: str, figures: dict[str, Any], packages: Iterable[str] = ("numpy",)) -> Path:
    """Write ``benchmarks/results/NAME.json`` whole or not at all, and return its path."""
    document = {
        **figures,
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in sorted(packages)}},
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "at": datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z"),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    part.replace(path)
    return path


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, and how busy it was with other things."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"processor": model, "cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)}
