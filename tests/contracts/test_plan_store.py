"""One suite for every plan store."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from balancer.errors import StaleLeader
from balancer.plan import Bound, BoundKind, Move, PlannedStep, Proposal, ScalingPlan
from balancer.plans.base import Decision, LeaderToken, PlanStore
from balancer.plans.memory import MemoryPlanStore
from balancer.plans.redis import RedisPlanStore
from forecaster.topics import GroupId, TopicPartition
from tests.peers import redis as peers

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
ORDERS = GroupId("orders")
TTL = timedelta(seconds=30)
_counter = itertools.count()


class Peer:
    """A plan store, another connection to the same, and a way to let leases run out without waiting."""

    def __init__(self, store: PlanStore, other: PlanStore, expire: Callable[[], None]) -> None:
        self.store, self.other, self.expire = store, other, expire


KINDS = ["memory", "embedded", pytest.param("redis7", marks=pytest.mark.redis), "cluster"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with contextlib.ExitStack() as stack:
        yield peers.started_once(stack, tmp_path_factory.mktemp)


@pytest.fixture(params=KINDS)
def peer(request: pytest.FixtureRequest, servers: Callable[[str], str]) -> Iterator[Peer]:
    if request.param == "memory":
        now = [NOW]

        def pass_time() -> None:
            now[0] += TTL

        memory = MemoryPlanStore(clock=lambda: now[0])
        yield Peer(memory, memory, pass_time)
        return
    url, name = servers(request.param), f"{request.node.name}-{next(_counter)}"
    store, other = RedisPlanStore(url, name), RedisPlanStore(url, name)
    clients = peers.clients_of(url)

    def end_leases() -> None:  # what the server does when their time is over
        for client in clients:
            for key in client.scan_iter("hw:lease:*", count=1000):
                client.delete(key)

    yield Peer(store, other, end_leases)
    for one in (store, other, *clients):
        one.close()


def plan(replicas: int = 3, group: GroupId = ORDERS) -> ScalingPlan:
    a, b = TopicPartition("orders", 0), TopicPartition("orders:x", 1)
    steps = (
        PlannedStep(NOW, replicas, 120.5, {"m1": (a,), "m2": (b,)}, (Move(b, None, "m2"), Move(a, "m0", "m1"))),
        PlannedStep(NOW + timedelta(hours=1, microseconds=7), replicas + 1, 0.1 + 0.2),
    )
    return ScalingPlan(
        group, NOW, steps, Bound(BoundKind.PARTITION, "orders:0", NOW), ("p99 is due", "größer"), 2, True,
        (Proposal("split", "orders:0", "hot", NOW), Proposal("merge", "orders:1", "cold")),
    )  # fmt: skip


def lead(store: PlanStore, holder: str = "a", group: GroupId = ORDERS) -> LeaderToken:
    token = store.lead(group, holder, TTL)
    assert token is not None
    return token


def decision(n: int, at: datetime = NOW) -> Decision:
    return Decision(f"d{n}", ORDERS, at, "act", plan(n), {"policy": {"slo_s": 60.0}, "n": n}, {"state": "effective"})


def test_one_holder_at_a_time(peer: Peer) -> None:
    token = lead(peer.store)
    assert peer.other.lead(ORDERS, "b", TTL) is None
    assert lead(peer.store) == token, "renewing keeps the token"
    assert lead(peer.other, "b", GroupId("payments")).group == "payments"


def test_an_expired_lease_goes_to_the_next_and_fences_the_last(peer: Peer) -> None:
    old = lead(peer.store)
    assert peer.store.publish(plan(3), old) == 1
    peer.expire()
    assert peer.store.publish(plan(4), old) == 2, "nobody else leads yet: nothing conflicts"
    new = lead(peer.other, "b")
    assert new.number > old.number
    for write in (
        lambda: peer.store.publish(plan(5), old),
        lambda: peer.store.record(decision(1), old),
        lambda: peer.store.learn(ORDERS, "capacity", {}, old),
    ):
        with pytest.raises(StaleLeader, match=r"orders: token \d+ of a is stale; b \(\d+\) leads now"):
            write()
    assert peer.store.lead(ORDERS, "a", TTL) is None
    assert peer.other.publish(plan(6), new) == 3
    assert peer.store.latest(ORDERS) == (3, plan(6))
    assert peer.store.decisions(ORDERS, NOW) == []


def test_a_holder_that_comes_back_after_expiry_has_a_new_token(peer: Peer) -> None:
    old = lead(peer.store)
    peer.expire()
    new = lead(peer.store)
    assert new.number > old.number
    with pytest.raises(StaleLeader):
        peer.store.publish(plan(), old)


def test_resigning_hands_over_at_once_and_is_harmless_later(peer: Peer) -> None:
    old = lead(peer.store)
    peer.store.resign(old)
    with pytest.raises(StaleLeader, match="nobody leads"):
        peer.store.publish(plan(), old)
    new = lead(peer.other, "b")
    assert new.number > old.number
    peer.store.resign(old)
    assert peer.other.publish(plan(), new) == 1


def test_a_token_of_another_group_is_stale(peer: Peer) -> None:
    lead(peer.store)
    token = lead(peer.store, group=GroupId("payments"))
    with pytest.raises(StaleLeader):
        peer.store.publish(plan(), token)


def test_a_token_with_the_right_number_and_another_nonce_is_stale(peer: Peer) -> None:
    token = lead(peer.store)
    with pytest.raises(StaleLeader):
        peer.store.publish(plan(), LeaderToken(ORDERS, token.number, "0000", token.holder))


def test_plans_come_back_equal(peer: Peer) -> None:
    assert peer.store.latest(ORDERS) is None
    token = lead(peer.store)
    for version in (1, 2, 3):
        assert peer.store.publish(plan(version), token) == version
    assert peer.other.latest(ORDERS) == (3, plan(3))
    assert peer.other.latest(GroupId("payments")) is None


def test_decisions_are_kept_in_order_and_once(peer: Peer) -> None:
    token = lead(peer.store)
    order = [2, 0, 1, 3, 1]
    for n in order:
        peer.store.record(decision(n, NOW + timedelta(seconds=n)), token)
    found = peer.other.decisions(ORDERS, NOW)
    assert [d.id for d in found] == ["d0", "d1", "d2", "d3"]
    assert found[3] == decision(3, NOW + timedelta(seconds=3))
    assert [d.id for d in peer.store.decisions(ORDERS, NOW + timedelta(seconds=1), limit=2)] == ["d1", "d2"]
    assert list(peer.store.decisions(ORDERS, NOW + timedelta(seconds=9))) == []


def test_old_decisions_go(peer: Peer) -> None:
    token = lead(peer.store)
    peer.store.record(decision(1, NOW - timedelta(days=15)), token)
    peer.store.record(decision(2, NOW - timedelta(days=13)), token)
    peer.store.record(decision(3, NOW), token)
    assert [d.id for d in peer.store.decisions(ORDERS, NOW - timedelta(days=99))] == ["d2", "d3"]


def test_what_was_learned_is_replaced(peer: Peer) -> None:
    token = lead(peer.store)
    assert peer.store.learned(ORDERS, "capacity") is None
    peer.store.learn(ORDERS, "capacity", {"records_per_s": 480.0, "n": 3}, token)
    peer.store.learn(ORDERS, "capacity", {"records_per_s": 500.0}, token)
    assert peer.other.learned(ORDERS, "capacity") == {"records_per_s": 500.0}
    assert peer.other.learned(ORDERS, "lead_time") is None


def test_people_may_set_without_leading(peer: Peer) -> None:
    assert peer.store.setting("*", "pause") is None
    peer.store.set_setting("*", "pause", {"until": "2026-01-05T12:00:00Z"})
    peer.store.set_setting("orders", "mode", {"mode": "act"})
    assert peer.other.setting("*", "pause") == {"until": "2026-01-05T12:00:00Z"}
    assert peer.other.setting("orders", "pause") is None
    peer.other.set_setting("*", "pause", None)
    peer.other.set_setting("*", "pause", None)
    assert peer.store.setting("*", "pause") is None
    assert peer.store.setting("orders", "mode") == {"mode": "act"}


def test_a_setting_is_swapped_only_for_what_was_read(peer: Peer) -> None:
    assert not peer.store.swap_setting("*", "prescale", {"windows": []}, {"windows": [1]})
    assert peer.store.swap_setting("*", "prescale", None, {"windows": [{"factor": 2.5, "ä": "ö"}]})
    read = peer.other.setting("*", "prescale")
    assert peer.other.swap_setting("*", "prescale", read, {"windows": [2]})
    assert not peer.store.swap_setting("*", "prescale", read, {"windows": [3]})
    assert peer.store.setting("*", "prescale") == {"windows": [2]}
    assert peer.store.swap_setting("*", "prescale", {"windows": [2]}, None)
    assert peer.other.setting("*", "prescale") is None


def test_two_who_change_one_list_at_once_lose_nothing(peer: Peer) -> None:
    def add(store: PlanStore, names: range) -> None:
        for name in names:
            done = False
            while not done:
                read = store.setting("*", "prescale")
                done = store.swap_setting("*", "prescale", read, {"all": [*(read or {"all": []})["all"], name]})

    with ThreadPoolExecutor(2) as both:
        for future in [both.submit(add, peer.store, range(40)), both.submit(add, peer.other, range(40, 80))]:
            future.result()
    kept = peer.store.setting("*", "prescale")
    assert kept is not None and sorted(kept["all"]) == list(range(80))


def test_c11_b26_the_last_plan_outlives_its_leader(peer: Peer) -> None:
    peer.store.publish(plan(7), lead(peer.store))
    peer.expire()
    latest = peer.other.latest(ORDERS)
    assert latest is not None
    assert latest[1].replicas == 7


def test_what_json_does_not_have_is_refused(peer: Peer) -> None:
    token = lead(peer.store)
    with pytest.raises(ValueError, match=r"JSON|float"):
        peer.store.learn(ORDERS, "capacity", {"records_per_s": math.nan}, token)
    assert peer.store.learned(ORDERS, "capacity") is None


def test_names_that_look_like_keys(peer: Peer) -> None:
    names = ["a:b", "a{b}", "{a}b", "ä", "a%3Ab", "*"]
    for n, name in enumerate(names):
        group = GroupId(name)
        peer.store.publish(plan(n, group), lead(peer.store, group=group))
        peer.store.set_setting(name, "mode", {"n": n})
    for n, name in enumerate(names):
        assert peer.store.latest(GroupId(name)) == (1, plan(n, GroupId(name)))
        assert peer.store.setting(name, "mode") == {"n": n}


def test_a_thousand_leader_changes_never_conflict(peer: Peer) -> None:
    version, last = 0, 0
    stores = (peer.store, peer.other)
    stale: LeaderToken | None = None
    for n in range(1000):
        store = stores[n % 2]
        token = lead(store, f"h{n}")
        assert token.number > last
        last = token.number
        if stale is not None:
            with pytest.raises(StaleLeader):
                stores[1 - n % 2].publish(plan(99), stale)
        published = store.publish(plan(n), token)
        assert published == version + 1
        version = published
        stale = token
        if n % 2:
            store.resign(token)
        else:
            peer.expire()
    assert peer.store.latest(ORDERS) == (1000, plan(999))


def test_a_decision_is_found_by_its_id(peer: Peer) -> None:
    token = lead(peer.store)
    peer.store.record(decision(1), token)
    assert peer.other.decision(ORDERS, "d1") == decision(1)
    assert peer.other.decision(ORDERS, "d2") is None
    assert peer.other.decision(GroupId("payments"), "d1") is None


def test_what_is_attached_is_kept_for_its_time_and_never_shortened(peer: Peer) -> None:
    token, body = lead(peer.store), bytes(range(256))
    peer.store.attach(ORDERS, "orders@2026-01-05T09:00:00+00:00", body, 3 * TTL, token)
    peer.store.attach(ORDERS, "orders@2026-01-05T09:00:00+00:00", body, timedelta(milliseconds=1), token)
    assert peer.other.attached(ORDERS, "orders@2026-01-05T09:00:00+00:00") == body
    assert peer.other.attached(ORDERS, "another") is None
    peer.expire()
    assert lead(peer.other, "b").number > token.number
    with pytest.raises(StaleLeader):
        peer.store.attach(ORDERS, "late", body, TTL, token)
    assert peer.other.attached(ORDERS, "late") is None
