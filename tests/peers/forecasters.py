"""An environment in which every forecasting library of the extra ``peers`` is installed.

They ask for an older pandas than ours, so they live in an environment of their own, made once from ``locks/peers.txt``
and kept under ``.peers/``; Headway itself is taken from the checkout.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "locks" / "peers.txt"


def python() -> Path:
    """Return the environment's interpreter; make the environment if it is not there yet.

    Raises
    ------
    RuntimeError
        If a library cannot be installed; with what uv said.
    """
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / ".peers" / f"forecasters-{digest}"
    done, interpreter = folder / ".done", folder / "bin" / "python"
    if not done.exists():
        uv = Path(sys.executable).parent / "uv"
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
        _run(uv, "pip", "install", "--quiet", "--python", interpreter, "--require-hashes", "-r", LOCK)
        done.touch()
    return interpreter


def headway(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of this checkout's Headway in that environment."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [str(python()), "-m", "headway", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def _run(*command: object) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[1]}: {done.stderr.strip()[-2000:]}")
