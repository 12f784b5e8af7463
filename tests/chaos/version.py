"""Names the code under test, so that figures of several runs are added up only where they belong together."""

from __future__ import annotations

import subprocess
from hashlib import sha1

from tests.chaos.bed import ROOT

WHAT = ("balancer/consumer", "balancer/leases", "balancer/moves")
SPLITS = ("splitting.py", "routed_topic.py", "lanes.py", "gates.py")
"""Files of those rooms that are about splits: who measures them says so."""


def code_version(*more: str) -> str:
    """Return a name of what moves work as it is now: the files of its rooms; ``+`` where something is not committed.

    ``more`` are further rooms, of what splits work; then the files about splits count as well.
    """
    left_out = () if more else SPLITS

    def git(*arguments: str) -> list[str]:
        command = ["git", *arguments, *WHAT, *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if not line.endswith(left_out)]

    files = sha1("\n".join(git("ls-tree", "-r", "HEAD")).encode(), usedforsecurity=False)
    return files.hexdigest()[:12] + ("+" if git("status", "--porcelain") else "")
