"""What the real peers need on this machine, how to see it, and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Need:
    """A program that a suite needs.

    ``marker`` is the pytest marker of the tests that cannot run without it; ``packages`` are Debian's.
    """

    marker: str
    what: str
    found: Callable[[], bool]
    packages: tuple[str, ...] = ()
    how: str = ""


def _has(*programs: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(p) for p in programs)


def _go() -> bool:
    return shutil.which("go") is not None or Path("/usr/local/go/bin/go").exists()


def _postgres() -> bool:
    return bool(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")))


NEEDS = (
    Need("redis", "redis-server", _has("redis-server"), ("redis-server",)),
    Need("timeseries", "redis-server", _has("redis-server"), ("redis-server",)),
    Need("kafka", "Java 17 and Maven", _has("java", "mvn"), ("openjdk-17-jre-headless", "maven")),
    Need("postgres", "PostgreSQL", _postgres, ("postgresql",)),
    Need("prometheus", "promtool", _has("promtool"), ("prometheus",)),
    Need("browser", "Chromium", _has("chromium"), ("chromium",)),
    Need(
        "kubernetes",
        "Go 1.25 or newer",
        _go,
        (),
        "install Go from your distribution or go's own site, then put it on PATH",
    ),
)


def missing(*markers: str) -> list[Need]:
    """Return the needs that this machine does not meet, of these markers or of all."""
    return [n for n in NEEDS if (not markers or n.marker in markers) and not n.found()]


def install(*markers: str) -> list[Need]:
    """Bring what Debian has, when we are root and apt is there; return what is missing still."""
    packages = sorted({p for n in missing(*markers) for p in n.packages})
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing peers from Debian: {' '.join(packages)}", flush=True)
        quiet = {"stdout": subprocess.DEVNULL, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)  # type: ignore[call-overload]
        # policy-rc.d keeps Debian from starting the daemons: tests start their own, on ports of their own.
        policy = Path("/usr/sbin/policy-rc.d")
        ours = not policy.exists()
        if ours:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            subprocess.run(
                ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=False, **quiet
            )  # type: ignore[call-overload]
        finally:
            if ours:
                policy.unlink()
    return missing(*markers)
