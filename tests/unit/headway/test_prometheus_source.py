"""`[prometheus]` instead of a cluster: scraped offsets become steps, lag and a plan; its silence is a problem."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import timedelta

import pytest
from pydantic import ValidationError

from balancer.actuators.board import ScalerBoard
from forecaster.stores.base import SeriesKey
from headway import assembly, wiring
from headway.configuration.settings import Settings, load
from headway.errors import HeadwayError
from headway.operation.doctor import examine
from tests.peers.prometheus import Prometheus
from tests.unit.headway.conftest import NOW

GROUP = {"topics": ["orders"], "capacity_per_member": 10.0, "cap_at_partitions": False}
MINUTE = timedelta(minutes=1)


def scrape(prometheus: Prometheus, at, minute: int) -> None:
    """A minute's scrape of two partitions: 600 and 300 records arrive in it, the group is 30 behind on the first."""
    for partition, each in (("0", 600), ("1", 300)):
        labels = {"topic": "orders", "partition": partition}
        point = (at.timestamp(), 1000 + each * minute)
        prometheus.put("kafka_topic_partition_current_offset", labels, point)
        prometheus.put("kafka_topic_partition_oldest_offset", labels, (at.timestamp(), 0))
        committed = (at.timestamp(), point[1] - (30 if partition == "0" else 0))
        prometheus.put("kafka_consumergroup_current_offset", {**labels, "consumergroup": "orders"}, committed)


def test_scraped_offsets_are_recorded_and_planned_by(application):
    clock = [NOW]
    application.clock = application.store._clock = lambda: clock[0]
    application.board.remove("bills")
    with Prometheus() as prometheus, ExitStack() as stack:
        left = {"properties": {"client.id": "headway"}}  # of a cluster that is asked no longer
        application.settings = Settings(groups={"orders": GROUP}, prometheus={"url": prometheus.url}, kafka=left)
        jobs = assembly.assemble(application, stack, ScalerBoard())
        for minute in range(8):
            scrape(prometheus, clock[0] - timedelta(seconds=20), minute)
            assert jobs.run_now("record").ok
            clock[0] += MINUTE
        last = int(clock[0].timestamp()) // 60 - 3
        cells = application.store.read(SeriesKey("orders", "arrivals"), last - 4, last + 1)
        assert cells.known.all()
        assert cells.values.tolist() == [[600] * 5, [300] * 5]
        lag = application.store.read(SeriesKey("orders", "lag", "orders"), last, last + 1)
        assert lag.values[:, -1].tolist() == [30, 0]
        jobs.run_now("forecast", "orders")
        assert jobs.run_now("plan", "orders").ok
        snapshot = application.view("orders").snapshot
        assert snapshot.arrival_rate == (15.0, 1.0)
        assert application.view("orders").problems.get("arrivals") is None

        prometheus.fail_with = (503, '{"status": "error", "errorType": "unavailable", "error": "starting"}')
        with pytest.raises(HeadwayError, match="starting"):
            raise HeadwayError(jobs.run_now("record").detail)
        assert "starting" in application.view("orders").problems["arrivals"]


def test_doctor_looks_at_it_as_at_a_cluster(application):
    with Prometheus() as prometheus:
        scrape(prometheus, NOW - timedelta(seconds=20), 1)
        settings = Settings(groups={"orders": GROUP}, prometheus={"url": prometheus.url})
        with closing(wiring.open_prometheus(settings, lambda: NOW)) as source:
            found = {c.name: c for c in examine(settings, lambda: application.store, lambda: source)}
    assert found["topic orders"].ok and "2 partitions answer" in found["topic orders"].detail
    assert prometheus.url in found["brokers"].detail


def test_one_source_and_its_token_from_a_file_or_the_environment(tmp_path):
    with pytest.raises(ValidationError, match="offsets come from one of them"):
        Settings(prometheus={"url": "http://p:9090"}, kafka={"bootstrap_servers": "b:9092"})
    assert wiring.opener(Settings()) is None
    left = Settings(prometheus={"url": "http://p:9090"}, kafka={"properties": {"client.id": "headway"}})
    source = wiring.opener(left)
    assert source is not None and source.func is wiring.open_prometheus
    file = tmp_path / "headway.toml"
    file.write_text('[prometheus]\nurl = "https://p:9090"\n')
    settings = load(file, {"HEADWAY_PROMETHEUS__TOKEN": "hush"})
    assert "hush" not in repr(settings)
    with closing(wiring.open_prometheus(settings)) as source:
        assert source._http.headers["Authorization"] == "Bearer hush"
