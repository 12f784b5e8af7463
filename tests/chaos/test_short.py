"""A few fault schedules for every build; ``make chaos`` runs hundreds."""

from __future__ import annotations

import pytest

from tests.chaos.run import run
from tests.peers.kafka import Kafka

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("seed", [1, 4, 5], ids=["transactional", "sink", "at_least_once"])
def test_random_faults_lose_repeat_and_reorder_nothing(seed: int, kafka: Kafka) -> None:
    result = run(seed, kafka, seconds=8.0)
    assert result.verdict.is_clean, f"{result}: replay with python -m tests.chaos --seed {seed}"
    assert result.verdict.produced > 200  # a second's worth, of eight
