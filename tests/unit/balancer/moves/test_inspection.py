"""What brokers say while they start is no missing right."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from balancer.moves.inspection import answer


def after(*codes: int):
    """Return a question that is refused with these codes first."""
    waiting = list(codes)

    def question() -> str:
        if waiting:
            raise ck.KafkaException(ck.KafkaError(waiting.pop(0)))
        return "facts"

    return question


def test_a_coordinator_that_still_loads_is_asked_again() -> None:
    loads, moves = ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ck.KafkaError.NOT_COORDINATOR
    assert answer(after(loads, moves, loads), 60) == "facts"


def test_a_missing_right_is_raised_at_once_and_patience_ends() -> None:
    forbidden, loads = ck.KafkaError.GROUP_AUTHORIZATION_FAILED, ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ck.KafkaException):
        answer(after(forbidden), 60)
    with pytest.raises(ck.KafkaException):
        answer(after(loads, loads), 0)
