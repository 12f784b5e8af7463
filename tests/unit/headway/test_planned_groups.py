"""Planned groups in serve: when a plan is followed, how moves are shown, and what closes act to them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from balancer.errors import ObserverUnavailable
from balancer.leases.base import (
    Heartbeat,
    LeaseStoreUnavailable,
    MoveRequest,
    StartRule,
    WorkerProfile,
)
from balancer.leases.memory import MemoryLeaseStore
from balancer.moves.promises import BrokerFacts, InternalTopic, doubts
from balancer.observers.planned import PlannedGroupObserver
from forecaster.topics import GroupId, TopicPartition
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.consumers.handover_document import move_documents
from headway.consumers.planned_groups import moves_of, plan_to_follow, with_workers
from headway.operation.doctor_planned import against_moving, findings
from headway.work.jobs import Jobs
from tests.unit.headway.conftest import NOW, a_plan, a_snapshot

GROUP, P0 = GroupId("orders"), TopicPartition("orders", 0)
TTL = timedelta(seconds=5)


@pytest.fixture
def planned(application):
    application.settings = Settings(
        groups={
            "orders": {"topics": ["orders"], "mode": "act", "assignment": "planned"},
            "bills": {"topics": ["bills"]},
        }
    )
    return application


def published(app):
    token = app.plans.lead(GROUP, "me", TTL)
    app.plans.publish(a_plan(), token)


def test_a_plan_is_followed_in_act_while_it_is_fresh_and_nobody_paused_the_group(planned):
    assert plan_to_follow(planned, "orders") is None  # there is none yet
    published(planned)
    assert plan_to_follow(planned, "orders") == (1, a_plan())
    planned.operations.pause("orders", "ann", NOW)
    assert plan_to_follow(planned, "orders") is None
    planned.operations.resume("orders", "ann", NOW)
    planned.operations.set_mode("orders", Mode.SHADOW, "ann", NOW)
    assert plan_to_follow(planned, "orders") is None
    planned.operations.set_mode("orders", Mode.ACT, "ann", NOW)
    planned.clock = lambda: NOW + timedelta(minutes=6)
    assert plan_to_follow(planned, "orders") is None  # whoever made it may be gone


def test_without_a_store_of_their_own_planned_groups_are_told_so_and_not_moved(planned):
    observer, jobs = object(), Jobs(planned.board, planned.metrics)
    assert with_workers(planned, "bills", observer, jobs) is observer
    assert with_workers(planned, "orders", observer, jobs) is observer
    assert "set store.url" in planned.view("orders").problems["moves"]
    assert jobs._beside == []
    assert against_moving(planned.settings, "bills") == ()
    (why,) = against_moving(planned.settings, "orders")
    assert "embedded store" in why
    assert [(name, ok) for name, ok, _, _ in findings(planned.settings)] == [("planned orders", False)]
    assert moves_of(planned.settings, "orders") == []


def test_moves_are_shown_the_latest_first():
    store = MemoryLeaseStore(GROUP, clock=lambda: 100.0)
    token = store.lead("planner", TTL)
    store.found(token, epoch_floor=0)
    first = MoveRequest("m1", P0, 2, "releasing", source=1, at="2026-01-05T09:00:00.000Z")
    store.settle(token, first)
    store.settle(token, MoveRequest("m2", P0, 9, "refused", "instance 9 does not exist", 60.0))
    store.settle(token, replace(first, state="done", seconds=0.031, epoch=8))
    assert [(d["id"], d["from"], d["to"], d["state"], d["seconds"]) for d in move_documents(store)] == [
        ("m2", None, 9, "refused", 60.0),
        ("m1", 1, 2, "done", 0.031),
    ]


class Seen:
    def observe(self, group):
        return a_snapshot()

    def close(self):
        pass


def test_a_planned_groups_members_are_its_workers(monkeypatch):
    store = MemoryLeaseStore(GROUP, clock=lambda: 100.0)
    observer = PlannedGroupObserver(Seen(), store, lambda: 500.0)
    assert observer.observe(GROUP).members == ()  # not founded yet
    token = store.lead("planner", TTL)
    store.found(token, epoch_floor=0)
    store.add(token, [P0], StartRule.POLICY)
    owner = store.claim(None, "aa", TTL, WorkerProfile())
    store.renew(owner, TTL, Heartbeat(initialised=True, ready=True))
    store.grant(token, P0, 1)
    store.take(owner, P0)
    seen = observer.observe(GROUP)
    assert [(m.id, m.partitions, m.ready) for m in seen.members] == [("1#1.aa", (P0,), True)]
    assert (seen.protocol.value, seen.replicas) == ("planned", 2)

    def silent():
        raise LeaseStoreUnavailable("nobody answers")

    monkeypatch.setattr(store, "view", silent)
    with pytest.raises(ObserverUnavailable, match="nobody answers"):
        observer.observe(GROUP)


def test_racks_of_leaders_are_asked_for_while_a_worker_says_its_own(monkeypatch):
    store, asked, at = MemoryLeaseStore(GROUP, clock=lambda: 100.0), [], a_snapshot().at

    def racks():
        asked.append(1)
        if len(asked) > 1:
            raise OSError("brokers are away")
        return {P0: "eu-1a"}

    class Later(Seen):
        minutes = 0

        def observe(self, group):
            return replace(a_snapshot(), at=at + timedelta(minutes=self.minutes))

    later = Later()
    observer = PlannedGroupObserver(later, store, lambda: 500.0, racks)
    token = store.lead("planner", TTL)
    store.found(token, epoch_floor=0)
    store.claim(None, "aa", TTL, WorkerProfile())
    assert observer.observe(GROUP).racks == {} and asked == [], "nobody says where it runs"
    store.claim(None, "bb", TTL, WorkerProfile(rack="eu-1a"))
    for later.minutes, looks in ((0, 1), (0, 1), (2, 2)):
        seen = observer.observe(GROUP)
        assert ([m.rack for m in seen.members], seen.racks) == ([None, "eu-1a"], {P0: "eu-1a"})
        assert len(asked) == looks, "once a minute; what was seen last where brokers are silent"


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (BrokerFacts(3, (InternalTopic("__consumer_offsets", 3, 2, True),)), ["unclean leader election"]),
        (BrokerFacts(3, (InternalTopic("__consumer_offsets", 2, 2, False),)), ["2 copies"]),
        (BrokerFacts(3, (InternalTopic("__consumer_offsets", None, None, None),)), []),
        (BrokerFacts(3, (), timedelta(hours=24)), ["forget offsets 24 h after the last commit"]),
        (BrokerFacts(3, (), timedelta(days=7)), []),
        (BrokerFacts(3, (), None, {"Read on group g": "refused"}), ["Read on group g: refused"]),
    ],
)
def test_what_fences_and_offsets_rest_on_is_judged(facts, says):
    found = doubts(facts)
    assert len(found) == len(says)
    for doubt, text in zip(found, says, strict=True):
        assert text in doubt.what
        assert doubt.closes
        assert doubt.remedy
