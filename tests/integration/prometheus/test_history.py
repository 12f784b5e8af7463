"""Days of a real Prometheus become days of our own, number for number."""

import subprocess
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from forecaster.ingest.prometheus import PrometheusSource, backfill
from forecaster.stores.base import SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from tests.peers.kafka import free_ports

START = datetime(2026, 11, 2, tzinfo=UTC)
MINUTES = 2 * 1440
METRIC = "kafka_topic_partition_current_offset"


@pytest.fixture
def server(tmp_path):
    """A Prometheus that has scraped a kafka_exporter every minute for two days."""
    lines = [f"# TYPE {METRIC} gauge"]
    for partition in (0, 1):
        offset = 1000
        for minute in range(MINUTES + 1):
            at = int(START.timestamp()) + 60 * minute
            lines.append(f'{METRIC}{{topic="orders",partition="{partition}"}} {offset} {at}')
            offset += arrivals(partition, minute)
    (tmp_path / "scraped").write_text("\n".join([*lines, "# EOF", ""]))
    made = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "scraped", "data")
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    (port,) = free_ports(1)
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
             "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"],
            cwd=tmp_path, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while True:
            try:
                if httpx.get(f"{url}/-/ready", timeout=60).is_success:
                    break
            except httpx.TransportError:
                pass
            assert running.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
        yield url
    finally:
        running.terminate()
        running.wait(60)


def arrivals(partition, minute):
    return 60 + 30 * partition + minute % 7


@pytest.mark.prometheus
def test_every_step_between_two_scrapes_is_exact_and_no_other_is_there(server):
    store, source = MemorySeriesStore(), PrometheusSource(server)
    backfill(store, source, "orders", START, START + timedelta(minutes=MINUTES))
    first = int(START.timestamp()) // 60
    cells = store.read(SeriesKey("orders", "arrivals", None, 60), first - 5, first + MINUTES + 5)
    assert not cells.known[:, :5].any()
    assert not cells.known[:, 5 + MINUTES :].any()
    assert cells.known.sum() >= 2 * (MINUTES - 4)
    for partition in (0, 1):
        for index in cells.known[partition].nonzero()[0]:
            assert cells.values[partition, index] == arrivals(partition, int(index) - 5)
