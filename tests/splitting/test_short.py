"""Splitting on real Kafka, for every build; ``python -m tests.splitting`` runs hundreds of schedules."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
import zlib
from datetime import timedelta
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from balancer.moves.routed_topic import RoutedTopic
from balancer.moves.splitting import SplitLimits, TopicLeader
from balancer.routing import protocol
from balancer.routing.errors import NotRouted, RouteStale, SplitRefused
from balancer.routing.hashing import murmur2
from balancer.routing.kafka import KafkaTableLog
from balancer.routing.memory import MemoryRouteStore
from balancer.routing.producer import RoutedProducer
from balancer.routing.settings import RouteSettings
from tests.chaos.bed import ROOT, until
from tests.peers.kafka import Kafka
from tests.peers.redis import lease_server
from tests.splitting.bed import Bed
from tests.splitting.run import run
from tests.splitting.table_log import check_table_log

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def make_topic(kafka: Kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def make(partitions: int) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make


def settings_for(kafka: Kafka, topic: str, **more) -> RouteSettings:
    return RouteSettings(name=f"p-{topic}", topics=(topic,), bootstrap_servers=kafka.bootstrap, **more)


def leader_of(kafka: Kafka, topic: str, store: MemoryRouteStore, groups=(), **limits) -> TopicLeader:
    world = RoutedTopic(kafka.bootstrap, topic)
    return TopicLeader(world, KafkaTableLog(kafka.bootstrap), store, groups, limits=SplitLimits(**limits))


def test_splits_and_merges_in_two_groups_keep_every_record_in_order(kafka: Kafka) -> None:
    with Bed(kafka, groups=2) as bed:
        bed.planner()
        for group in range(2):
            bed.worker(group, 1)
        bed.producer(0)
        bed.producer(1)
        bed.flowing()
        assert bed.ask("split", 0, lanes=3).state == "done", bed.logs()
        assert bed.ask("merge", 0).state == "done", bed.logs()
        verdict, _ = bed.finish()
        table = bed.table()
        assert table is not None and table.lanes_of(0) == ()
    assert verdict.is_clean and verdict.made > 100, verdict


def test_random_schedules_are_clean(kafka: Kafka) -> None:
    for result in run([kafka], [12], 6.0):
        assert result.verdict.is_clean, f"{result}: replay with python -m tests.splitting --seed {result.seed}"
        assert result.verdict.made > 100


def test_k41_adoption_moves_no_key_for_any_number_of_partitions(kafka: Kafka) -> None:
    """The start table equals what real clients do, here for some N; `test_table.py` has every N up to 64."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    names = {n: f"adopt-{uuid.uuid4().hex[:6]}-{n}" for n in (*range(1, 25), 31, 32, 48, 64)}
    for future in admin.create_topics([NewTopic(name, n, 1) for n, name in names.items()]).values():
        future.result(60)
    keys = [b"k%d" % i for i in range(60)] + [b"", b"\x00\xff", "zażółć".encode()]
    for partitioner, hash_name in (("murmur2", "murmur2"), ("consistent", "crc32")):
        client = ck.Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner, "log_level": 0})
        landed: dict[tuple[str, bytes], int] = {}

        def note(error, message, landed=landed) -> None:
            assert error is None
            landed[message.topic(), message.key() or b""] = message.partition()

        for name in names.values():
            for key in keys:
                client.produce(name, b"v", key, on_delivery=note)
        assert client.flush(120) == 0
        for n, name in names.items():
            table = protocol.adopt(name, "id", n, hash_name, [])
            for key in keys:
                assert table.partition_of_key(key) == landed[name, key], (hash_name, n, key)
                expected = murmur2(key) if hash_name == "murmur2" else zlib.crc32(key)
                assert table.partition_of_key(key) == expected % n


def test_a_table_topic_keeps_what_a_table_log_promises(kafka: Kafka) -> None:
    logs = [KafkaTableLog(kafka.bootstrap) for _ in range(2)]
    check_table_log(*logs, topic=f"t-{uuid.uuid4().hex[:8]}")
    for log in logs:
        log.close()


def test_a_routed_producer_has_its_client_s_habits(kafka: Kafka, make_topic) -> None:
    topic, plain = make_topic(3), make_topic(2)
    store = MemoryRouteStore()
    producer = RoutedProducer(settings_for(kafka, topic), store=store, tables=KafkaTableLog(kafka.bootstrap))
    with pytest.raises(RouteStale, match="init_transactions"):
        producer.produce(topic, b"v", b"k")
    with pytest.raises(NotRouted, match="headway route adopts it"):
        producer.init_transactions()
    leader_of(kafka, topic, store).step()
    producer = RoutedProducer(settings_for(kafka, topic), store=store, tables=KafkaTableLog(kafka.bootstrap))
    producer.init_transactions()
    landed: dict[bytes | None, int] = {}
    producer.begin_transaction()
    for key in ("a", b"bb", "ccc"):
        producer.produce(topic, b"v", key, on_delivery=lambda e, m: landed.update({m.key(): m.partition()}))
    producer.produce(topic, value=b"no key", headers=[("h", b"1")])
    producer.produce(plain, b"elsewhere", b"k", partition=1)
    with pytest.raises(ValueError, match="its slot table chooses"):
        producer.produce(topic, b"v", b"k", partition=1)
    assert len(producer) > 0
    producer.commit_transaction()
    assert landed == {k: murmur2(k) % 3 for k in (b"a", b"bb", b"ccc")} and len(producer) == 0
    assert producer.list_topics(topic, timeout=5).topics[topic].partitions.keys() == {0, 1, 2}
    producer.begin_transaction()
    producer.produce(topic, b"never", b"a")
    producer.abort_transaction()
    producer.close()
    assert store.producers() == ()


def test_bad_tables_are_refused_and_flow_goes_on(kafka: Kafka, make_topic) -> None:
    topic = make_topic(2)
    store = MemoryRouteStore()
    leader = leader_of(kafka, topic, store)
    table = leader.step()
    settings = settings_for(kafka, topic, lease_ttl=timedelta(seconds=600))  # renewed by hand
    producer = RoutedProducer(settings, store=store, tables=KafkaTableLog(kafka.bootstrap))
    producer.init_transactions()
    bad = {
        "went back": lambda: store._tables.update({topic: _with(table, epoch=0 + 1)}),
        "topic id": lambda: store._tables.update({topic: _with(table, epoch=9, topic_id="other")}),
    }
    producer._keeper.routes[topic] = type(producer._keeper.routes[topic])(_with(table, epoch=5))
    for reason, spoil in bad.items():
        spoil()
        producer._keeper.say()
        assert any(reason in r for r in producer.refusals), (reason, producer.refusals)
    store.table = lambda topic: b'{"version":1,"checksum":1}'  # type: ignore[method-assign]
    producer._keeper.say()
    assert any("checksum" in r for r in producer.refusals)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k")
    producer.commit_transaction()
    producer._keeper.stop(leave=False)


def _with(table, **changes):
    from dataclasses import replace

    return replace(table, **changes)


def test_a_plain_producer_stops_by_itself_when_the_store_is_silent(kafka: Kafka, make_topic) -> None:
    topic = make_topic(2)
    store = MemoryRouteStore()
    leader_of(kafka, topic, store).step()
    times = {"message_timeout": timedelta(seconds=60), "longest_pause": timedelta(seconds=60)}
    settings = settings_for(kafka, topic, transactional=False, lease_ttl=timedelta(seconds=600), **times)
    producer = RoutedProducer(settings, store=store, tables=KafkaTableLog(kafka.bootstrap))
    producer.produce(topic, b"v", b"k")
    assert producer.flush(60) == 0
    store.away = True
    producer._keeper.deadline = 0.0
    with pytest.raises(RouteStale, match="may be old"):
        producer.produce(topic, b"v", b"k")
    store.away = False
    producer._keeper.say()
    producer.produce(topic, b"v", b"k")
    producer.close()


def test_a_producer_that_is_not_routed_makes_a_topic_unsplittable(kafka: Kafka, make_topic) -> None:
    from balancer.routing.base import SplitRequest

    topic = make_topic(2)
    legacy = ck.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"legacy-{topic}", "log_level": 0})
    legacy.init_transactions(20)
    legacy.begin_transaction()
    legacy.produce(topic, b"v", b"k", partition=murmur2(b"k") % 2)
    legacy.commit_transaction(20)
    store = MemoryRouteStore()
    leader = leader_of(kafka, topic, store, ["g"], max_partitions=4)
    leader.step()
    store.request(SplitRequest("r", topic, murmur2(b"k") % 2, "split"))
    leader.step()
    (ended,) = store.requests(topic)
    assert ended.state == "refused" and f"legacy-{topic}" in ended.detail and "relay" in ended.detail


def test_a_topic_by_another_hash_is_not_adopted(kafka: Kafka, make_topic) -> None:
    topic = make_topic(7)
    other = ck.Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "consistent", "log_level": 0})
    for i in range(40):
        other.produce(topic, b"v", b"key-%d" % i)
    assert other.flush(20) == 0
    with pytest.raises(SplitRefused, match="set hash = 'crc32'"):
        leader_of(kafka, topic, MemoryRouteStore()).step()


def test_a_relay_carries_a_legacy_topic_over_exactly_once(kafka: Kafka, make_topic) -> None:
    import threading

    from balancer.routing.relay import Relay
    from tests.splitting.flow import read_all

    legacy, topic = make_topic(3), make_topic(2)
    store = MemoryRouteStore()
    leader_of(kafka, topic, store).step()
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for i in range(300):
        producer.produce(legacy, b"%d" % i, b"k%d" % (i % 7), headers=[("h", b"1")])
    assert producer.flush(20) == 0
    settings = settings_for(kafka, topic)
    routed = RoutedProducer(settings, store=store, tables=KafkaTableLog(kafka.bootstrap))
    relay = Relay(settings, legacy, producer=routed)
    thread = threading.Thread(target=relay.run)
    thread.start()
    until(lambda: relay.relayed >= 300, 120)
    relay.stop()
    thread.join(60)
    rows = read_all(kafka.bootstrap, topic)
    assert sorted(int(m.value()) for m in rows) == list(range(300))
    for k in range(7):
        mine = [int(m.value()) for m in rows if m.key() == b"k%d" % k]
        assert mine == sorted(mine)
        assert {m.partition() for m in rows if m.key() == b"k%d" % k} == {murmur2(b"k%d" % k) % 2}
    assert all(dict(m.headers())["h"] == b"1" and "rt" in dict(m.headers()) for m in rows)


def headway(config: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", *arguments, "--config", str(config)]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


def settings_file(folder: Path, store: str, bootstrap: str, topic: str, group: str) -> Path:
    config = folder / "headway.toml"
    config.write_text(
        f'state = "{folder}"\n[store]\nurl = "{store}"\n[kafka]\nbootstrap_servers = "{bootstrap}"\n'
        f'[groups."{group}"]\ntopics = ["{topic}"]\nassignment = "planned"\n'
        f'[topics."{topic}"]\ngroups = ["{group}"]\nmax_partitions = 3\n'
    )
    return config


def test_split_and_merge_from_the_terminal_under_load_without_serve(kafka: Kafka, tmp_path: Path) -> None:
    with Bed(kafka, "cli") as bed:
        (group,) = bed.groups
        config = settings_file(tmp_path, bed.server.url, kafka.bootstrap, bed.topic, group)
        assert headway(config, "route", "--topic", bed.topic).returncode == 0  # adopts it
        bed.producer(0)
        bed.worker(0, 1)
        split = headway(config, "split", "--topic", bed.topic, "--partition", "0", "--lanes", "2", "--json")
        assert split.returncode == 0, (split.stdout, split.stderr, bed.logs())
        assert json.loads(split.stdout)["state"] == "done"
        table = bed.table()
        assert table is not None and table.lanes_of(0) == (2,)
        end = time.monotonic() + 180
        while time.monotonic() < end:  # given up while a busy machine does not drain the lane within the hold limit
            merge = headway(config, "merge", "--topic", bed.topic, "--partition", "0")
            if merge.returncode == 0:
                break
        assert merge.returncode == 0 and "done" in merge.stdout, (merge.stdout, merge.stderr, bed.logs())
        table = bed.table()
        assert table is not None and table.moved == {}
        assert "0 lanes in use" in headway(config, "doctor", "--json").stdout

        # a group that begins at the log's start has older records of a key in one place and newer ones in another
        late = ck.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"{group}-late", "log_level": 0})
        late.commit(offsets=[ck.TopicPartition(bed.topic, 0, 0)], asynchronous=False)
        late.close()
        config.write_text(config.read_text() + "accept_unregistered = true\n")
        said = headway(config, "doctor", "--json")
        assert f"group {group}-late goes on before offset" in said.stdout and said.returncode == 1, said
        verdict, _ = bed.finish()
    assert verdict.is_clean and verdict.made > 100, verdict


def test_route_split_and_merge_are_refused_with_the_reason_in_the_terminal(
    kafka: Kafka, make_topic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    with lease_server(tmp_path / "store") as server:
        config = settings_file(tmp_path, server.url, kafka.bootstrap, topic, "billing")
        lines = "".join(json.dumps({"key": f"k{i}", "value": "v"}) + "\n" for i in range(20))
        routed = headway(config, "route", "--topic", topic, text=lines)
        rows = [json.loads(line) for line in routed.stdout.splitlines()]
        assert routed.returncode == 0 and len(rows) == 20, routed.stderr
        assert all(r["partition"] == murmur2(r["key"].encode()) % 2 for r in rows)
        too_many = headway(config, "split", "--topic", topic, "--partition", "0", "--lanes", "4", "--json")
        assert too_many.returncode == 1 and "max_partitions is 3" in too_many.stdout, too_many.stderr
        unknown = headway(config, "split", "--topic", "nowhere", "--partition", "0")
        assert unknown.returncode == 1 and "is not routed: add" in unknown.stderr
        broken = headway(config, "route", "--topic", topic, text='{"key": "a", "value": "b"}\nnonsense\n')
        assert broken.returncode == 1 and '"key": "a"' in broken.stdout and "nonsense" in broken.stderr
