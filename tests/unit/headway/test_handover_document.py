"""Who holds and gets what in a planned group, and what is said where the store does not tell."""

from datetime import timedelta

import pytest

from balancer.leases.base import Heartbeat, LeaseStoreUnavailable, StartRule, WorkerProfile
from balancer.leases.memory import MemoryLeaseStore
from forecaster.topics import GroupId, TopicPartition
from headway.cli.plan import _print_document
from headway.consumers.handover_document import handover_document

TTL = timedelta(seconds=5)
GROUP, P = GroupId("orders"), [TopicPartition("orders", n) for n in range(2)]


@pytest.fixture
def leases():
    store = MemoryLeaseStore(GROUP, clock=lambda: 100.0)
    token = store.lead("planner", TTL)
    store.found(token, epoch_floor=0)
    store.add(token, P, StartRule.POLICY)
    for instance in (1, 2):
        owner = store.claim(instance, "aa", TTL, WorkerProfile(pod=f"pod-{instance}"))
        store.renew(owner, TTL, Heartbeat(initialised=True, ready=True, capacity=100.0, rate=40.0, busy=0.4))
        if instance == 1:
            store.grant(token, P[0], 1)
            store.take(owner, P[0])
    store.grant(token, P[0], 2)  # on its way
    store.publish(token, {"assignment": {"orders:0": 2, "orders:1": 1}, "reasons": ["1 would carry 120 %"]})
    return store


def test_who_holds_and_who_gets_is_shown(leases, capsys):
    document = handover_document(leases)
    handover = document["handover"]
    assert [(r["state"], r["owner"], r["next"], r["planned"]) for r in handover["partitions"]] == [
        ("HELD", 1, 2, 2),
        ("FREE", None, None, 1),
    ]
    assert [(w["instance"], w["state"], w["partitions"], w["rate"]) for w in handover["workers"]] == [
        (1, "ready", 1, 40.0),
        (2, "ready", 0, 40.0),
    ]
    _print_document({"version": None, "steps": [], "reasons": ["no plan yet"], **document})
    out, err = capsys.readouterr()
    assert "no plan yet" in err
    assert "1 would carry 120 %" in err
    assert ["orders:0", "HELD", "1", "2", "2", "1"] in [line.split() for line in out.splitlines()]


def test_a_silent_store_is_no_empty_group(leases, monkeypatch, capsys):
    def silent():
        raise LeaseStoreUnavailable("nobody answers")

    monkeypatch.setattr(leases, "view", silent)
    document = handover_document(leases)
    assert document == {"handover": None, "handover_why": "nobody answers"}
    _print_document({"version": None, "steps": [], "reasons": [], **document})
    assert "not known: nobody answers" in capsys.readouterr().err
