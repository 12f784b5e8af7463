"""Prometheus as a source: the exporters' own names, failures that are never zero, and months as history."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest.prometheus import PrometheusSource, backfill, one_series
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from tests.peers.prometheus import Prometheus

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
T = NOW.timestamp()
GROUP = GroupId("billing")


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    with Prometheus() as running:
        yield running


def source(prometheus: Prometheus, **more: object) -> closing[PrometheusSource]:
    return closing(PrometheusSource(prometheus.url, clock=lambda: NOW, **more))  # type: ignore[arg-type]


def publish(prometheus: Prometheus, exporter: str) -> None:
    """Two partitions with ends 120 and 70, starts 20 and 0; the group has committed 100 of the first."""
    if exporter == "kafka_exporter":
        for p, end, start in (("0", 120, 20), ("1", 70, 0)):
            prometheus.put("kafka_topic_partition_current_offset", {"topic": "orders", "partition": p}, (T - 20, end))
            prometheus.put("kafka_topic_partition_oldest_offset", {"topic": "orders", "partition": p}, (T - 20, start))
        labels = {"consumergroup": GROUP, "topic": "orders"}
        prometheus.put("kafka_consumergroup_current_offset", {**labels, "partition": "0"}, (T - 20, 100))
        prometheus.put("kafka_consumergroup_current_offset", {**labels, "partition": "1"}, (T - 20, -1))
    elif exporter == "kminion":
        for p, end, start in (("0", 120, 20), ("1", 70, 0)):
            labels = {"topic_name": "orders", "partition_id": p}
            prometheus.put("kminion_kafka_topic_partition_high_water_mark", labels, (T - 20, end))
            prometheus.put("kminion_kafka_topic_partition_low_water_mark", labels, (T - 20, start))
        labels = {"topic_name": "orders", "partition_id": "0", "group_id": GROUP}
        prometheus.put("kminion_kafka_consumer_group_topic_partition_lag", labels, (T - 20, 20))
    elif exporter == "kafka-lag-exporter":
        for p, end, start in (("0", 120, 20), ("1", 70, 0)):
            labels = {"cluster_name": "main", "topic": "orders", "partition": p}
            prometheus.put("kafka_partition_latest_offset", labels, (T - 20, end))
            prometheus.put("kafka_partition_earliest_offset", labels, (T - 20, start))
        labels = {"cluster_name": "main", "group": GROUP, "topic": "orders", "partition": "0", "client_id": "c-1"}
        prometheus.put("kafka_consumergroup_group_offset", labels, (T - 20, 100))
    else:
        for broker in ("kafka-0", "kafka-1"):  # every replica publishes
            for p, end, start in (("0", 120, 20), ("1", 70, 0)):
                labels = {"topic": "orders", "partition": p, "strimzi_io_name": broker}
                prometheus.put("kafka_log_log_logendoffset", labels, (T - 20, end))
                prometheus.put("kafka_log_log_logstartoffset", labels, (T - 20, start))


@pytest.mark.parametrize("exporter", ["kafka_exporter", "kminion", "kafka-lag-exporter", "strimzi-jmx"])
def test_each_exporter_is_found_by_its_own_names(prometheus: Prometheus, exporter: str) -> None:
    publish(prometheus, exporter)
    with source(prometheus) as reads:
        reading = reads.read(["orders"], [GROUP])
    first, second = (reading.samples[TopicPartition("orders", p)] for p in (0, 1))
    assert (first.log_start_offset, first.log_end_offset) == (20, 120)
    assert (second.log_start_offset, second.log_end_offset) == (0, 70)
    assert first.at == NOW - timedelta(seconds=20)  # when it was scraped, not when we asked
    assert first.committed == {GROUP: None if exporter == "strimzi-jmx" else 100}
    assert second.committed == {GROUP: None}
    assert reading.partitions == {"orders": 2}


def test_a24_what_is_not_an_answer_is_an_error_never_zero(prometheus: Prometheus) -> None:
    publish(prometheus, "kafka_exporter")
    with source(prometheus, exporter="kafka_exporter") as reads:
        for status, body, error in (
            (503, "upstream is away", SourceUnavailable),
            (500, "<html>", SourceUnavailable),
            (200, "not json", SourceUnavailable),
            (200, '{"status":"success"}', SourceUnavailable),
            (503, '{"status":"error","errorType":"timeout","error":"query timed out"}', SourceUnavailable),
            (401, "", SourceRefused),
            (400, '{"status":"error","errorType":"bad_data","error":"parse error"}', SourceRefused),
        ):
            prometheus.fail_with = (status, body)
            with pytest.raises(error):
                reads.read(["orders"], [])
    with (
        closing(PrometheusSource("http://127.0.0.1:1", clock=lambda: NOW)) as nobody,
        pytest.raises(SourceUnavailable, match=r"http://127\.0\.0\.1:1 does not answer"),
    ):
        nobody.read(["orders"], [])


def test_a11_series_that_are_not_fresh_are_no_answer(prometheus: Prometheus) -> None:
    labels = {"topic": "orders", "partition": "0"}
    prometheus.put("kafka_topic_partition_current_offset", labels, (T - 1000, 120))
    prometheus.put("kafka_topic_partition_current_offset", {"topic": "alive", "partition": "0"}, (T - 10, 5))
    with source(prometheus) as reads:
        reading = reads.read(["orders", "alive"], [])
    assert set(reading.samples) == {TopicPartition("alive", 0)}
    assert "check that the exporter runs" in reading.failures[TopicPartition("orders", 0)]


def test_unknown_topics_and_exporters_are_refused_by_name(prometheus: Prometheus) -> None:
    with source(prometheus) as reads, pytest.raises(SourceRefused, match="knows no offsets of orders; tried kafka_"):
        reads.read(["orders"], [])
    with pytest.raises(SourceRefused, match="no exporter 'burrow'; there are kafka_exporter"):
        PrometheusSource(prometheus.url, exporter="burrow")


def test_a_password_in_the_address_is_sent_and_never_said() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return httpx.Response(503)

    where = "http://ann:hunter%402@127.0.0.1:9090"
    with closing(PrometheusSource(where, clock=lambda: NOW, transport=httpx.MockTransport(answer))) as reads:
        with pytest.raises(SourceUnavailable) as away:
            reads.read(["orders"], [])
        assert reads.url == "http://127.0.0.1:9090"
    assert set(asked) == {"Basic " + b64encode(b"ann:hunter@2").decode()}
    assert "hunter" not in str(away.value)


def test_a_dot_in_a_topic_is_a_dot_and_values_that_are_no_numbers_are_left_out(prometheus: Prometheus) -> None:
    for topic in ("a.b", "aXb"):
        prometheus.put("kafka_topic_partition_current_offset", {"topic": topic, "partition": "0"}, (T - 5, 7))
    prometheus.put(
        "kafka_topic_partition_current_offset", {"topic": "a.b", "partition": "1"}, (T - 5, float("nan")), (T - 35, 3)
    )
    with source(prometheus) as reads:
        reading = reads.read(["a.b"], [])
    assert {tp: s.log_end_offset for tp, s in reading.samples.items()} == {
        TopicPartition("a.b", 0): 7,
        TopicPartition("a.b", 1): 3,
    }


def test_months_of_scrapes_become_history_and_what_was_not_scraped_a_gap(prometheus: Prometheus) -> None:
    rng = np.random.default_rng(0)
    start = NOW - timedelta(days=2)
    seconds = np.arange(0, 2 * 86_400, 30.0) + 11.0
    rate = 5 + 4 * np.sin(seconds / 86_400 * 2 * np.pi)
    ends = np.concatenate([[0], np.cumsum(rng.poisson(rate[:-1] * 30))])
    down = (seconds > 40_000) & (seconds < 44_000)  # the exporter was away
    renewed = seconds > 90_000  # and the topic was made again
    ends = np.where(renewed, ends - ends[np.argmax(renewed)], ends)
    points = [(float(start.timestamp() + s), float(e)) for s, e, d in zip(seconds, ends, down, strict=True) if not d]
    prometheus.put("kafka_topic_partition_current_offset", {"topic": "orders", "partition": "0"}, *points)
    store = MemorySeriesStore(clock=lambda: NOW)
    with source(prometheus) as reads:
        done = backfill(store, reads, "orders", start, NOW)
    assert (done.steps, done.partitions) == (2880, 1)
    first = int(start.timestamp()) // 60
    cells = store.read(SeriesKey("orders", "arrivals"), first, first + 2880)
    missing = np.flatnonzero(~cells.known[0])
    assert set(missing) == {0, *range(40_000 // 60, 44_000 // 60 + 1), 1499, 1500, 2879}
    truth = np.interp(np.arange(2881) * 60.0, seconds, np.concatenate([[0], np.cumsum(np.maximum(np.diff(ends), 0))]))
    error = np.abs(cells.values[0] - np.diff(truth))[cells.known[0]]
    assert error.max() <= 1.0  # whole records out of interpolated ones
    assert done.known == pytest.approx(1 - len(missing) / 2880)


def test_two_publishers_of_one_counter_are_not_interleaved() -> None:
    long = (np.array([0.0, 30.0, 60.0, 300.0, 330.0]), np.array([0, 30, 60, 300, 330]))
    stale = (np.array([10.0, 40.0, 150.0, 180.0]), np.array([0, 20, 150, 180]))
    times, values = one_series([stale, long], apart_s=60)
    assert times.tolist() == [0, 30, 60, 150, 180, 300, 330]
    assert values.tolist() == [0, 30, 60, 150, 180, 300, 330]
