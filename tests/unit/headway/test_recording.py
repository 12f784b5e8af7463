"""The record job: what it reads is written, what it cannot read is said to the groups that it concerns."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest import kafka, sampler
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.ingest.bias import RecordShare
from forecaster.ingest.recorder import Recorder
from forecaster.stores.base import SeriesKey
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.settings import Settings
from headway.errors import HeadwayError
from headway.status.board import group_document
from headway.work.discovery import Discovery
from headway.work.learned_series import LearnedSeries
from headway.work.recording import record_job
from headway.work.workshop import Recording
from tests.unit.headway.conftest import NOW

GROUPS = {GroupId("orders"): ("orders",), GroupId("bills"): ("bills",)}


class Source:
    """Answers with what it is told to."""

    def __init__(self):
        self.reading, self.error = OffsetReading({}), None

    def read(self, topics, groups):
        if self.error is not None:
            raise self.error
        return self.reading

    def kind_of(self, group):
        return "share"

    def close(self):
        pass


def sample(at, end):
    return OffsetSample(at, 0, end, {GroupId("orders"): end})


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def job(application, source):
    return record_job(application, Recorder(application.store, source, GROUPS, clock=application.clock), GROUPS)


@pytest.mark.parametrize("error", [SourceRefused("wrong password for orders"), SourceUnavailable("no broker answers")])
def test_a_source_that_refuses_or_is_away_is_said_by_api_and_page(application, client, source, job, error):
    source.error = error
    with pytest.raises(HeadwayError, match=str(error)):
        job()
    for group in GROUPS:
        body = client.get(f"/v1/groups/{group}").json()
        assert body["problems"] == {"arrivals": str(error)}
        assert body["state"] == "attention"
    source.error = None
    source.reading = OffsetReading({TopicPartition(t, 0): sample(NOW, 5) for t in ("orders", "bills")})
    job()
    assert client.get("/v1/groups/orders").json()["problems"] == {}


def test_what_one_topic_does_not_answer_concerns_its_groups_alone(application, source, job):
    away = TopicPartition("bills", 0)
    source.reading = OffsetReading({TopicPartition("orders", 0): sample(NOW, 5)}, {away: "bills does not exist"})
    assert job() == "1 of 1 partitions, 1 steps"
    views = {group: group_document(application.view(group), NOW) for group in GROUPS}
    assert views["orders"]["problems"] == {}
    assert views["orders"]["ages"] == {"arrivals": 0.0}
    assert views["bills"]["problems"] == {"arrivals": "1 partitions were not read: bills does not exist"}


def test_a_short_step_is_wired_with_a_tolerance_of_its_own_and_delays_are_sampled(application, source, monkeypatch):
    application.settings = Settings(
        kafka={"bootstrap_servers": "localhost:1"}, groups={"orders": {"topics": ["orders"], "step": "1s"}}
    )
    monkeypatch.setattr(kafka, "KafkaOffsetSource", lambda properties, **_: source)
    monkeypatch.setattr(sampler.RecordSampler, "delays_ms", lambda self, committed, at: dict.fromkeys(committed, 1234))
    now = NOW
    application.clock = lambda: now
    with closing(Recording(application)) as recording:
        recording.watch({"orders": ("orders",)})
        record, kind_of = recording.job, recording.cluster.kind_of
        for second in range(3):
            now = NOW + timedelta(seconds=second)
            source.reading = OffsetReading({TopicPartition("orders", 0): sample(now, 10 * second)})
            record()
    assert kind_of("orders") == "share"
    index = int(NOW.timestamp())
    assert application.store.read(SeriesKey("orders", "arrivals", None, 1), index, index + 2).values.tolist() == [
        [10, 10]
    ]
    late = application.store.read(SeriesKey("orders", "latency_ms", "orders", 1), index + 1, index + 2)
    assert late.values.tolist() == [[1234]]


def test_latency_and_the_share_of_records_are_shown_by_the_api(application, client, source):
    clock = [NOW - timedelta(minutes=6)]
    application.store._clock = application.clock = lambda: clock[0]
    recorder = Recorder(
        application.store,
        source,
        GROUPS,
        clock=application.clock,
        shares=lambda tp, first, end: RecordShare((end - first) * 3 // 4, end - first),
    )
    job = record_job(application, recorder, GROUPS)
    for n in range(5):  # a hundred records a minute; the group is half a minute behind
        end = 100 * n
        tp = TopicPartition("orders", 0)
        reading = OffsetSample(clock[0], 0, end, {GroupId("orders"): max(end - 50, 0)})
        source.reading = OffsetReading({tp: reading}, {}, {"orders": 1})
        job()
        clock[0] += timedelta(minutes=1)
    latency = client.get("/v1/groups/orders/series", params={"name": "latency"}).json()
    assert (latency["unit"], latency["resolution_s"]) == ("seconds", 60)
    assert [point["p99_s"] for point in latency["points"]] == [0.0, 30.0, 30.0, 30.0, 30.0]
    group = client.get("/v1/groups/orders").json()
    assert (group["record_shares"], group["latency_p99_s"]) == ({"orders": 0.75}, 30.0)
    assert client.get("/v1/groups/bills").json()["record_shares"] == {}


def test_capacity_and_lead_time_are_series_learned_or_set(application, client, source, job):
    for n in (2, 1):
        source.reading = OffsetReading({TopicPartition("orders", 0): sample(NOW - timedelta(minutes=n), 10 - n)})
        job()
    series = LearnedSeries(application.store, GroupId("orders"), ("orders",))
    series.note(None, None)
    series.note(12.5, timedelta(seconds=45))
    series.note(99.0, timedelta(seconds=99))  # the step has its value
    for name, unit, point in (("capacity", "records/s", "records_per_s"), ("lead_time", "seconds", "seconds")):
        found = client.get("/v1/groups/orders/series", params={"name": name}).json()
        assert (found["name"], found["unit"]) == (name, unit)
        assert [p[point] for p in found["points"]] == [12.5 if name == "capacity" else 45.0]
    assert client.get("/v1/groups/bills/series", params={"name": "capacity"}).json()["points"] == []
    LearnedSeries(application.store, GroupId("bills"), ()).note(1.0, None)


def test_groups_that_a_pattern_fits_are_found_once_and_recorded(application, source):
    met = []
    source.kinds = lambda: {GroupId(name): "classic" for name in ("eu-orders", "us-orders", "orders", "bills")}
    source.topics_of = lambda group: ["orders"] if group == "eu-orders" else []
    settings = Settings(groups={"*-orders": {}, "orders": {"topics": ["orders"]}})
    discover = Discovery(settings, source, lambda name, topics: met.append((name, topics)))
    discover()
    discover()
    assert met == [("eu-orders", ("orders",))]  # nobody knows what us-orders reads
    source.kinds = lambda: (_ for _ in ()).throw(SourceUnavailable("no broker answers"))
    Discovery(settings, source, lambda name, topics: met.append((name, topics)))()
    assert len(met) == 1
    recorder = Recorder(application.store, source, {}, clock=application.clock)
    recorder.watch(GroupId("eu-orders"), ("orders",))
    recorder.watch(GroupId("eu-orders"), ("orders",))
    assert recorder.topics == ("orders",)
