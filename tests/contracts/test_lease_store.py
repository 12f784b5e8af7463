"""What every lease store must do: one suite for the in-memory twin and the Lua script in a real server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancer.errors import StaleLeader
from balancer.leases.base import (
    KEPT_ANSWERS,
    KEPT_MOVES,
    GroupReleased,
    Heartbeat,
    InstanceTaken,
    LeaseRefused,
    LeaseState,
    LeaseStore,
    LeaseStoreLost,
    LeaseStoreUnavailable,
    MoveRequest,
    Owner,
    ProtocolRefused,
    StartRule,
    WorkerProfile,
)
from balancer.leases.cluster import Seat
from balancer.leases.memory import MemoryLeaseStore
from balancer.leases.redis import RedisLeaseStore
from balancer.plans.base import LeaderToken
from forecaster.topics import GroupId, TopicPartition
from tests.peers.redis import Server, cluster_of_three, lease_server, move_slot, slot

GROUP = GroupId("orders")
KEY = f"hw:{{c:{GROUP}}}:group"
TTL = timedelta(seconds=600)
P0, P1, P2 = (TopicPartition("orders", i) for i in range(3))
READY = Heartbeat(initialised=True, ready=True)
PROFILE = WorkerProfile(pod="orders-7f9")


class Bench(Protocol):
    """A store, and the means to let time pass and to lose everything."""

    store: LeaseStore

    def pass_time(self, seconds: float) -> None: ...
    def lose(self) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryLeaseStore(GROUP, clock=lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def lose(self) -> None:
        self.store.lose()


class RedisBench:
    """Time passes by bringing the written deadlines forward: the server's clock cannot be turned."""

    def __init__(self, home: Server, named: Server, cluster: str = "c") -> None:
        self.raw = redis.Redis(port=home.port, decode_responses=True, protocol=2)
        self.raw.flushall()
        self.prefix = f"hw:{{{cluster}:{GROUP}}}:"
        self.store = RedisLeaseStore(named.url, cluster, GROUP)

    def pass_time(self, seconds: float) -> None:
        raw = self.raw
        for i in raw.smembers(self.prefix + "workers"):
            raw.hincrby(f"{self.prefix}worker:{i}", "deadline", -int(seconds * 1000))
        if raw.exists(self.prefix + "leader"):
            raw.hincrby(self.prefix + "leader", "deadline", -int(seconds * 1000))

    def lose(self) -> None:
        raw = self.raw
        for key in raw.scan_iter(self.prefix.replace("{", "[{]").replace("}", "[}]") + "*"):
            if not key.endswith(":leader"):
                raw.delete(key)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, lease_server(Path(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as folder, cluster_of_three(Path(folder)) as running:
        yield running


@pytest.fixture(params=["memory", "redis", "cluster"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    if request.param == "redis":
        server = request.getfixturevalue("server")
        made = RedisBench(server, server)
    else:
        nodes = request.getfixturevalue("cluster")
        home = next(n for n in nodes if n.port == urlsplit(Seat(nodes[0].url, KEY).find()).port)
        other = next(n for n in nodes if n is not home)  # any node may be named
        made = RedisBench(home, other)
    yield made
    made.store.close()
    made.raw.close()


def lead(store: LeaseStore) -> LeaderToken:
    token = store.lead("planner-1", TTL)
    assert token is not None
    return token


def begin(store: LeaseStore, partitions: int = 3) -> LeaderToken:
    token = lead(store)
    store.found(token, epoch_floor=0)
    store.add(token, [TopicPartition("orders", i) for i in range(partitions)], StartRule.POLICY)
    return token


def worker(store: LeaseStore, instance: int | None = None, nonce: str = "aa") -> Owner:
    owner = store.claim(instance, nonce, TTL, PROFILE)
    store.renew(owner, TTL, READY)
    return owner


def held(store: LeaseStore, token: LeaderToken, owner: Owner, tp: TopicPartition) -> int:
    assert store.grant(token, tp, owner.instance)
    return store.take(owner, tp).epoch


def test_nothing_is_possible_before_a_planner_has_founded_the_books(bench: Bench) -> None:
    store = bench.store
    assert store.is_lost()
    with pytest.raises(LeaseStoreLost, match="planner"):
        store.claim(None, "aa", TTL, PROFILE)
    with pytest.raises(LeaseStoreLost):
        store.view()
    begin(store)
    assert not store.is_lost()
    assert store.claim(None, "aa", TTL, PROFILE) == Owner(1, 1, "aa")


def test_two_workers_with_one_instance_number_the_second_is_told_who_has_it(bench: Bench) -> None:
    begin(bench.store)
    first = bench.store.claim(4, "aa", TTL, PROFILE)
    with pytest.raises(InstanceTaken, match=r"instance 4 is taken by 4#1\.aa"):
        bench.store.claim(4, "bb", TTL, PROFILE)
    bench.pass_time(601)
    second = bench.store.claim(4, "bb", TTL, PROFILE)
    assert second == Owner(4, 2, "bb")
    with pytest.raises(LeaseRefused, match="superseded"):
        bench.store.renew(first, TTL, READY)


def test_instances_are_claimed_without_ordinals_and_a_surge_takes_the_next_numbers(bench: Bench) -> None:
    begin(bench.store)
    owners = [bench.store.claim(None, n, TTL, PROFILE) for n in ("aa", "bb", "cc")]
    assert [o.instance for o in owners] == [1, 2, 3]
    surge = bench.store.claim(None, "dd", TTL, PROFILE)
    bench.store.leave(owners[1])
    assert (surge.instance, bench.store.claim(None, "ee", TTL, PROFILE)) == (4, Owner(2, 2, "ee"))


def test_an_old_library_and_a_new_planner_refuse_each_other_with_the_reason(bench: Bench) -> None:
    token = bench.store.lead("planner-1", TTL)
    assert token is not None
    bench.store.found(token, epoch_floor=0, protocols=(2, 3))
    with pytest.raises(ProtocolRefused, match="worker speaks protocol 1, planner 2 to 3"):
        bench.store.claim(None, "aa", TTL, PROFILE)


def test_k45_an_expired_lease_never_revives(bench: Bench) -> None:
    begin(bench.store)
    owner = worker(bench.store)
    bench.pass_time(601)
    with pytest.raises(LeaseRefused, match="expired"):
        bench.store.renew(owner, TTL, READY)
    assert not bench.store.view().workers[1].live


def test_a_move_hands_over_epoch_and_offset(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a, b = worker(store), worker(store, nonce="bb")
    first = held(store, token, a, P0)
    assert store.grant(token, P0, b.instance)
    assert store.renew(a, TTL, READY).leases[P0].next == b
    with pytest.raises(LeaseRefused):
        store.take(b, P0)  # still held
    store.release(a, P0, first, offset=42, leader_epoch=3)
    lease = store.take(b, P0)
    assert (lease.owner, lease.offset, lease.leader_epoch, lease.state) == (b, 42, 3, LeaseState.HELD)
    assert lease.epoch > first
    kept = store.view().leases[P0]
    assert (kept.offset, kept.leader_epoch) == (None, None)  # whoever comes after a fence reads for itself
    with pytest.raises(LeaseRefused):
        store.release(a, P0, first, offset=43)


def test_a_grant_can_be_withdrawn_and_given_to_somebody_else_until_it_is_taken(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a, b = worker(store), worker(store, nonce="bb")
    assert store.grant(token, P0, 1)
    assert store.grant(token, P0, 2)
    with pytest.raises(LeaseRefused, match="not granted"):
        store.take(a, P0)
    assert store.withdraw(token, P0)
    assert not store.withdraw(token, P0)
    with pytest.raises(LeaseRefused):
        store.take(b, P0)


@pytest.mark.parametrize("beat", [Heartbeat(), Heartbeat(initialised=True), Heartbeat(ready=True)])
def test_only_warm_and_initialised_workers_receive(bench: Bench, beat: Heartbeat) -> None:
    token = begin(bench.store)
    owner = bench.store.claim(None, "aa", TTL, PROFILE)
    bench.store.renew(owner, TTL, beat)
    assert not bench.store.grant(token, P0, 1)
    bench.store.renew(owner, TTL, READY)
    assert bench.store.grant(token, P0, 1)


def test_flags_are_raised_once_and_draining_workers_receive_nothing(bench: Bench) -> None:
    token = begin(bench.store)
    owner = worker(bench.store)
    assert bench.store.drain(token, 1)
    view = bench.store.renew(owner, TTL, Heartbeat())
    assert view.draining
    assert not bench.store.grant(token, P0, 1)
    assert not bench.store.drain(token, 9)


def test_a_dead_owner_is_fenced_before_anybody_else_takes_over(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a, b = worker(store), worker(store, nonce="bb")
    held(store, token, a, P0)
    held(store, token, a, P1)
    assert store.begin_fence(token, 1) == (0, ())  # it lives
    bench.pass_time(599)
    store.renew(b, TTL, READY)
    assert store.lead("planner-1", TTL) == token
    bench.pass_time(2)
    assert store.begin_fence(token, 1) == (1, (P0, P1))
    assert not store.grant(token, P0, 2)  # L5
    with pytest.raises(LeaseRefused):
        store.release(a, P0, 1, offset=5)  # it woke up: too late
    assert store.end_fence(token, 1, 1) == (P0, P1)
    assert held(store, token, b, P0) == 2


def abandoned(bench: Bench) -> tuple[LeaseStore, LeaderToken]:
    """Instance 1 held P0 and was heard of no more; a leader that came later has the floor."""
    store = bench.store
    held(store, begin(store), worker(store), P0)
    bench.pass_time(601)
    return store, lead(store)


def test_a_new_life_is_not_fenced_for_the_old_one_and_frees_its_leases_once_initialised(bench: Bench) -> None:
    store, token = abandoned(bench)
    later = store.claim(1, "bb", TTL, PROFILE)
    assert store.begin_fence(token, 1) == (0, ())
    assert store.supersede(token, 1) == ()
    store.renew(later, TTL, Heartbeat(initialised=True))
    assert store.supersede(token, 1) == (P0,)
    assert store.view().leases[P0].state is LeaseState.FREE


def test_a_planner_that_wakes_late_frees_only_what_it_fenced(bench: Bench) -> None:
    store, token = abandoned(bench)
    number, _ = store.begin_fence(token, 1)
    assert store.end_fence(token, 1, number) == (P0,)
    held(store, token, worker(store, 1, "bb"), P1)
    bench.pass_time(601)
    token = lead(store)
    assert store.begin_fence(token, 1) == (2, (P1,))
    assert store.end_fence(token, 1, number) == ()  # P1 belongs to a later life that this fence did not reach
    assert store.view().leases[P1].state is LeaseState.FENCING


def test_nobody_begins_anew_while_the_earlier_life_is_being_fenced(bench: Bench) -> None:
    store, token = abandoned(bench)
    number, _ = store.begin_fence(token, 1)
    with pytest.raises(InstanceTaken, match="instance 1 is taken until its earlier life is fenced"):
        store.claim(1, "bb", TTL, PROFILE)
    assert store.claim(None, "cc", TTL, PROFILE) == Owner(2, 1, "cc")
    store.end_fence(token, 1, number)
    assert store.claim(1, "bb", TTL, PROFILE) == Owner(1, 2, "bb")


def test_stale_planners_change_nothing(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a = worker(store)
    bench.pass_time(601)
    stale = [
        lambda: store.grant(token, P0, 1),
        lambda: store.withdraw(token, P0),
        lambda: store.begin_fence(token, 1),
        lambda: store.end_fence(token, 1, 1),
        lambda: store.supersede(token, 1),
        lambda: store.add(token, [P0], StartRule.POLICY),
        lambda: store.drop(token, [P0]),
        lambda: store.void(token, [P0], "x"),
        lambda: store.drain(token, a.instance),
        lambda: store.publish(token, {}),
        lambda: store.found(token, epoch_floor=1),
    ]
    for call in stale:
        with pytest.raises(StaleLeader):
            call()
    newer = store.lead("planner-1", TTL)
    assert newer is not None
    assert newer.number == token.number + 1


def test_one_leads_at_a_time(bench: Bench) -> None:
    token = bench.store.lead("planner-1", TTL)
    assert token is not None
    assert bench.store.lead("planner-2", TTL) is None
    assert bench.store.lead("planner-1", TTL) == token
    bench.store.resign(token)
    assert bench.store.lead("planner-2", TTL) is not None


def test_lost_tail_nobody_takes_anything_and_epochs_leap(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a = worker(store)
    held(store, token, a, P0)
    store.grant(token, P1, 1)
    bench.lose()
    assert store.is_lost()
    for call in (lambda: store.renew(a, TTL, READY), lambda: store.take(a, P1), lambda: store.release(a, P0, 1)):
        with pytest.raises(LeaseStoreLost):
            call()
    store.found(token, epoch_floor=7 + (1 << 20), plan_epoch=5)
    with pytest.raises(LeaseRefused, match="new founding"):
        store.renew(a, TTL, READY)
    store.add(token, [P0], StartRule.POLICY)
    b = worker(store, nonce="bb")
    assert held(store, token, b, P0) == 8 + (1 << 20)
    assert store.publish(token, {}) == 6


def test_epochs_never_come_back_when_a_partition_does(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a = worker(store)
    for _ in range(3):
        epoch = held(store, token, a, P0)
        store.release(a, P0, epoch)
    assert store.drop(token, [P0, P0]) == 1
    assert store.add(token, [P0, P1], StartRule.BEGINNING) == 1
    lease = store.view().leases[P0]
    assert (lease.start, held(store, token, a, P0)) == (StartRule.BEGINNING, 4)


def test_k22_a_topic_created_again_voids_what_is_held(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a, b = worker(store), worker(store, nonce="bb")
    epoch = held(store, token, a, P0)
    assert store.void(token, [P0, P1], "new-topic") == 2
    lease = store.renew(a, TTL, READY).leases[P0]
    assert (lease.void, lease.topic_id) == (True, "new-topic")
    assert not store.view().leases[P1].void  # held by nobody: the rule alone changes
    store.release(a, P0, epoch, offset=500)
    assert store.grant(token, P0, 2)
    taken = store.take(b, P0)
    assert (taken.offset, taken.start, taken.topic_id) == (None, StartRule.BEGINNING, "new-topic")


def test_whoever_holds_partitions_cannot_leave_and_whoever_left_receives_nothing(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a = worker(store)
    epoch = held(store, token, a, P0)
    with pytest.raises(LeaseRefused, match="still holds 1 partitions"):
        store.leave(a)
    store.release(a, P0, epoch, 9)
    store.grant(token, P1, 1)
    store.leave(a)
    view = store.view()
    assert (view.leases[P1].next, view.leases[P0].offset, view.workers[1].live) == (None, 9, False)
    assert not store.grant(token, P2, 1)


def test_an_expired_owner_may_still_give_up_but_not_hand_to_a_dead_one(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a, b = worker(store), worker(store, nonce="bb")
    epoch = held(store, token, a, P0)
    store.grant(token, P0, b.instance)
    bench.pass_time(601)
    store.release(a, P0, epoch, 9)
    assert store.view().leases[P0].next is None


def test_the_plan_is_read_by_people_and_its_epoch_grows(bench: Bench) -> None:
    token = begin(bench.store)
    assert bench.store.plan() is None
    assert bench.store.publish(token, {"moves": []}) == 1
    assert bench.store.publish(token, {"moves": ["orders:0 to 2"]}) == 2
    assert bench.store.plan() == (2, {"moves": ["orders:0 to 2"]})


def test_requests_are_kept_with_how_they_ended(bench: Bench) -> None:
    token = begin(bench.store)
    asked = MoveRequest("m1", P0, 2)
    bench.store.request(asked)
    assert bench.store.view().requests == {"m1": asked}
    done = MoveRequest("m1", P0, 2, "done", "", 0.04, 7)
    bench.store.settle(token, done)
    assert bench.store.view().requests == {"m1": done}


def test_moves_are_kept_in_their_order_and_so_many(bench: Bench) -> None:
    token = begin(bench.store)
    assert bench.store.moves() == ()
    under_way = MoveRequest("m1", P0, 2, "releasing", source=1, at="2026-01-05T09:00:00.000Z")
    bench.store.settle(token, under_way)
    bench.store.settle(token, MoveRequest("m2", P1, 2, "taking"))
    done = replace(under_way, state="done", seconds=0.03, epoch=4)
    bench.store.settle(token, done)
    assert [row.id for row in bench.store.moves()] == ["m1", "m2"]
    assert bench.store.moves()[0] == done
    assert bench.store.view().requests == {}  # nobody asked for them
    for i in range(KEPT_MOVES):
        bench.store.settle(token, MoveRequest(f"n{i}", P2, 1, "done", seconds=0.01))
    kept = bench.store.moves()
    assert len(kept) == KEPT_MOVES
    assert (kept[0].id, kept[-1].id) == ("n0", f"n{KEPT_MOVES - 1}")


def test_answered_requests_are_forgotten_in_time_and_open_ones_are_not(bench: Bench) -> None:
    token = begin(bench.store)
    bench.store.request(MoveRequest("open", P0, 2))
    for i in range(KEPT_ANSWERS + 5):
        asked = MoveRequest(f"m{i}", P1, 2)
        bench.store.request(asked)
        bench.store.settle(token, replace(asked, state="refused", seconds=0.1))
    found = bench.store.view().requests
    assert len(found) == KEPT_ANSWERS + 1
    assert "open" in found
    assert "m4" not in found


def test_instances_are_claimed_without_ordinals_surge_included(bench: Bench) -> None:
    begin(bench.store)
    lives = [worker(bench.store, nonce=n) for n in ("a1", "b1", "c1")]
    assert [o.instance for o in lives] == [1, 2, 3]
    surge = worker(bench.store, nonce="d1")  # a rolling deployment starts the new one before an old one goes
    assert surge.instance == 4
    bench.store.leave(lives[1])
    assert worker(bench.store, nonce="e1") == Owner(2, 2, "e1")


def test_what_a_newer_library_says_of_itself_is_no_obstacle(bench: Bench) -> None:
    token = begin(bench.store)
    if isinstance(bench, RedisBench):
        owner = worker(bench.store)
        kept = json.loads(bench.raw.hget(f"{bench.prefix}worker:1", "profile"))
        bench.raw.hset(f"{bench.prefix}worker:1", "profile", json.dumps({**kept, "zone": "b"}))
        bench.raw.hset(f"{bench.prefix}requests", "r1", json.dumps(
            {"id": "r1", "partition": "orders:0", "target": 1, "priority": "high"}
        ))  # fmt: skip
        view = bench.store.view()
        assert view.workers[1].owner == owner
        assert view.requests["r1"] == MoveRequest("r1", P0, 1)
    newer = replace(PROFILE, protocol=2)
    with pytest.raises(ProtocolRefused, match="worker speaks protocol 2, planner 1 to 1"):
        bench.store.claim(None, "zz", TTL, newer)
    bench.store.found(token, epoch_floor=0, protocols=(1, 2))  # a planner that speaks both works with either
    assert bench.store.claim(None, "aa", TTL, PROFILE).instance == 1
    assert bench.store.claim(None, "zz", TTL, newer).instance == 2


def test_a_released_group_receives_nobody_and_can_be_taken_again(bench: Bench) -> None:
    store = bench.store
    token = begin(store)
    a = worker(store)
    epoch = held(store, token, a, P0)
    store.set_released(True)
    assert store.view().released
    with pytest.raises(GroupReleased, match="headway adopt"):
        store.claim(None, "bb", TTL, PROFILE)
    assert not store.grant(token, P1, 1)
    store.release(a, P0, epoch, 7)
    store.set_released(False)
    assert held(store, token, a, P0) == epoch + 1


def test_a_plan_for_a_partition_that_does_not_exist_changes_nothing(bench: Bench) -> None:
    token = begin(bench.store)
    worker(bench.store)
    assert not bench.store.grant(token, TopicPartition("orders", 99), 1)
    assert not bench.store.grant(token, P0, 99)
    assert TopicPartition("orders", 99) not in bench.store.view().leases


def test_waiting_ends_when_something_changed(bench: Bench) -> None:
    token = begin(bench.store)
    worker(bench.store)
    while bench.store.wait("1", timedelta(milliseconds=1)):
        pass
    assert not bench.store.wait("1", timedelta(milliseconds=1))
    bench.store.grant(token, P0, 1)
    assert bench.store.wait("1", timedelta(seconds=5))


def test_a_restarted_server_counts_as_lost_although_its_file_was_kept(tmp_path: Path) -> None:
    with lease_server(tmp_path, durable=True) as server:
        store = RedisLeaseStore(server.url, "c", GROUP)
        token = begin(store)
        a = worker(store)
        server.kill()
        with pytest.raises(LeaseStoreUnavailable):
            store.view()
        server.start()
        # whatever was in flight when the connection broke must not run on the other server life
        with pytest.raises(LeaseStoreUnavailable, match="another server life"):
            store.take(a, P0)
        with pytest.raises(LeaseStoreLost):
            store.take(a, P0)
        assert store.is_lost()
        store.found(token, epoch_floor=1 << 20)
        assert worker(store, nonce="bb") == Owner(1, 1, "bb")
        store.close()


def test_books_that_moved_to_another_node_of_a_cluster_count_as_lost(cluster: list[Server]) -> None:
    home = next(n for n in cluster if n.port == urlsplit(Seat(cluster[0].url, KEY).find()).port)
    made = RedisBench(home, cluster[0])
    token = begin(made.store)
    a = worker(made.store)
    move_slot(cluster, slot(KEY))
    with pytest.raises(LeaseStoreUnavailable):
        made.store.take(a, P0)
    for _ in range(3):
        try:
            made.store.view()
        except LeaseStoreUnavailable:
            continue
        except LeaseStoreLost:
            break
    with pytest.raises(LeaseStoreLost):
        made.store.take(a, P0)
    assert made.store.is_lost()
    token = lead(made.store)
    made.store.found(token, epoch_floor=1 << 20)
    assert worker(made.store, nonce="bb") == Owner(1, 1, "bb")
    made.store.close()
    made.raw.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "claim",
                "ready",
                "grant",
                "take",
                "release",
                "withdraw",
                "expire",
                "fence",
                "end",
                "supersede",
                "leave",
                "drop",
                "add",
                "void",
                "drain",
            ]
        ),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_twin_and_script_agree_and_keep_the_invariants(server: Server, steps: list[tuple[str, int, int]]) -> None:
    benches: list[Bench] = [MemoryBench(), RedisBench(server, server)]
    tokens = [begin(b.store) for b in benches]
    owners: dict[int, Owner] = {}
    epochs: dict[TopicPartition, int] = {}
    for count, (step, i, p) in enumerate(steps):
        tp = TopicPartition("orders", p)
        answers = []
        before = benches[0].store.view()
        for bench, token in zip(benches, tokens, strict=True):
            try:
                answers.append(_apply(bench, token, owners, step, i, tp, f"n{count}", before))
            except (LeaseRefused, InstanceTaken) as refusal:
                answers.append(type(refusal))
        assert answers[0] == answers[1], step
        views = [b.store.view() for b in benches]
        assert views[0].leases == views[1].leases, step
        flags = [{i: (w.owner, w.live, w.ready, w.draining) for i, w in v.workers.items()} for v in views]
        assert flags[0] == flags[1], step
        if isinstance(answers[0], Owner):
            owners[i] = answers[0]
        for lease in views[0].leases.values():
            was = before.leases.get(lease.partition)
            if was is not None and was.state is LeaseState.FENCING and lease.state is LeaseState.HELD:
                pytest.fail("granted while FENCING (L5)")
            if lease.state is LeaseState.HELD and (was is None or was.owner != lease.owner):
                assert lease.epoch > epochs.get(lease.partition, 0), "epoch came back (L4)"
                epochs[lease.partition] = lease.epoch
    for bench in benches:
        bench.store.close()
        if isinstance(bench, RedisBench):
            bench.raw.close()


def _apply(
    bench: Bench,
    token: LeaderToken,
    owners: dict[int, Owner],
    step: str,
    i: int,
    tp: TopicPartition,
    nonce: str,
    before: object,
) -> object:
    store, owner = bench.store, owners.get(i, Owner(i, 1, "nobody"))
    lease = before.leases.get(tp)  # type: ignore[attr-defined]
    epoch = lease.epoch if lease else 0
    if step == "claim":
        return store.claim(i, nonce, TTL, PROFILE)
    if step == "ready":
        return store.renew(owner, TTL, READY).leases
    if step == "grant":
        return store.grant(token, tp, i)
    if step == "take":
        return store.take(owner, tp)
    if step == "release":
        return store.release(owner, tp, epoch, 11, 2)
    if step == "withdraw":
        return store.withdraw(token, tp)
    if step == "expire":
        return _expire(bench, i)
    if step == "fence":
        return store.begin_fence(token, i)
    if step == "end":
        return store.end_fence(token, i, 99)
    if step == "supersede":
        return store.supersede(token, i)
    if step == "leave":
        return store.leave(owner)
    if step == "drop":
        return store.drop(token, [tp])
    if step == "add":
        return store.add(token, [tp], StartRule.BEGINNING)
    if step == "void":
        return store.void(token, [tp], "again")
    return store.drain(token, i)


def _expire(bench: Bench, instance: int) -> None:
    if isinstance(bench, MemoryBench):
        life = bench.store._books.lives.get(instance)
        if life is not None:
            life.deadline = 0
    elif isinstance(bench, RedisBench) and bench.raw.exists(f"{bench.prefix}worker:{instance}"):
        bench.raw.hset(f"{bench.prefix}worker:{instance}", "deadline", 0)
