"""What else could have been decided: fewer members are cheaper and later, and the choice is among what is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.alternatives import level_masses
from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.planner import plan
from balancer.plans.codec import plan_from_json, plan_to_json
from balancer.policy import ScalingPolicy
from forecaster.forecast import Forecast, Rung
from forecaster.topics import GroupId, TopicPartition

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
ORDERS = TopicPartition("orders", 0)
POLICY = ScalingPolicy(capacity_per_member=20.0, lead_time=timedelta(seconds=120), cap_at_partitions=False)


def made_with(members: int, rate: float, ahead: float):
    seen = GroupSnapshot(
        GroupId("orders"),
        NOW,
        members,
        tuple(Member(f"m-{i}") for i in range(members)),
        {ORDERS: PartitionState(0, rate)},
    )
    rising = np.linspace(rate, ahead, 72)[:, None] * np.array([1.0, 1.1, 1.3])
    forecast = Forecast(
        "orders", NOW, timedelta(minutes=5), (0,), (0.5, 0.9, 0.98), rising[None], rising, "blend", Rung.OWN_MODEL
    )
    return plan(seen, forecast, POLICY, NOW).plan


@settings(deadline=None, max_examples=40)
@given(members=st.integers(1, 12), rate=st.floats(1.0, 200.0), ahead=st.floats(1.0, 400.0))
def test_each_alternative_has_its_cost(members: int, rate: float, ahead: float) -> None:
    made = made_with(members, rate, ahead)
    shown = {a.choice: a for a in made.alternatives}
    assert shown["chosen"].replicas == made.replicas and shown["hold"].replicas == members
    assert shown["hold"].rescales <= shown["one_more"].rescales
    late = [shown[k].late_records for k in ("one_less", "hold", "one_more") if k in shown]
    assert late == sorted(late, reverse=True) and late[-1] >= 0
    assert all(a.paid_hours > 0 and a.rescale_hours >= 0 for a in made.alternatives)
    assert plan_from_json(plan_to_json(made)) == made


def test_the_hold_of_a_group_that_fits_is_what_is_chosen() -> None:
    made = made_with(4, 60.0, 60.0)
    shown = {a.choice: a for a in made.alternatives}
    assert shown["chosen"].replicas == 4
    assert shown["hold"].paid_hours == pytest.approx(24.0) and shown["hold"].rescales == 0
    assert shown["one_less"].late_records > 0 == shown["one_more"].late_records


def test_reasons_hold_numbers_as_people_write_them() -> None:
    made = made_with(12, 11_470.0, 11_470.0)
    assert any("11," in reason or "12," in reason or "14," in reason for reason in made.reasons)
    assert not any("e+" in reason for reason in made.reasons)


def test_masses_of_levels_are_all_there_is() -> None:
    assert level_masses((0.5, 0.8, 0.9, 0.98, 0.995)).sum() == pytest.approx(1.0)
    assert level_masses((0.5,)).tolist() == [1.0]
