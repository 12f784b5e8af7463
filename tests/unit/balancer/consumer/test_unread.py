"""Partitions whose committed offsets do not come: what becomes of their leases, and what the broker is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import confluent_kafka as ck
import pytest

from balancer.consumer import WorkerSettings
from balancer.consumer.errors import HandlerMisuse, OffsetsUnread
from balancer.consumer.kafka import DataConsumer
from balancer.leases.base import Heartbeat
from tests.unit.balancer.consumer.test_pieces import WHERE
from tests.unit.balancer.consumer.test_pitfalls import P0, P1, Client, Stage, failure

TTL = timedelta(seconds=600)


def begun(stage: Stage) -> None:
    """Wait until one partition is consumed and the other waits for its offset."""
    stage.data.unstable.add(P0)
    stage.wait(stage.worker.is_ready.is_set)
    assert stage.store.grant(stage.token, P1, 1)
    stage.wait_renewing(lambda: P1 in stage.data.at)
    assert stage.store.grant(stage.token, P0, 1)
    stage.wait_renewing(lambda: "unread" in stage.told)
    assert stage.store.view().leases[P0].owner == stage.store.view().workers[1].owner


@pytest.mark.parametrize("asked", ["move", "drain", "release", "void"])
def test_a_lease_without_an_offset_is_given_up_when_that_is_asked(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    stage = Stage(monkeypatch, lease_ttl=TTL)
    begun(stage)
    second = stage.store.claim(2, "bb", TTL, stage.store.view().workers[1].profile)
    stage.store.renew(second, TTL, Heartbeat(initialised=True, ready=True))
    if asked == "move":
        assert stage.store.grant(stage.token, P0, 2)
    elif asked == "drain":
        assert stage.store.drain(stage.token, 1)
    elif asked == "release":
        stage.store.set_released(True)
    else:
        assert stage.store.void(stage.token, [P0], "again")
    stage.wait_renewing(lambda: stage.store.view().leases[P0].owner is None)
    assert stage.store.view().leases[P0].offset is None  # nobody knows it
    if asked == "move":
        assert stage.store.take(second, P0).owner == second
    stage.stop()
    assert stage.error is None


def test_a_worker_that_stops_gives_up_what_it_never_began_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, lease_ttl=TTL)
    begun(stage)
    stage.stop()
    view = stage.store.view()
    assert [lease.owner for lease in view.leases.values()] == [None, None]
    assert not view.workers[1].live


def test_a_worker_that_ends_by_a_fault_gives_up_what_it_never_began_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, lambda record: 5 if record.offset == 50 else None, lease_ttl=TTL)
    stage.data.ends = 50
    begun(stage)
    stage.data.ends = 100
    stage.thread.join(60)
    assert isinstance(stage.error, HandlerMisuse)
    view = stage.store.view()
    assert [lease.owner for lease in view.leases.values()] == [None, None]
    assert not view.workers[1].live


def test_why_no_offsets_come_is_asked_once_until_they_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    answers: list[list[Any]] = []

    class Silent(Client):
        def committed(self, wanted: list[Any], timeout: float) -> list[Any]:
            if answers:
                return answers.pop()
            raise failure(ck.KafkaError._TRANSPORT)

    monkeypatch.setattr(ck, "Consumer", Silent)
    data = DataConsumer(WorkerSettings(**WHERE), "c")
    monkeypatch.setattr(data, "_why_no_offsets", lambda: asked.append(1))
    for _ in range(3):
        with pytest.raises(OffsetsUnread):
            data.committed([P0], 3.0)
    assert asked == [1]
    answers.append([])
    assert data.committed([P0], 3.0) == {}
    with pytest.raises(OffsetsUnread):
        data.committed([P0], 3.0)
    assert asked == [1, 1]
    with pytest.raises(ck.KafkaException):  # as it says of a longer patience
        data.committed([P0])
