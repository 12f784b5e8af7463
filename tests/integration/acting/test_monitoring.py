"""Alert rules and dashboard: judged by Prometheus' own tool, over metrics that Headway really exports."""

import itertools
import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from headway.status.board import Board
from headway.status.group_metrics import GroupMetrics
from headway.status.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
RULES = [r for g in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"] for r in g["rules"]]
EXPRESSIONS = [t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]]


def promtool(*arguments, cwd):
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def exported():
    text = Metrics().text(GroupMetrics(Board(), datetime(2026, 1, 5, tzinfo=UTC))).decode()
    return {
        name
        for metric, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
        for name in ([f"{metric}_bucket", f"{metric}_count", f"{metric}_sum"] if kind == "histogram" else [metric])
    }


@pytest.mark.prometheus
def test_the_rules_are_rules_and_fire_when_they_should(tmp_path):
    spec = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(spec))
    code, said = promtool("check", "rules", "full.yaml", cwd=tmp_path)
    assert code == 0, said
    for rule in spec["groups"][0]["rules"]:
        del rule["annotations"]  # the tests look at who fires, not at the words
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    tests = (MONITORING / "alerts.test.yaml").read_text()
    (tmp_path / "tests.yaml").write_text(tests)
    code, said = promtool("test", "rules", "tests.yaml", cwd=tmp_path)
    assert code == 0, said
    missed = {r["alert"] for r in RULES} - set(re.findall(r"alertname: (\w+)\s+exp_alerts", tests))
    assert not missed, "every alert is seen to fire"


@pytest.mark.prometheus
def test_the_dashboard_asks_what_prometheus_understands(tmp_path):
    rules = [{"record": f"panel:{i}", "expr": e.replace("$group", ".+")} for i, e in enumerate(EXPRESSIONS)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    code, said = promtool("check", "rules", "rules.yaml", cwd=tmp_path)
    assert code == 0, said


def test_every_metric_that_is_asked_for_is_exported():
    asked = {m for e in [*EXPRESSIONS, *(r["expr"] for r in RULES)] for m in re.findall(r"headway_\w+", e)}
    assert len(asked) > 12
    assert asked <= exported()


def test_the_dashboard_is_whole_and_nothing_overlaps():
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    assert all(p["description"] and p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    for one, other in itertools.combinations([p["gridPos"] for p in panels], 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


def test_every_alert_has_its_section_in_the_runbook():
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    for rule in RULES:
        assert f"## {rule['alert']}\n" in runbook
        assert rule["annotations"]["runbook"] == f"runbook.html#{rule['alert'].lower()}"
