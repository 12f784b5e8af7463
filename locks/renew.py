"""Renew the lock files: ``make lock``. Versions and hashes only, so that any index or mirror serves them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = [
    "--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links",
    "--no-header", "--quiet",
]  # fmt: skip
TEST_EXTRAS = ("kafka", "scaler", "kubernetes", "page", "parquet", "dask", "ray", "dev")
RUN_EXTRAS = ("kafka", "scaler", "kubernetes", "page")


def main(uv: str) -> None:
    """Compile all locks; the one for running takes its versions from the one for testing."""

    def compile_(source: str, target: str, *more: str) -> None:
        subprocess.run(
            [uv, "pip", "compile", source, *OPTIONS, *more, "-o", f"locks/{target}"], cwd=HERE.parent, check=True
        )

    compile_("locks/bootstrap.in", "bootstrap.txt")
    compile_("pyproject.toml", "test.txt", *(f"--extra={e}" for e in TEST_EXTRAS))
    compile_(
        "pyproject.toml", "peers.txt", "--extra=peers"
    )  # they ask for an older pandas: never in one lock with ours
    extras = [f"--extra={e}" for e in RUN_EXTRAS]
    compile_("locks/build.in", "run.txt", "pyproject.toml", *extras, "--constraint", "locks/test.txt")


if __name__ == "__main__":
    main(sys.argv[1])
