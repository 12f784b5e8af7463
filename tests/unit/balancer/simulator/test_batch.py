"""Runs side by side count late records as the exact simulation does."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.batch import Integers, Seen, run_batch
from balancer.simulator.world import World, run_path

T0 = datetime(2026, 1, 5, tzinfo=UTC)


class Steady:
    """As many members as there were."""

    def decide(self, seen: Seen) -> Integers:
        return seen.requested


@pytest.mark.parametrize("slot_s", [15, 60])
@given(minutes=arrays(np.float64, 30, elements=st.floats(0, 3000)), slo_s=st.sampled_from([60.0, 120.0]))
@settings(max_examples=40, deadline=None)
def test_late_records_are_counted_and_a_few_more_where_a_queue_runs_empty_within_a_slot(
    minutes: np.ndarray, slo_s: float, slot_s: int
) -> None:
    minutes[0] = 900.0  # two members of 10 records/s, whatever comes
    minutes[-4:] = 0.0
    world = World(ArrivalTrace(T0, 60, minutes[None]), T0, T0 + 30 * (T0.replace(minute=1) - T0), 10.0, slo_s=slo_s)
    exact = run_path(world, np.full(30, 2))
    tried = run_batch(Steady(), world.setting(minutes[None], minutes[:1]), np.zeros(1, np.int64), slot_s=slot_s)
    assert exact.late_share - 1e-6 <= tried.late_share[0] <= exact.late_share + 0.2
