"""The pages promise no more than there is: missed goals are said, figures and tests that are named exist."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def test_every_area_with_a_missed_goal_says_what_limits_it():
    sections = re.split(r"^## ", (DOCS / "figures.md").read_text(), flags=re.M)[1:]
    missed = [s.partition("\n")[0] for s in sections if "| **no** |" in s]
    assert missed
    limits = (DOCS / "limits.md").read_text()
    anchors = {title: "figures.md#" + re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in missed}
    assert [title for title, anchor in anchors.items() if f"[{title}]({anchor})" not in limits] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_file_of_figures_is_there_or_said_to_be_written_by_a_run(page):
    for written, name in re.findall(r"(writes\s+`)?benchmarks/results/(\w+\.json)", page.read_text()):
        assert written or (ROOT / "benchmarks" / "results" / name).exists(), name


def test_the_figures_of_forecasts_hold_what_is_promised_of_them():
    found = json.loads((ROOT / "benchmarks" / "results" / "forecast.json").read_text())
    promised = {"m4_owa", "m4_ms_per_series", "traces_mase", "lead_wape", "coverage", "seconds_1000", "seconds_10000",
                "update_10000_ms", "retrain_1000_s", "vs_mstl"}  # fmt: skip
    assert promised <= found.keys()
    sets = found["vs_mstl"]["sets"]
    assert len(sets) >= 7
    for figure in ("mase", "pinball", "seconds_per_series"):
        for name in ("blend", "mstl"):
            mean = sum(of[figure][name] for of in sets.values()) / len(sets)
            assert found["vs_mstl"][figure][name] == pytest.approx(mean)


def test_every_threat_names_tests_that_are_there():
    rows = re.findall(r"^\| .* \| .* \| (.*) \|$", (DOCS / "security.md").read_text(), re.M)[1:]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert named, row
        assert all((ROOT / path).exists() for path in named), named
