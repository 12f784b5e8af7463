"""What a routed producer does with held slots, without a broker: the client is a list."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import confluent_kafka as ck
import pytest

from balancer.routing import protocol
from balancer.routing.errors import RouteSettingsRefused, RouteStale
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from balancer.routing.producer import RoutedProducer
from balancer.routing.route import Route
from balancer.routing.sampling import KeySample
from balancer.routing.settings import RouteSettings
from balancer.routing.table import Fence, Kind

TABLE = protocol.adopt("orders", "id-1", 2, "murmur2", ["billing"])
KEY = next(k for k in (b"k%d" % i for i in range(99)) if TABLE.partition_of_key(k) == 0)
OTHER = next(k for k in (b"k%d" % i for i in range(99)) if TABLE.partition_of_key(k) == 1)


class Client:
    """Keeps what was sent."""

    def __init__(self):
        self.sent, self.full = [], 0

    def produce(self, topic, value=None, key=None, partition=-1, callback=None, done=None, stamp=0, headers=None):
        if self.full:
            self.full -= 1
            raise BufferError("queue full")
        self.sent.append((key, partition, dict(headers or []).get("rt")))

    def poll(self, timeout=0):
        return 0

    def flush(self, timeout=-1):
        return 0

    def __len__(self):
        return 0

    def begin_transaction(self): ...
    def commit_transaction(self, timeout=0): ...
    def abort_transaction(self, timeout=0): ...


def make(**more):
    settings = RouteSettings(name="p", topics=("orders",), bootstrap_servers="127.0.0.1:1", **more)
    producer = RoutedProducer(settings, store=MemoryRouteStore(), tables=MemoryTableLog())
    producer._client = Client()
    producer._append = producer._client.produce
    producer._started = True
    producer._learned("orders", Route(TABLE))
    return producer, producer._client.sent


def moved(phase):
    table = protocol.prepare(TABLE, Kind.SPLIT, TABLE.slots_of(0), 0, 2)
    number = table.epoch
    if phase == "prepared":
        return table
    table = protocol.stop(table, number)
    if phase == "stopped":
        return table
    return protocol.start(protocol.fence(table, number, Fence(5, 1, 0, 0)), number)


def test_callbacks_come_as_the_client_gives_them():
    """Against librdkafka's own mock of a cluster: by name or position, a call-back is called once."""
    common = {"bootstrap.servers": "x", "test.mock.num.brokers": 1, "transactional.id": "t", "log_level": 0}
    client = ck.Producer(common)
    client.init_transactions(10)
    producer, _ = make()
    producer._client, producer._append = client, client.produce
    told = []
    producer.begin_transaction()
    producer.produce("orders", b"v", KEY, on_delivery=lambda error, message: told.append((error, message.partition())))
    producer.produce("orders", b"v", OTHER, callback=lambda error, message: told.append((error, message.partition())))
    producer.produce("orders", b"v", on_delivery=lambda error, message: told.append((error, message.partition())))
    producer.commit_transaction(10)
    assert sorted(told, key=str) == [(None, 0), (None, 0), (None, 1)]


def test_a_stop_takes_effect_at_the_next_transaction_and_start_releases_within_it():
    producer, sent = make()
    producer.begin_transaction()
    producer.produce("orders", b"1", KEY)
    producer._learned("orders", Route(moved("stopped")))
    producer.produce("orders", b"2", KEY)  # still by the table with which the transaction began
    assert producer._outstanding["orders"] == 1
    producer.commit_transaction()
    assert producer._outstanding["orders"] == 3  # answered
    producer.begin_transaction()
    producer.produce("orders", b"3", KEY)
    producer.produce("orders", b"4", OTHER)  # does not wait
    assert len(producer) == 1 and [k for k, _, _ in sent] == [KEY, KEY, OTHER]
    producer._learned("orders", Route(moved("started")))
    producer.produce("orders", b"5", KEY)
    producer.commit_transaction()
    assert [(p, e) for k, p, e in sent if k == KEY] == [(0, b"1"), (0, b"1"), (2, b"5"), (2, b"5")]


def test_commit_waits_for_the_hold_to_end_and_says_so_when_it_does_not():
    producer, sent = make()
    producer._learned("orders", Route(moved("stopped")))
    producer.begin_transaction()
    producer.produce("orders", b"1", KEY)
    with pytest.raises(ck.KafkaException) as waits:
        producer.commit_transaction(0.05)
    assert waits.value.args[0].retriable() and sent == []
    producer._learned("orders", Route(replace(TABLE, epoch=4)))  # aborted: the old map again
    producer.commit_transaction()
    assert sent == [(KEY, 0, b"4")]


def test_a_full_buffer_is_back_pressure_and_an_abort_drops_what_waits():
    producer, sent = make(held_records=2)
    producer._learned("orders", Route(moved("stopped")))
    producer.begin_transaction()
    told = []
    producer.produce("orders", b"1", KEY, on_delivery=lambda error, message: told.append((error.name(), message.key())))
    producer.produce("orders", b"2", KEY)
    with pytest.raises(BufferError):
        producer.produce("orders", b"3", KEY)
    producer.abort_transaction()
    assert len(producer) == 0 and sent == [] and told == [("_PURGE_QUEUE", KEY)]


def test_order_survives_a_full_queue_at_the_release():
    producer, sent = make()
    producer._learned("orders", Route(moved("stopped")))
    producer.begin_transaction()
    for value in (b"1", b"2", b"3"):
        producer.produce("orders", value, KEY, headers=[("n", value)])
    producer._learned("orders", Route(moved("started")))
    producer._client.full = 2
    producer.commit_transaction()
    assert len(sent) == 3 and {p for _, p, _ in sent} == {2}


def test_null_keys_go_to_the_first_partitions_alone():
    producer, sent = make()
    producer._learned("orders", Route(moved("started")))
    producer.begin_transaction()
    for _ in range(100):
        producer.produce("orders", b"v")
    assert {p for _, p, _ in sent} == {0, 1}


def test_a_plain_producer_never_guesses():
    producer, _ = make(transactional=False)
    producer._keeper.deadline = 0.0
    with pytest.raises(RouteStale, match="may be old"):
        producer.produce("orders", b"v", KEY)
    assert issubclass(RouteStale, BufferError)


def test_settings_that_cannot_be_meant():
    for more, why in (
        ({"held_records": 0}, "held_records=0"),
        ({"transactional": False, "message_timeout": timedelta(seconds=9)}, "message_timeout"),
        ({"properties": {"transactional.id": "x"}}, "properties.transactional.id"),
        ({"lease_ttl": timedelta(milliseconds=100)}, "lease_ttl"),
    ):
        with pytest.raises(RouteSettingsRefused, match=why):
            RouteSettings(name="p", topics=("orders",), bootstrap_servers="b", **more)


def test_a_sample_is_even_and_bounded():
    sample, counts = KeySample(10, seed=3), {}
    for _ in range(400):
        for i in range(100):
            sample.offer(b"%d" % i)
        for key in sample.take():
            counts[key] = counts.get(key, 0) + 1
    assert sum(counts.values()) == 4000 and max(counts.values()) < 80 and len(counts) == 100


def test_imports_stay_light():
    heavy = "('numpy', 'pandas', 'sklearn', 'scipy', 'datasketches', 'fastapi', 'pydantic', 'kafka')"
    code = f"import sys, balancer.routing.producer; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=".")
    assert done.stdout.strip() == "[]"
