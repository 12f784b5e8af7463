"""Membership mode: what a commit that did not come off means, with clients that a test plays."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from balancer.consumer import Mode, WorkerSettings
from balancer.consumer.errors import BrokerRefused, OffsetsNotCommitted, TransactionAborted, WorkerFenced
from balancer.consumer.membership import MembershipEffects
from forecaster.topics import TopicPartition
from tests.unit.balancer.consumer.test_pieces import WHERE

ROWS = {TopicPartition("t", 0): (7, None, "")}
AWAY = [
    ck.KafkaError._WAIT_COORD,  # what a commit says after one session timeout without any broker
    ck.KafkaError._TRANSPORT,
    ck.KafkaError._ALL_BROKERS_DOWN,
    ck.KafkaError._TIMED_OUT,
    ck.KafkaError.REQUEST_TIMED_OUT,
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
]


class Row:
    """What the broker says of one partition."""

    def __init__(self, code: int) -> None:
        self.topic, self.partition, self.error = "t", 0, ck.KafkaError(code)


class Client:
    """A member and a producer at once, that a broker answers as told."""

    def __init__(self) -> None:
        self.id, self.unwritten = "m-1", 0
        self.answer: ck.KafkaException | list[Row] = []
        self.commits = 0

    def memberid(self) -> str:
        return self.id

    def poll(self, _: float) -> None:
        return None

    def flush(self, _: float) -> int:
        return self.unwritten

    def commit(self, *, offsets: Any, asynchronous: bool) -> list[Row]:
        assert not asynchronous, "a commit that is still on its way could land after the next owner's"
        self.commits += 1
        if isinstance(self.answer, ck.KafkaException):
            raise self.answer
        return self.answer


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(ck, "Consumer", lambda _: made)
    monkeypatch.setattr(ck, "Producer", lambda _: made)
    return made


def member(client: Client) -> MembershipEffects:
    effects = MembershipEffects(WorkerSettings(**WHERE, mode=Mode.MEMBERSHIP, membership_topic="m"), "c")
    effects._id = client.id
    return effects


@pytest.mark.parametrize("code", AWAY)
def test_brokers_that_are_away_leave_offsets_to_be_committed_again(client: Client, code: int) -> None:
    effects = member(client)
    for client.answer in (ck.KafkaException(ck.KafkaError(code)), [Row(code)]):
        with pytest.raises(OffsetsNotCommitted):
            effects.commit(ROWS, None)
    client.answer = []
    effects.commit(ROWS, None)
    assert client.commits == 3


@pytest.mark.parametrize("code", [ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.UNKNOWN_MEMBER_ID])
def test_k44_a_group_that_says_no_ends_this_life(client: Client, code: int) -> None:
    effects = member(client)
    for client.answer in (ck.KafkaException(ck.KafkaError(code)), [Row(code)]):
        with pytest.raises(WorkerFenced, match="removed this member"):
            effects.commit(ROWS, None)
    client.answer = [Row(ck.KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(BrokerRefused):
        effects.commit(ROWS, None)


def test_k44_a_client_that_joined_again_by_itself_commits_nothing(client: Client) -> None:
    effects = member(client)
    client.answer = ck.KafkaException(ck.KafkaError(ck.KafkaError._WAIT_COORD))
    with pytest.raises(OffsetsNotCommitted):
        effects.commit(ROWS, None)
    client.answer, client.id = [], "m-2"
    with pytest.raises(WorkerFenced, match="joined anew"):
        effects.commit(ROWS, None)
    assert client.commits == 1


def test_offsets_wait_for_results_that_brokers_have_not_confirmed(client: Client) -> None:
    effects = member(client)
    client.unwritten = 2
    with pytest.raises(TransactionAborted, match="2 results were not written") as aborted:
        effects.commit(ROWS, None)
    assert not isinstance(aborted.value, OffsetsNotCommitted)  # their records are run again
    assert client.commits == 0
