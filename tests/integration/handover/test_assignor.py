"""The classic assignor in a real kafka-python group."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer

from balancer.consumer.assignor import PlannedAssignor, share_out
from forecaster.topics import TopicPartition
from tests.integration.handover.pool import Pool

TPS = [TopicPartition("t", i) for i in range(8)]


@given(
    st.lists(st.floats(0, 100), min_size=8, max_size=8),
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from(TPS), max_size=4), min_size=1),
)
def test_every_partition_has_one_owner_and_nobody_far_above_its_share(
    loads: list[float], owned: dict[str, list[TopicPartition]]
) -> None:
    weights = dict(zip(TPS, loads, strict=True))
    found = share_out(weights, owned)
    assert sorted(tp for mine in found.values() for tp in mine) == TPS
    mean = sum(loads) / len(owned)
    for mine in found.values():
        assert sum(weights[tp] for tp in mine) <= 1.1 * mean + max(loads) + 1e-6


@pytest.mark.kafka
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_subscribed_group_shares_out_by_the_plans_weights(pool: Pool) -> None:
    pool.create(pool.topic, partitions=4)
    weights = {TopicPartition(pool.topic, p): w for p, w in enumerate((90.0, 30.0, 30.0, 30.0))}

    def member(name: str) -> KafkaConsumer:
        return KafkaConsumer(
            pool.topic,
            bootstrap_servers=pool.bootstrap.split(","),
            group_id=pool.group,
            client_id=name,
            partition_assignment_strategy=[PlannedAssignor(lambda: weights, name)],
        )

    members = [member("a"), member("b")]
    end = time.monotonic() + 40
    shares: list[set[int]] = []
    while time.monotonic() < end:
        for one in members:
            one.poll(timeout_ms=100)
        shares = [{tp.partition for tp in one.assignment()} for one in members]
        if all(shares):
            break
    for one in members:
        one.close()
    assert sorted(map(sorted, shares)) == [[0], [1, 2, 3]]
