"""Names the code under test, so that figures of several runs are added up only where they belong together."""

from __future__ import annotations

import subprocess

from tests.chaos.bed import ROOT

WHAT = ("balancer/consumer", "balancer/leases", "balancer/moves")


def code_version(*more: str) -> str:
    """Return a name of what moves work as it is now: the trees of its rooms (and ``more``); ``+`` if not committed."""
    rooms = (*WHAT, *more)

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout

    trees = [git("rev-parse", f"HEAD:{room}").strip()[:6] for room in rooms]
    return "-".join(trees) + ("+" if git("status", "--porcelain", *rooms) else "")
