"""What every route store and table log must do: one suite for the twins in memory and the real things."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from balancer.routing import protocol
from balancer.routing.base import Registration, SplitRequest
from balancer.routing.errors import RegistrationRefused, RouteStoreUnavailable
from balancer.routing.memory import MemoryRouteStore
from balancer.routing.redis import RedisRouteStore
from balancer.routing.table import decode
from tests.peers.redis import Server, lease_server

TTL = timedelta(seconds=600)
WHO = Registration("checkout-1", "n1", ("orders",), "headway.route.checkout-1")
TABLE = protocol.adopt("orders", "id-1", 4, "murmur2", ["billing"])


class MemoryBench:
    def __init__(self) -> None:
        self.now = 100.0
        self.store = MemoryRouteStore(clock=lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def go_away(self) -> None:
        self.store.away = True


class RedisBench:
    """Time passes by bringing the written deadlines forward: the server's clock cannot be turned."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.store = RedisRouteStore(server.url, "c")

    def pass_time(self, seconds: float) -> None:
        with self.server.client() as raw:
            for name in raw.smembers("hw:{c:routes}:producers"):
                raw.hincrby(f"hw:{{c:routes}}:producer:{name.decode()}", "deadline", -int(seconds * 1000))
            for key in raw.scan_iter("hw:[{]c:routes[}]:leader:*"):
                raw.delete(key)

    def go_away(self) -> None:
        self.server.kill()


Bench = MemoryBench | RedisBench


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, lease_server(Path(folder)) as running:
        yield running


@pytest.fixture(params=["memory", "redis"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    server = request.getfixturevalue("server")
    if server.process is None or server.process.poll() is not None:
        server.start()
    with server.client() as raw:
        raw.flushall()
    made = RedisBench(server)
    yield made
    made.store.close()


def test_a_cache_only_goes_forward(bench: Bench) -> None:
    store = bench.store
    assert store.table("orders") is None and store.publish(TABLE)
    newer = replace(TABLE, epoch=3)
    assert store.publish(newer) and not store.publish(replace(TABLE, epoch=2)) and not store.publish(newer)
    data = store.table("orders")
    assert data is not None and decode(data) == newer
    assert store.publish(replace(TABLE, topic_id="id-2"))  # created again: its epochs are its own


def test_a_renewal_answers_and_brings_epochs(bench: Bench) -> None:
    store = bench.store
    store.register(WHO, TTL)
    assert store.renew(WHO, TTL, {}, {}, {}) == {}
    store.publish(TABLE)
    assert store.renew(WHO, TTL, {"orders": 1}, {"orders": ("6b",)}, {"orders": 12.5}) == {"orders": 1}
    (seen,) = store.producers()
    assert seen.registration == WHO and seen.live
    assert (dict(seen.acks), {t: tuple(k) for t, k in seen.sample.items()}) == ({"orders": 1}, {"orders": ("6b",)})
    assert seen.rates == {"orders": 12.5}


def test_a_silent_producer_is_seen_to_be_silent(bench: Bench) -> None:
    bench.store.register(WHO, TTL)
    bench.pass_time(601)
    assert [p.live for p in bench.store.producers()] == [False]
    bench.store.renew(WHO, TTL, {}, {}, {})
    assert [p.live for p in bench.store.producers()] == [True]


def test_a_later_life_supersedes_and_a_lost_registration_is_made_again(bench: Bench) -> None:
    store = bench.store
    store.register(WHO, TTL)
    later = replace(WHO, nonce="n2")
    store.register(later, TTL)
    with pytest.raises(RegistrationRefused):
        store.renew(WHO, TTL, {}, {}, {})
    store.forget(WHO)  # not that life any more: nothing happens
    assert len(store.producers()) == 1
    store.forget(later)
    assert store.producers() == ()
    store.renew(later, TTL, {}, {}, {})
    assert store.producers()[0].registration == later
    store.leave(later)
    assert store.producers() == ()


def test_one_leads_at_a_time(bench: Bench) -> None:
    store = bench.store
    assert store.lead("orders", "a", TTL) and not store.lead("orders", "b", TTL) and store.lead("orders", "a", TTL)
    assert store.lead("bills", "b", TTL)
    store.resign("orders", "b")
    assert not store.lead("orders", "b", TTL)
    store.resign("orders", "a")
    assert store.lead("orders", "b", TTL)
    bench.pass_time(601)
    assert store.lead("orders", "a", TTL)


def test_gates_only_rise(bench: Bench) -> None:
    bench.store.close_gates("orders", "billing", 7)
    bench.store.close_gates("orders", "billing", 5)
    bench.store.close_gates("orders", "audit", 2)
    assert bench.store.gates("orders") == {"billing": 7, "audit": 2} and bench.store.gates("bills") == {}


def test_requests_are_kept_as_they_stand(bench: Bench) -> None:
    asked = SplitRequest("r1", "orders", 3, "split", 3, placement=((1, 5), (9,)))
    bench.store.request(asked)
    assert bench.store.requests("orders") == (asked,)
    ended = replace(asked, state="done", seconds=0.4, epoch=9, numbers=(7, 8))
    bench.store.settle(ended)
    assert bench.store.requests("orders") == (ended,) and ended.is_over and not asked.is_over


def test_who_waits_is_woken(bench: Bench) -> None:
    told: list[bool] = []
    ready = threading.Event()

    def listen() -> None:
        bench.store.wait("producers", timedelta(seconds=0.05))
        ready.set()
        told.append(bench.store.wait("producers", timedelta(seconds=5)))

    thread = threading.Thread(target=listen)
    thread.start()
    ready.wait(60)
    bench.store.publish(TABLE)
    thread.join(60)
    assert told == [True]


def test_a_store_that_is_away_says_so(bench: Bench) -> None:
    bench.go_away()
    with pytest.raises(RouteStoreUnavailable, match="does not answer"):
        bench.store.register(WHO, TTL)
    with pytest.raises(RouteStoreUnavailable):
        bench.store.producers()
