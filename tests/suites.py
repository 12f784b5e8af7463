"""Run the test suites one after the other: ``python -m tests.suites [SUITE ...]`` (``make test`` runs them all).

Each suite prints its time. A peer that is missing is brought from Debian when we are root; otherwise the suites that
need it are left out, loudly. With ``CI=true`` anything missing, skipped or empty is a failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from tests.peers import needs

ROOT = Path(__file__).resolve().parent.parent
CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
PEER_MARKERS = ("kafka", "kubernetes", "browser", "postgres", "prometheus")


@dataclass(frozen=True, slots=True)
class Suite:
    """One pytest run: where, which markers, how many processes, and what it should take at most (minutes)."""

    name: str
    paths: tuple[str, ...]
    markers: str = ""
    workers: int = 0
    budget_min: float = 5


NO_PEERS = " and ".join(f"not {m}" for m in PEER_MARKERS)
SUITES = (
    Suite(
        "unit",
        ("tests/unit", "tests/architecture", "forecaster", "balancer", "headway", "docs", "README.md"),
        "not slow",
        2,
    ),
    Suite("stores", ("tests/contracts", "tests/integration", "tests/acceptance"), f"{NO_PEERS} and not slow", 2, 4),
    Suite("accuracy", ("tests/accuracy",), "not slow", 2, 6),
    Suite("kafka", ("tests",), "(kafka or postgres) and not slow and not kubernetes and not browser", 0, 10),
    Suite("acting", ("tests",), "(kubernetes or prometheus) and not slow", 0, 8),
    Suite("page", ("tests",), "browser and not slow", 0, 3),
)
DEFAULT = ("checks", "unit", "stores", "accuracy", "kafka", "acting", "page")
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports", "--no-logo"),
    ("sphinx-build", "-W", "-n", "-q", "-b", "html", "docs", "docs/_build"),
)


@dataclass(slots=True)
class Tally:
    """What happened so far."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    complaints: list[str] | None = None

    def complain(self, text: str) -> None:
        """Note something that a reader must not overlook."""
        self.complaints = [*(self.complaints or []), text]


def main() -> int:
    """Run the named suites, or all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of: checks {' '.join(s.name for s in SUITES)}")
    parser.add_argument("--coverage", action="store_true", help="measure line coverage of forecaster and balancer")
    args = parser.parse_args()
    names = args.suites or DEFAULT
    if unknown := set(names) - {"checks", *(s.name for s in SUITES)}:
        parser.error(f"no suite {', '.join(sorted(unknown))}")
    tally = Tally()
    absent = {n.marker: n for n in needs.install()} if set(names) - {"checks", "unit"} else {}
    for need in absent.values():
        hint = f"apt-get install {' '.join(need.packages)}" if need.packages else need.how
        tally.complain(f"LEFT OUT: tests marked {need.marker!r}: no {need.what}. To run them: {hint}")
    if args.coverage:
        subprocess.run([sys.executable, "-m", "coverage", "erase"], cwd=ROOT, check=True)
    began = time.monotonic()
    for name in names:
        start = time.monotonic()
        if name == "checks":
            _checks(tally)
        else:
            _pytest(next(s for s in SUITES if s.name == name), absent, tally, coverage=args.coverage)
        print(f"== {name}: {time.monotonic() - start:.0f} s", flush=True)
    if args.coverage:
        report = [sys.executable, "-m", "coverage", "report", "--include=forecaster/*,balancer/*", "--omit=*_pb2*"]
        tally.failed += subprocess.run([*report, "--fail-under=92"], cwd=ROOT, check=False).returncode != 0
    print(f"== all: {time.monotonic() - began:.0f} s")
    for text in tally.complaints or []:
        print(f"!! {text}")
    incomplete = bool(absent) or bool(tally.skipped)
    if CI and incomplete:
        print("!! with CI=true, anything missing or skipped is a failure")
        tally.failed += 1
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


def _checks(tally: Tally) -> None:
    for command in CHECKS:
        print(f"-- {' '.join(command)}", flush=True)
        path = Path(sys.executable).parent / command[0]
        done = subprocess.run([path, *command[1:]], cwd=ROOT, check=False, capture_output=True, text=True, env=_env())
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
            tally.failed += 1
            tally.complain(f"{' '.join(command)} failed")
        else:
            tally.passed += 1


def _pytest(suite: Suite, absent: dict[str, needs.Need], tally: Tally, *, coverage: bool) -> None:
    paths = [p for p in suite.paths if (ROOT / p).exists()]
    if not paths:
        return
    markers = " and ".join([f"({suite.markers})", *(f"not {m}" for m in absent)])
    print(f"-- pytest {' '.join(paths)} -m '{markers}'", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", markers, f"--junitxml={report}", "--durations=8", *paths]
        if suite.workers:
            command += ["-n", str(suite.workers), "--dist", "worksteal"]
        if coverage:
            command += ["--cov", "--cov-append", "--cov-report="]
        code = subprocess.run(command, cwd=ROOT, check=False, env=_env()).returncode
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    bad = sum(1 for c in cases if c.find("failure") is not None or c.find("error") is not None)
    skipped = sum(1 for c in cases if c.find("skipped") is not None)
    tally.failed += bad
    tally.skipped += skipped
    tally.passed += len(cases) - bad - skipped
    if code == 5 and not absent:
        tally.complain(f"suite {suite.name} holds no test")
        tally.failed += 1
    elif code not in {0, 5} and not bad:
        tally.complain(f"suite {suite.name}: pytest ended with {code}")
        tally.failed += 1


def _env() -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")}


if __name__ == "__main__":
    sys.exit(main())
