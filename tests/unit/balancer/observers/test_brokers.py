"""What the Kafka client's errors say: the brokers' state is told as such, and only what is left is ours."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from balancer.observers.brokers import _AWAY, _GONE, _MOVING, _REFUSES, Standing, brokers_say, standing
from headway.errors import one_line

CODES = {
    ck.KafkaError(code).name(): code
    for code in (getattr(ck.KafkaError, name) for name in dir(ck.KafkaError) if name.isupper())
    if isinstance(code, int)
}
OURS = ("INVALID_REQUEST", "UNSUPPORTED_VERSION", "_INVALID_ARG", "_STATE", "_CONFLICT", "INVALID_TXN_STATE", "UNKNOWN")


def raised(name: str, **more: bool) -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(CODES[name], f"said {name}", **more))


@pytest.mark.parametrize("name", sorted(_MOVING | _AWAY | _GONE | set(_REFUSES)))
def test_the_brokers_state_is_never_a_fault_of_ours(name: str) -> None:
    """Every name is one that the client knows, so that a misspelt one is found."""
    said = one_line(raised(name))
    assert "fault of ours" not in said
    assert "unexpected" not in said
    assert f"{name}: said {name}" in said
    assert "; " in said  # and what follows from it


@pytest.mark.parametrize("name", OURS)
def test_what_cannot_be_meant_stays_ours(name: str) -> None:
    assert brokers_say(raised(name)) is None
    assert "fault of ours" in one_line(raised(name))


@pytest.mark.parametrize("name", OURS)
def test_what_the_client_would_try_again_is_the_brokers_state(name: str) -> None:
    assert standing(raised(name, retriable=True).args[0]) is Standing.MOVING


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("_TIMED_OUT", Standing.AWAY),
        ("NOT_COORDINATOR", Standing.MOVING),
        ("GROUP_AUTHORIZATION_FAILED", Standing.REFUSES),
        ("UNKNOWN_TOPIC_OR_PART", Standing.GONE),
    ],
)
def test_kinds_are_told_apart(name: str, where: Standing) -> None:
    assert standing(raised(name).args[0]) is where


def test_an_answer_that_does_not_come_is_not_ours_and_other_faults_are() -> None:
    assert "no answer in time" in one_line(TimeoutError())
    assert "no answer in time (30 s are over)" in one_line(TimeoutError("30 s are over"))
    for error in (RuntimeError("consumer is closed"), ValueError("bad"), RuntimeError()):
        assert brokers_say(error) is None
        assert "fault of ours" in one_line(error)
