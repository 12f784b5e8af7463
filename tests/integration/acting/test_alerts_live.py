"""What fires while a real `headway serve` is in trouble: its own metrics of each state, judged by Prometheus' own tool.

A state is looked at twice; what grew between the looks goes on growing, everything else stays, and the rules see hours
of it. So every alert here is one that an operator would have got, and none that he would not.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from forecaster.stores.embedded_process import find_binary
from tests.peers.prometheus import Prometheus
from tests.peers.redis import Server
from tests.peers.service import Service, serving

pytestmark = pytest.mark.prometheus

SPEC = yaml.safe_load((Path(__file__).resolve().parents[3] / "deploy/monitoring/alerts.yaml").read_text())["spec"]
CONFIG = """
state = "{folder}/state"
[store]
url = "{store}"
[prometheus]
url = "{source}"
[models]
path = "{folder}/models"
[jobs]
act_every = "1s"
[groups.orders]
topics = ["orders"]
step = "5s"
snapshot_max_age = "10s"
capacity_per_member = 10.0
cap_at_partitions = false
actuator = {{ kind = "process", command = ["sleep", "1000"] }}
"""
SAMPLE = re.compile(r"^(headway_\w+?)(\{.*\})? ([-+.eE\d]+)$", re.M)
AT = "7h"
"""The slowest rule waits six hours."""


def look(service: Service) -> tuple[float, dict[str, float]]:
    """Return when it was, and the value of each series, without the times of what happened."""
    status, text = service.ask("/metrics")
    assert status == 200
    found = {name + (labels or ""): float(value) for name, labels, value in SAMPLE.findall(text)}
    return time.monotonic(), {k: v for k, v in found.items() if "_created" not in k and "_timestamp_" not in k}


def runs(series: dict[str, float], job: str) -> float | None:
    """Return how often a job has run; None where it never has."""
    found = [v for k, v in series.items() if k.startswith("headway_job_runs_total{") and f'job_name="{job}"' in k]
    return sum(found) if found else None


def firing(folder: Path, service: Service, between: Callable[[], object] = lambda: None) -> set[str]:
    """Return the alerts that fire when what the service shows now goes on for hours."""
    since, first = look(service)
    between()
    for job, more in (("act", 3), ("record", 1)):
        before = runs(first, job)
        if before is not None:
            service.wait_for(lambda job=job, least=before + more: (runs(look(service)[1], job) or 0) >= least)
    until, last = look(service)
    return judged(folder, [row(k, v, first.get(k, 0.0), until - since) for k, v in last.items()])


def row(name: str, value: float, before: float, seconds: float) -> dict[str, str]:
    grew = value - before
    ages = "_age_seconds{" in name and grew > 0 and value > 0.9 * seconds  # else it was refreshed between the looks
    slope = grew / seconds * 60 if ages or "_total" in name or "_bucket" in name else 0.0
    return {"series": name, "values": f"{value:f}+{slope:f}x480"}


def judged(folder: Path, rows: list[dict[str, str]]) -> set[str]:
    (folder / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    names = [rule["alert"] for group in SPEC["groups"] for rule in group["rules"]]
    question = 'max by (alertname) (ALERTS{alertstate="firing"})'
    test = {"interval": "1m", "input_series": rows, "promql_expr_test": [{"expr": question, "eval_time": AT}]}
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in said, said  # nothing was expected: it says what there is
    return set(re.findall(rf'alertname="({"|".join(names)})"', said))


def scrape(prometheus: Prometheus, rate: float = 25.0) -> None:
    """Lay down an hour of scrapes, and the next half hour: two partitions, all of it committed at once."""
    now = time.time() // 5 * 5
    for partition in ("0", "1"):
        labels = {"topic": "orders", "partition": partition}
        points = [(now + 5 * i, 1e6 + 5 * rate * i) for i in range(-720, 360)]
        prometheus.put("kafka_topic_partition_current_offset", labels, *points)
        prometheus.put("kafka_topic_partition_oldest_offset", labels, *[(at, 0.0) for at, _ in points])
        prometheus.put("kafka_consumergroup_current_offset", {**labels, "consumergroup": "orders"}, *points)


def problems(service: Service) -> set[str]:
    return set(service.ask("/v1/groups/orders")[1]["problems"])


WELL = {"HeadwayPlanHeld", "HeadwayForecastDemoted"}
"""A Prometheus does not say how many members there are, so plans hold; and no forecast has been scored yet."""
MADE_UP = {"HeadwayBehindPlan", "HeadwayForecastShort", "HeadwaySplitAlarm"}
"""Seen to fire on series of ``alerts.test.yaml`` alone: they need members that do not come, days, or a lost record."""


def test_each_trouble_fires_its_alerts_and_no_others(tmp_path):
    config, seen = tmp_path / "headway.toml", set(WELL)
    with Server(find_binary(), tmp_path / "redis") as store, Prometheus() as source:
        scrape(source)
        config.write_text(text := CONFIG.format(folder=tmp_path, store=store.url, source=source.url))
        with serving(tmp_path) as service:
            service.ready()
            service.wait_for(lambda: service.ask("/v1/groups/orders")[1]["ages"].get("plan") is not None)
            service.wait_for(lambda: not problems(service))
            assert firing(tmp_path, service) == WELL

            config.write_text(text + "max_replicas = 'many'\n")
            service.wait_for(lambda: problems(service) == {"settings"})
            assert firing(tmp_path, service) == WELL | {"HeadwayInputFails"}
            config.write_text(text)
            service.wait_for(lambda: not problems(service))

            source.fail_with = (503, '{"status": "error", "errorType": "unavailable", "error": "starting"}')
            service.wait_for(lambda: problems(service) == {"arrivals"})
            silent = firing(tmp_path, service)
            assert silent == WELL | {"HeadwayArrivalsMissing", "HeadwayJobFails"}
            source.fail_with = None
            service.wait_for(lambda: not problems(service))

            store.kill()
            service.wait_for(lambda: {"plan", "arrivals"} <= problems(service))
            asked = lambda: [service.ask("/v1/groups/orders/series?name=arrivals") for _ in range(20)]  # noqa: E731
            dead = firing(tmp_path, service, asked)
            assert dead == silent | {"HeadwayPlanOld", "HeadwayInputFails", "HeadwayApiErrors"}
        with serving(tmp_path) as service:  # it comes up while the store is still away
            service.wait_for(lambda: {"store", "plan"} <= problems(service))
            unborn = firing(tmp_path, service) - {"HeadwayArrivalsMissing"}  # said once the first look was not kept
            assert unborn == {"HeadwayNoPlan", "HeadwayInputFails", "HeadwayJobFails", "HeadwayForecastDemoted"}
    nobody = judged(tmp_path, [])
    assert nobody == {"HeadwayAbsent"}
    seen |= silent | dead | unborn | nobody
    assert seen | MADE_UP == {rule["alert"] for group in SPEC["groups"] for rule in group["rules"]}
