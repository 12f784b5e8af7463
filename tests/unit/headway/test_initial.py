"""headway init: what two looks at a cluster say, and the file that is written."""

import tomllib
from datetime import UTC, datetime, timedelta

import pytest

from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.topics import GroupId, TopicPartition
from headway import cli
from headway.configuration.initial import SeenGroup, chosen, configuration, look
from headway.configuration.settings import Mode, Settings, load

AT = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Cluster:
    """A cluster whose offsets move by 100 records/s, and whose commits by 80."""

    def __init__(self):
        self.at = AT
        self.start = 0

    def kinds(self):
        return {GroupId("orders"): "classic", GroupId("idle"): "consumer", GroupId("new"): "classic"}

    def topics_of(self, group):
        return {"orders": ("orders", "refunds"), "idle": ("idle",)}.get(str(group), ())

    def read(self, topics, groups):
        seconds = (self.at - AT).total_seconds()
        samples = {}
        for topic, rate in (("orders", 100), ("refunds", 0), ("idle", 0)):
            end = 1000 + int(rate * seconds)
            committed = {
                GroupId("orders"): 900 + int(0.8 * rate * seconds) if topic != "idle" else None,
                GroupId("idle"): 10 if topic == "idle" else None,
            }
            samples[TopicPartition(topic, 0)] = OffsetSample(self.at, self.start, end, committed)
        return OffsetReading(samples, {}, dict.fromkeys(("orders", "refunds", "idle"), 1))

    def wait(self):
        self.at += timedelta(seconds=10)


def test_two_looks_tell_lag_and_rates():
    cluster = Cluster()
    idle, new, orders = look(cluster, cluster.wait)
    assert (orders.topics, orders.partitions) == (("orders", "refunds"), 2)
    assert (orders.lag, orders.arrivals, orders.consumed) == (2000 - 1700 + 100, 100.0, 80.0)
    assert (idle.lag, idle.arrivals) == (990, 0.0)
    assert new.topics == () and "let its consumers read a record" in new.why and new.lag is None


def test_what_retention_took_is_no_lag():
    cluster = Cluster()
    cluster.start = 995
    assert next(g for g in look(cluster, cluster.wait) if g.name == "idle").lag == 5


def test_the_file_is_read_back_and_nothing_acts(tmp_path):
    groups = [
        SeenGroup("orders", "classic", ("orders", "refunds"), 12, 40, 5200.0),
        SeenGroup('odd "name"', "consumer", ("t.1",), 3),
        SeenGroup("new", "classic", (), why="has not committed yet"),
    ]
    text = configuration(
        groups, brokers="kafka:9092", properties={"security.protocol": "SSL"}, timezone="Europe/Berlin"
    )
    tomllib.loads(text)
    file = tmp_path / "headway.toml"
    file.write_text(text)
    settings = load(file, {})
    assert settings.named_groups == ("orders", 'odd "name"')
    assert settings.mode("orders") is Mode.RECOMMEND and settings.against_acting("orders")
    assert settings.policy("orders").max_replicas == 12 and settings.grid("orders").timezone == "Europe/Berlin"
    assert settings.kafka_properties() == {"bootstrap.servers": "kafka:9092", "security.protocol": "SSL"}
    assert settings.store_url() is None and "# [groups.new]" in text


def test_what_is_commented_out_holds_when_somebody_takes_the_mark_away():
    groups = [SeenGroup("Bücher 日本", "classic", ("t.1",), 3), SeenGroup("new", "classic", (), why="not yet")]
    text = configuration(groups, brokers="kafka:9092")
    assert "# max_replicas = … " in text, "a group whose partitions nobody knows is not held to one member"
    assert 'name = "Bücher' not in text, "no name that Kubernetes refuses"
    assert 'name = "new"' in text


def test_with_a_store_of_its_own():
    text = configuration([], brokers="b:9092", store="redis://127.0.0.1:6379/0")
    assert Settings.model_validate(tomllib.loads(text)).store.url == "redis://127.0.0.1:6379/0"


def test_an_answer_that_names_nothing_is_told_so():
    groups = [SeenGroup("a", "classic", ("t",)), SeenGroup("b", "classic", ("t",))]
    assert [g.name for g in chosen(groups, "b, 1")] == ["b", "a"]
    with pytest.raises(ValueError, match="number from 1 to 2"):
        chosen(groups, "3")


def test_without_a_terminal_it_says_which_option_is_missing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init"]) == 2
    assert "--brokers" in capsys.readouterr().err


def test_a_file_that_is_there_is_not_replaced(capsys, tmp_path):
    file = tmp_path / "headway.toml"
    file.write_text("mine")
    assert cli.main(["init", "--brokers", "127.0.0.1:1", "--out", str(file)]) == 1
    assert "--force" in capsys.readouterr().err and file.read_text() == "mine"


def test_brokers_that_are_away_are_one_line_and_no_file(capsys, tmp_path):
    file = tmp_path / "headway.toml"
    assert cli.main(["init", "--brokers", "127.0.0.1:1", "--out", str(file), "--seconds", "1"]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "127.0.0.1:1 does not answer" in error and not file.exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--store", "foo"], 1, "store.url: must be a URL such as redis://127.0.0.1:6379/0"),
        (["--timezone", "Berlin"], 2, "unknown time zone 'Berlin'"),
        (
            ["--property", "security.protocl=SSL"],
            1,
            'No such configuration property: "security.protocl"); correct them',
        ),
        (["--property", "security.protocol"], 2, "is not name=value"),
    ],
)
def test_an_option_that_cannot_be_meant_is_said_before_anybody_waits(
    tmp_path, monkeypatch, capsys, options, code, said
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--brokers", "127.0.0.1:1", "--seconds", "1", *options]) == code
    err = capsys.readouterr().err
    assert said in " ".join(err.split())
    assert "/tmp" not in err and "refuses us" not in err
    assert list(tmp_path.iterdir()) == []
