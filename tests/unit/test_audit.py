"""The audit of locked dependencies says what it found, and never passes what it did not look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[2] / "locks" / "audit.py"
CLEAN = {"name": "httpx", "version": "0.28.1", "vulns": []}
HOLE = {"name": "httpx", "version": "0.1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.2"]}]}
SKIPPED = {"name": "headway", "skip_reason": "not on the index"}


def audit(tmp_path, found, code=0, words="", **environ):
    """Run the audit over a pip-audit that answers so."""
    tool = tmp_path / "pip-audit"
    report = "" if found is None else json.dumps({"dependencies": found})
    tool.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        f"if {report!r}: pathlib.Path(sys.argv[sys.argv.index('--output') + 1]).write_text({report!r})\n"
        f"sys.stderr.write({words!r})\nsys.exit({code})\n"
    )
    tool.chmod(0o755)
    command = [sys.executable, str(AUDIT), str(tool), str(tmp_path / "run.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environ)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("found", "code", "words", "exit_code", "said"),
    [
        ([CLEAN], 0, "", 0, "1 packages, none"),
        ([CLEAN, HOLE], 1, "Found 1 known vulnerability", 1, "httpx 0.1: PYSEC-1, fixed in 0.2"),
        ([CLEAN, SKIPPED], 0, "", 1, "could not be audited: headway"),
        ([SKIPPED, SKIPPED], 0, "", 0, "AUDIT LEFT OUT, not passed: run.txt: no vulnerability service"),
        (
            None,
            1,
            "requests.exceptions.ConnectionError: Max retries exceeded with url",
            0,
            "AUDIT LEFT OUT, not passed",
        ),
        (None, 1, "hashes do not match", 1, "pip-audit failed (1): hashes do not match"),
        (None, 0, "", 1, "pip-audit failed (0)"),
    ],
)
def test_each_end_of_an_audit(tmp_path, found, code, words, exit_code, said):
    assert audit(tmp_path, found, code, words)[0] == exit_code
    assert said in audit(tmp_path, found, code, words)[1]


def test_where_the_audit_is_required_an_unreachable_service_is_a_failure(tmp_path):
    code, said = audit(tmp_path, None, 1, "Temporary failure in name resolution", AUDIT="required")
    assert (code, "LEFT OUT" in said) == (1, True)


def test_where_the_audit_is_required_an_index_that_knows_no_package_is_a_failure(tmp_path):
    assert audit(tmp_path, [SKIPPED], AUDIT="required")[0] == 1
