"""Known vulnerabilities in the locked dependencies: ``python locks/audit.py PIP_AUDIT [LOCK ...]`` (``make audit``).

Exit code 1 where there are any, and where the audit itself fails. Where the vulnerability service cannot be reached at
all, or the index knows of no package whatever, that is said in one loud line and the exit code is 0, since a build must
be possible without network; with ``AUDIT=required`` it is 1. Nothing is ever left out silently.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

UNREACHABLE = (
    "ConnectionError",
    "ConnectTimeout",
    "Max retries exceeded",
    "Name or service not known",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Tunnel connection failed",
)
"""What pip-audit's words hold when nobody answers; everything else that goes wrong is a failure."""


def audit(tool: str, lock: Path) -> tuple[int, str]:
    """Return (0 clean, 1 vulnerable or failed, 2 unreachable) of one lock file, and what a person must read."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [tool, "--disable-pip", "--require-hashes", "--progress-spinner", "off", "-r", str(lock)]
        command += ["--format", "json", "--output", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(report.read_text())["dependencies"] if report.exists() and report.stat().st_size else None
    if found is None:
        words = (done.stderr or done.stdout).strip()
        if done.returncode and any(mark in words for mark in UNREACHABLE):
            return 2, f"{lock.name}: the vulnerability service cannot be reached"
        return 1, f"{lock.name}: pip-audit failed ({done.returncode}): {words[-2000:]}"
    bad = [(d["name"], d["version"], v) for d in found for v in d.get("vulns", ())]
    left_out = [d["name"] for d in found if "skip_reason" in d]
    if found and len(left_out) == len(found):  # an index that answers, and knows of no package at all
        return 2, f"{lock.name}: no vulnerability service is behind this index, it knows none of {len(found)} packages"
    lines = [
        f"{lock.name}: {name} {version}: {v['id']}, fixed in {', '.join(v['fix_versions']) or 'no version yet'}"
        for name, version, v in bad
    ]
    if left_out:
        return 1, "\n".join([*lines, f"{lock.name}: could not be audited: {', '.join(left_out)}"])
    return bool(bad), "\n".join(lines) or f"{lock.name}: {len(found)} packages, none with a known vulnerability"


def main(arguments: list[str]) -> int:
    """Audit the lock files; return the exit code."""
    tool, *locks = arguments
    outcomes = [audit(tool, Path(lock)) for lock in locks or [str(Path(__file__).parent / "run.txt")]]
    for code, text in outcomes:
        sys.stdout.write(f"!! AUDIT LEFT OUT, not passed: {text}\n" if code == 2 else f"{text}\n")
    codes = {code for code, _ in outcomes}
    if 1 in codes or (2 in codes and os.environ.get("AUDIT") == "required"):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
