"""`docs/field-reports.md` names tests that are there, and each test names the report's id."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| (\w*) \| .* \| `(\S+)::(\w+)` \|$", (ROOT / "docs" / "field-reports.md").read_text(), re.M)


def test_every_report_has_a_test_that_is_there_and_names_it():
    assert len({number for number, _, _ in ROWS if number}) == 113
    current = ""
    for number, file, name in ROWS:
        current = number or current
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), f"{current}: {file} has no {name}"
        assert re.search(rf"(?<![a-z0-9]){current.lower()}(?![a-z0-9])", name.replace("_", " ")), f"{name}: {current}"
