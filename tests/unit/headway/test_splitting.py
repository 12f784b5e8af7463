from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from balancer.group import Member
from balancer.leases.base import GroupView, Lease, LeaseState, Owner, WorkerProfile, WorkerState
from balancer.moves.splitting import SplitLimits, TopicLeader
from balancer.plan import Bound, PlannedStep, Proposal, ScalingPlan
from balancer.routing import protocol
from balancer.routing.base import Registration
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from forecaster.forecast import Forecast, Rung
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.sections import GroupSettings, KafkaSettings, StoreSettings, TopicSettings
from headway.consumers import lane_desk
from headway.consumers.lane_desk import LaneDesk, with_splits
from headway.consumers.splitting import SplitTender, idle_share
from tests.unit.balancer.moves.routed_world import MemoryWorld
from tests.unit.headway.conftest import a_snapshot

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
TABLE = protocol.adopt("orders", "id-1", 2, "crc32", ["billing"])


def forecast(*rows: float, steps: int = 24) -> Forecast:
    rates = np.repeat(np.array(rows)[:, None, None], steps, axis=1)
    return Forecast(
        "orders",
        NOW,
        timedelta(minutes=15),
        tuple(range(len(rows))),
        (0.9,),
        rates,
        rates.sum(axis=0),
        "t",
        Rung.OWN_MODEL,
    )


def tender(store: MemoryRouteStore, rows: tuple[float, ...], acts: bool = True, **more: Any) -> SplitTender:
    settings = TopicSettings(groups=("billing",), max_partitions=6, hash="crc32")
    return SplitTender("orders", settings, store, lambda: forecast(*rows), lambda: 100.0, lambda now: acts, **more)


def test_in_recommend_a_split_is_shown_and_nobody_is_asked() -> None:
    store = MemoryRouteStore()
    store.publish(TABLE)
    (split,) = tender(store, (150.0, 20.0), acts=False).look(NOW)
    assert split.kind == "split" and store.requests("orders") == ()


def test_in_act_what_is_due_is_asked_for_once_and_carried_out() -> None:
    store, world, log = MemoryRouteStore(), MemoryWorld(), MemoryTableLog()
    limits = SplitLimits(max_partitions=6)
    leader = TopicLeader(world, log, store, ["billing"], "crc32", limits, wall=NOW.timestamp)
    leader.step()
    looked = tender(store, (150.0, 20.0))
    looked.look(NOW)
    (asked,) = store.requests("orders")
    assert (asked.kind, asked.partition, asked.lanes) == ("split", 0, 2) and asked.placement
    looked.look(NOW + timedelta(seconds=15))
    assert len(store.requests("orders")) == 1
    leader.step()
    store.close_gates("orders", "billing", leader.table.epoch)
    for _ in range(5):
        leader.step()
    assert set(leader.table.moved) == set(asked.placement[0])
    # the peak is over, the forecast stays low: after the dwell it is merged, by a process that has just begun too
    begun = tender(store, (10.0, 10.0, 10.0))
    assert begun.look(NOW + timedelta(minutes=5)) == () and len(store.requests("orders")) == 1
    looked._forecast = begun._forecast
    looked.look(NOW + timedelta(hours=2))
    assert [r.kind for r in store.requests("orders")] == ["split", "merge"]


def test_a_split_that_costs_more_than_a_bigger_member_is_shown_with_both_prices_and_not_asked_for() -> None:
    for fastest, asked in ((None, 1), (100.0, 1), (101.0, 1), (130.0, 0), (400.0, 1)):
        store = MemoryRouteStore()
        store.publish(TABLE)
        looked = tender(store, (125.0, 20.0), fastest=lambda fastest=fastest: fastest)
        (split,) = looked.look(NOW)
        assert len(store.requests("orders")) == asked, fastest
        # six hours: one member more, or one that is faster by the part that it is
        assert split.price == 6.0 and split.others == (
            {} if (fastest or 0) < 125 else {"faster_member": pytest.approx((fastest / 100 - 1) * 6)}
        )


def test_the_groups_hot_share_says_how_full_a_lane_gets_and_what_a_hot_key_is() -> None:
    store, key = hot_store(100.0)
    lanes = {}
    for share in (0.4, 0.8, 1.0):
        unsampled = MemoryRouteStore()
        unsampled.publish(TABLE)
        (split,) = tender(unsampled, (150.0, 20.0), acts=False, hot_share=share).look(NOW)
        lanes[share] = split.lanes
        looked = tender(store, (60.0, 20.0), acts=False, hot_share=share)  # the key takes 90 % of what comes
        looked.look(NOW)
        assert [k.key for k in looked.hot_keys(NOW)] == ([key] if share < 1 else []), share
    assert lanes == {0.4: 4, 0.8: 2, 1.0: 2}
    # what is split at a low share is not merged back at once
    store.publish(replace(TABLE, epoch=9, moved=dict.fromkeys(TABLE.slots_of(0)[::2], 2)))
    for share, merged in ((0.8, 1), (0.4, 0)):
        assert len(tender(store, (15.0, 15.0, 15.0), acts=False, hot_share=share).look(NOW)) == merged


def test_a_hot_key_is_found_in_the_samples_of_producers() -> None:
    store = MemoryRouteStore()
    store.publish(TABLE)
    who = Registration("p", "n", ("orders",), "headway.route.p")
    key = next(k for k in (b"c%d" % i for i in range(50)) if TABLE.partition_of_key(k) == 0)
    store.renew(who, timedelta(seconds=600), {}, {"orders": (key.hex(),) * 45}, {"orders": 170.0})
    looked = tender(store, (150.0, 20.0), acts=False)
    (split,) = looked.look(NOW)
    assert split.refused is None  # 45 sampled records are too few to say that a key is hotter than a member
    for i in range(1, 6):
        store.renew(who, timedelta(seconds=600), {}, {"orders": (key.hex(),) * (45 + i)}, {"orders": 170.0})
        (split,) = looked.look(NOW + timedelta(seconds=i))
    assert split.refused is not None and f"key {key.decode()} alone takes" in split.refused
    assert store.requests("orders") == ()


def a_view(cpu: float, keys: tuple[str, ...]) -> GroupView:
    owner = Owner(1, 1, "a")
    p = TopicPartition("orders", 0)
    beat = {"cpu": cpu, "rate": 90.0, "keys": {"orders": keys}}
    worker = WorkerState(owner, True, timedelta(seconds=1), True, True, False, WorkerProfile(), beat)
    return GroupView(1, 1, {1: worker}, {p: Lease(p, LeaseState.HELD, owner, 1)}, {})


def test_workers_lend_their_cpu_and_where_producers_are_silent_their_keys() -> None:
    store = MemoryRouteStore()
    store.publish(TABLE)
    own, count = TopicSettings(groups=("billing",), max_partitions=6, hash="crc32"), itertools.count(40)
    key = next(k for k in (b"c%d" % i for i in range(50)) if TABLE.partition_of_key(k) == 0)
    looked = SplitTender(
        "orders", own, store, lambda: forecast(70.0, 20.0), lambda: 100.0, lambda now: False,
        workers=lambda: a_view(0.97, (key.hex(),) * next(count)), cpu_limit=0.8,
    )  # fmt: skip
    assert looked.look(NOW) == ()  # one heartbeat may be an outlier
    for i in range(8):
        (split,) = looked.look(NOW + timedelta(seconds=1 + i))
    assert "97% of a core (limit 80%)" in split.reason and split.refused is not None
    assert f"key {key.decode()} alone takes" in split.refused


def test_what_an_idle_worker_uses_is_known_only_from_one_that_says_so() -> None:
    view = a_view(0.06, ())
    (worker,) = view.workers.values()
    assert (idle_share(None), idle_share(view)) == (0.0, 0.0)  # it does not say whether it is busy
    for busy, idle in ((0.5, 0.0), (0.01, 0.06)):
        beat = {**worker.heartbeat, "busy": busy}
        assert idle_share(replace(view, workers={1: replace(worker, heartbeat=beat)})) == idle


def hot_store(rate: float) -> tuple[MemoryRouteStore, str]:
    """Return a store whose one producer sends nine tenths of its records under one key of partition 0."""
    store = MemoryRouteStore()
    store.publish(TABLE)
    who = Registration("p", "n", ("orders",), "headway.route.p")
    keys = [k for k in (b"c%d" % i for i in range(50)) if TABLE.partition_of_key(k) == 0]
    sample = (keys[0].hex(),) * 45 + tuple(k.hex() for k in keys[1:6])
    store.renew(who, timedelta(seconds=600), {}, {"orders": sample}, {"orders": rate})
    return store, keys[0].decode()


def test_live_hot_keys_bound_the_plan_and_are_named_in_it() -> None:
    store, key = hot_store(150.0)
    desk = LaneDesk([tender(store, (100.0, 20.0), acts=False)], frozenset({"orders"}), "UTC")
    said = forecast(100.0, 20.0)
    assert desk.routing().keys == () and desk.laid_out(said, NOW) is said  # before the first look there is no sample
    desk.advice(NOW)
    (hot,) = desk.routing().keys
    assert (str(hot.partition), hot.key) == ("orders:0", key) and hot.share == 1.35
    found = [p for p in desk.advice(NOW) if p.kind == "key"]
    assert [p.subject for p in found] == [f"orders:0/{key}"] and "135% of a member" in found[0].text


def test_recommend_says_how_a_split_is_accepted_and_act_does_it() -> None:
    for acts in (False, True):
        store = MemoryRouteStore()
        store.publish(TABLE)
        desk = LaneDesk([tender(store, (150.0, 20.0), acts=acts)], frozenset({"orders"}), "UTC")
        (shown,) = desk.advice(NOW)
        assert shown.kind == "split" and len(store.requests("orders")) == acts
        assert ("headway split --topic orders --partition 0 --lanes 2" in shown.text) is not acts


def test_arrivals_and_cpu_count_without_a_forecast_too() -> None:
    store = MemoryRouteStore()
    store.publish(TABLE)
    own = TopicSettings(groups=("billing",), max_partitions=6, hash="crc32")
    rates = {0: 95.0, 1: 20.0}
    looked = SplitTender(
        "orders", own, store, lambda: None, lambda: 100.0, lambda now: True, arriving=lambda: rates,
        fastest=lambda: 100.0,
    )  # fmt: skip
    assert looked.look(NOW) == ()  # seen once: it may be an outlier
    (split,) = looked.look(NOW + timedelta(seconds=15))
    assert "takes 95% of a member (limit 80%)" in split.reason and len(store.requests("orders")) == 1
    idle = SplitTender(
        "orders", own, store, lambda: None, lambda: 100.0, lambda now: False,
        workers=lambda: a_view(0.97, ()), cpu_limit=0.8,
    )  # fmt: skip
    assert idle.look(NOW) == () and "97% of a core" in idle.look(NOW)[0].reason


def test_a_lane_is_planned_by_its_slots_and_its_parent_is_not_split_again() -> None:
    """The forecast still has the parent's past at 300 %: what its lanes took over must not be asked for once more."""
    store = MemoryRouteStore()
    slots = TABLE.slots_of(0)
    store.publish(replace(TABLE, epoch=9, moved={s: 2 + i % 4 for i, s in enumerate(slots) if i % 5}))
    looked = tender(store, (300.0, 20.0))
    assert looked.look(NOW) == () and store.requests("orders") == ()
    laid = LaneDesk([looked], frozenset({"orders"}), "UTC").laid_out(forecast(300.0, 20.0), NOW)
    assert laid.partitions == (0, 1, 2, 3, 4, 5)
    assert laid.rates[:, 0, 0].round(0).tolist() == [60.0, 20.0, 60.0, 60.0, 60.0, 60.0]


def test_a_group_below_a_split_of_the_past_is_named_in_the_plan() -> None:
    store = MemoryRouteStore()
    store.publish(TABLE)
    own = TopicSettings(groups=("billing",), hash="crc32")
    said = ["group billing goes on before offset 50 of orders:0"]
    looked = SplitTender(
        "orders", own, store, lambda: None, lambda: 100.0, lambda now: False, behind=lambda table: said,
    )  # fmt: skip
    (shown,) = LaneDesk([looked], frozenset({"orders"}), "UTC").advice(NOW)
    assert (shown.kind, shown.subject, shown.text) == ("order", "orders", said[0])


def test_an_absent_store_or_forecast_plans_nothing() -> None:
    store = MemoryRouteStore()
    assert tender(store, (150.0, 20.0)).look(NOW) == ()
    store.publish(TABLE)
    store.away = True
    assert tender(store, (150.0, 20.0)).look(NOW) == ()


def test_splits_take_the_place_of_general_advice_on_the_same_partition() -> None:
    general = (Proposal("split", "orders:0", "it can be split once"), Proposal("batching", "orders:0", "batches"))
    plan = ScalingPlan(GroupId("g"), NOW, (PlannedStep(NOW, 1, 1.0),), Bound(), (), proposals=general)
    ours = Proposal("split", "orders:0", "split into 2 lanes")
    assert [p.text for p in with_splits(plan, [ours]).proposals] == ["batches", "split into 2 lanes"]


def test_the_desk_takes_capacity_from_the_slowest_group_and_the_share_from_its_own(monkeypatch, application) -> None:
    settings = application.settings.model_copy(
        update={
            "topics": {"orders": TopicSettings(groups=("orders", "bills"), max_partitions=6, hash="crc32")},
            "kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1"),
            "store": StoreSettings(url="redis://127.0.0.1:1"),
            "groups": application.settings.groups | {"orders": GroupSettings(topics=("orders",), hot_share=0.6)},
        }
    )
    monkeypatch.setattr(lane_desk, "open_routes", lambda settings: MemoryRouteStore())
    application.settings = settings
    (looked,) = lane_desk.lanes_of(application, "orders")._tenders.values()
    assert looked._policy.limit == 0.6 and looked._policy.merge_below == pytest.approx(0.375)
    assert (looked._capacity(), looked._fastest()) == (None, None)
    for name, capacity, members in (("orders", 50.0, (None, 70.0)), ("bills", 40.0, (40.0, 45.0))):
        view = application.view(name)
        view.capacity_per_member = capacity
        view.snapshot = replace(a_snapshot(), members=tuple(Member(f"{c}", capacity=c) for c in members))
        assert (looked._capacity(), looked._fastest()) == ((50.0, 70.0) if name == "orders" else (40.0, 45.0))
