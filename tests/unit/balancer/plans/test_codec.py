"""Plans and decisions through JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.plan import Bound, BoundKind, Move, PlannedStep, Proposal, ScalingPlan
from balancer.plans import codec
from balancer.plans.base import Decision
from forecaster.topics import GroupId, TopicPartition

instants = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=8), st.integers(0, 10**6))
steps = st.builds(
    PlannedStep,
    instants,
    st.integers(0, 1000),
    st.floats(0, 1e12),
    st.none() | st.dictionaries(st.text(max_size=6), st.lists(partitions, max_size=3).map(tuple), max_size=3),
    st.lists(st.builds(Move, partitions, st.none() | st.text(max_size=4), st.text(max_size=4)), max_size=3).map(tuple),
)
plans = st.builds(
    ScalingPlan,
    st.text(max_size=9).map(GroupId),
    instants,
    st.lists(steps, min_size=1, max_size=4).map(tuple),
    st.builds(Bound, st.sampled_from(BoundKind), st.none() | st.text(max_size=5), st.none() | instants),
    st.lists(st.text(max_size=9), max_size=3).map(tuple),
    st.none() | st.integers(0, 99),
    st.booleans(),
    st.lists(
        st.builds(Proposal, st.text(max_size=4), st.text(max_size=4), st.text(), st.none() | instants), max_size=2
    ).map(tuple),
)


@given(plans)
def test_any_plan_comes_back_equal(plan: ScalingPlan) -> None:
    assert codec.plan_from_json(codec.loads(codec.dumps(codec.plan_to_json(plan)))) == plan


@given(plans, instants)
def test_any_decision_comes_back_equal(plan: ScalingPlan, at: datetime) -> None:
    decision = Decision("id", plan.group, at, "act", plan, {"a": [1, None, {"b": 2.5}]}, None)
    assert codec.decision_from_json(codec.loads(codec.dumps(codec.decision_to_json(decision)))) == decision


def test_instants_are_utc_on_the_wire() -> None:
    at = datetime(2026, 1, 5, 10, tzinfo=timezone(timedelta(hours=1)))
    plan = ScalingPlan(GroupId("g"), at, (PlannedStep(at, 1, 0.0),), Bound(), ())
    assert codec.plan_to_json(plan)["made_at"] == "2026-01-05T09:00:00Z"
    with pytest.raises(ValueError, match="no time zone"):
        codec.plan_to_json(ScalingPlan(GroupId("g"), at.replace(tzinfo=None), plan.steps, Bound(), ()))


@pytest.mark.parametrize("spoil", ["group", "steps", "bound_by", "hold"])
def test_half_a_plan_is_no_plan(spoil: str) -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    good = codec.plan_to_json(ScalingPlan(GroupId("g"), at, (PlannedStep(at, 1, 0.0),), Bound(), ()))
    del good[spoil]
    with pytest.raises(ValueError, match=spoil):
        codec.plan_from_json(good)
    with pytest.raises(ValueError, match="not a decision"):
        codec.decision_from_json({"id": "x"})


def test_what_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="JSON"):
        codec.dumps({"a": float("inf")})
    with pytest.raises(ValueError, match="expected a JSON object, not list"):
        codec.loads("[1]")
