"""What doctor finds at the source of offsets: away, refused, unknown topics, groups that never committed."""

from __future__ import annotations

import pytest

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.sections import KafkaSettings
from headway.configuration.settings import Settings
from headway.operation.doctor import examine
from tests.unit.headway.conftest import NOW


class Source:
    """Answers with what it was made with."""

    def __init__(self, answer):
        self.answer, self.closed = answer, False

    def read(self, topics, groups):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self):
        self.closed = True


@pytest.fixture
def house(tmp_path):
    return Settings(state=tmp_path, groups={"orders": {"topics": ["orders"]}, "bills": {"topics": ["bills"]}})


def found(house, source):
    checks = examine(house, MemorySeriesStore, lambda: source)
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (SourceUnavailable("Kafka at broker:9092 does not answer"), "start it"),
        (SourceRefused("Kafka at broker:9092 refuses us as ann"), "correct credentials"),
    ],
)
def test_brokers_that_are_away_or_refuse_us_are_told_with_the_remedy(house, error, remedy):
    source = Source(error)
    check = found(house, source)["source"]
    assert (check.ok, check.detail) == (False, str(error))
    assert check.remedy.startswith(remedy)
    assert source.closed


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("nowhere.invalid", "nowhere.invalid: "),
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("127.0.0.1:high", "127.0.0.1:high: "),
        ("127.0.0.1:99999", "127.0.0.1:99999: "),
    ],
)
def test_a_broker_that_is_not_there_is_named_with_the_remedy_and_without_python(house, servers, said):
    away = house.model_copy(update={"kafka": KafkaSettings(bootstrap_servers=servers)})
    (check,) = [c for c in examine(away, MemorySeriesStore) if c.name == "brokers"]
    assert not check.ok
    assert check.detail.startswith(said)
    assert "literal" not in check.detail and "Errno" not in check.detail
    assert "host:port" in check.remedy


def test_an_unknown_topic_and_a_group_without_commits_are_told_and_the_rest_is_well(house):
    sample = OffsetSample(NOW, 0, 9, {GroupId("orders"): 5})
    source = Source(
        OffsetReading({TopicPartition("orders", 0): sample}, {TopicPartition("bills", 0): "no topic bills"})
    )
    checks = found(house, source)
    assert checks["topic orders"].ok
    assert checks["group orders"].ok
    assert (checks["topic bills"].ok, checks["topic bills"].detail) == (False, "no topic bills")
    never = OffsetSample(NOW, 0, 9, {GroupId("orders"): None})
    check = found(house, Source(OffsetReading({TopicPartition("orders", 0): never})))["group orders"]
    assert (check.ok, check.detail) == (False, "orders has committed nothing on orders")


def test_a_source_that_cannot_be_opened_hides_nothing_else(house):
    def refuse():
        raise SourceRefused("no such property: sasl.pasword")

    checks = {check.name: check for check in examine(house, MemorySeriesStore, refuse)}
    assert (checks["source"].ok, checks["source"].detail) == (False, "no such property: sasl.pasword")
    assert checks["models"].ok
    assert "source" not in {check.name for check in examine(house, MemorySeriesStore)}
