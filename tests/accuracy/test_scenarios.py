"""No scenario may become worse than its committed figures; the failure names the scenario and the figure."""

from __future__ import annotations

import json

import pytest

from tests.accuracy.scenarios import FIGURES, SCENARIOS, measure

RELATIVE = 0.03
"""Errors may be this much worse than committed: what other library versions and threads do to boosted trees."""

COVERAGE = 0.02
"""Coverage may be this much further from its level."""

COMMITTED = json.loads(FIGURES.read_text())


def test_every_scenario_has_committed_figures() -> None:
    assert set(COMMITTED) == set(SCENARIOS), "python -m tests.accuracy.scenarios ID measures a new one"


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_scenario_became_worse(name: str) -> None:
    now, before = measure(SCENARIOS[name]), COMMITTED[name]
    worse = []
    for figure, was in before.items():
        got = now[figure]
        assert got is not None, f"{name}: {figure} is gone"
        if figure.startswith("coverage_"):
            level = float(figure.removeprefix("coverage_"))
            if abs(got - level) > abs(was - level) + COVERAGE:
                worse.append(f"{figure} {got:.4f} (was {was:.4f})")
        elif got > was * (1 + RELATIVE):
            worse.append(f"{figure} {got:.4f} (was {was:.4f})")
    assert not worse, f"{name} became worse: {', '.join(worse)}; review, then python -m tests.accuracy.scenarios {name}"
