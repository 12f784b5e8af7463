"""The classic assignor in a real kafka-python group."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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

    shares: dict[str, set[int]] = {}
    shared_out = threading.Event()

    def member(name: str) -> None:
        # A thread each, as if processes: a member that waits for the other to join must not keep it from joining.
        consumer = KafkaConsumer(
            pool.topic,
            bootstrap_servers=pool.bootstrap.split(","),
            group_id=pool.group,
            client_id=name,
            partition_assignment_strategy=[PlannedAssignor(lambda: weights, name)],
        )
        try:
            while not shared_out.is_set():
                consumer.poll(timeout_ms=500)
                shares[name] = {tp.partition for tp in consumer.assignment()}
                if sorted(map(sorted, list(shares.values()))) == [[0], [1, 2, 3]]:
                    shared_out.set()
        finally:
            consumer.close()

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(member, name) for name in "ab"]
        try:
            assert shared_out.wait(120), f"two members share four partitions out as {shares}"
        finally:
            shared_out.set()
        for one in running:
            one.result(60)
