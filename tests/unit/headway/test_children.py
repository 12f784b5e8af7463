"""Children do their work, and do not outlive whom they do it for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.work.children import Children, Overdue

PARENT = """
import os, sys, threading, time
from headway.work.children import Children
if __name__ == "__main__":
    children = Children(1, 60, "sleep")
    print(children.run(os.getpid), flush=True)
    threading.Thread(target=children.run, args=(time.sleep, 50), daemon=True).start()
    time.sleep(50)
"""


def lives(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert lives(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lives(child)


def blocked() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_child_is_deaf_to_ctrl_c_from_its_first_instruction_on():
    """A terminal sends it to all; one that is still importing would fill the screen with a traceback."""
    children = Children(1, 60.0, "a look")
    try:
        assert children.run(blocked)
        assert not blocked()
    finally:
        children.close()


def test_a_task_that_takes_too_long_is_ended_and_the_next_gets_a_new_child():
    children = Children(1, 5.0, "sleep")
    try:
        first = children.run(os.getpid)
        with pytest.raises(Overdue, match="sleep took longer than 5 s"):
            children.run(time.sleep, 60)
        assert not lives(first)
        assert children.run(os.getpid) != first
    finally:
        children.close()
