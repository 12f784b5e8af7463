"""A decision's inputs are kept whole: planned again, they give the same plan, to the last reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.planner import plan
from balancer.plans.codec import plan_to_json
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.prescaling import Rule
from balancer.replay import (
    Inputs,
    abridged,
    again,
    forecast_bytes,
    forecast_name,
    forecast_name_of,
    forecast_of,
    inputs_bytes,
    inputs_of,
)
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.topics import GroupId, TopicPartition

NOW = datetime(2026, 1, 5, 9, 0, 7, 123456, tzinfo=UTC)
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


def a_forecast(rng: np.random.Generator, partitions: int) -> Forecast:
    rates = np.sort(rng.gamma(2.0, 20.0, (partitions, 420, len(LEVELS))), axis=2)
    start = NOW - timedelta(seconds=37)
    total = np.sort(rates.sum(axis=0), axis=1)
    numbers = tuple(range(partitions))
    return Forecast(
        "orders", start, timedelta(minutes=1), numbers, LEVELS, rates, total, "blend", Rung.OWN_MODEL, ("r",)
    )


def some_inputs(seed: int) -> Inputs:
    """Draw a group, its forecast, policy, knobs and memory."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    owned = [TopicPartition("orders", p) for p in range(count)]
    members = tuple(
        Member(f"m{m}", tuple(owned[m::3]), ready=bool(rng.random() > 0.1), rack=None) for m in range(min(3, count))
    )
    states = {
        tp: PartitionState(int(rng.integers(0, 900)), float(rng.gamma(2.0, 20.0)), None, None, bool(rng.random() < 0.2))
        if rng.random() > 0.1
        else PartitionState(None, None, None, "not read")
        for tp in owned
    }
    snapshot = GroupSnapshot(GroupId("orders"), NOW, int(rng.integers(0, 9)), members, states, GroupProtocol.CLASSIC, 4)
    snapshot = replace(snapshot, racks=dict.fromkeys(owned[:2], "eu-1a"))
    kind = int(rng.integers(0, 5))
    forecast = None if kind == 0 else NoForecast("orders", NOW, "why", NOW) if kind == 1 else a_forecast(rng, count)
    policy = ScalingPolicy(
        capacity_per_member=float(rng.uniform(10, 90)) if rng.random() > 0.1 else None,
        max_replicas=int(rng.integers(1, 20)),
        cap_at_partitions=bool(rng.random() > 0.5),
        lead_time=timedelta(seconds=float(rng.uniform(1, 300))),
        assignment=AssignmentKind.PLANNED if rng.random() > 0.5 else AssignmentKind.SCALE_ONLY,
    )
    knobs = Knobs(near_level=float(rng.choice([0.8, 0.93, 0.99])), dwell=timedelta(minutes=7))
    memory = PlannerMemory(log_margin=float(rng.normal()) / 10)
    for minute in range(int(rng.integers(0, 5))):
        memory = memory.saw(NOW - timedelta(minutes=5 - minute), float(rng.gamma(2.0, 30.0)))
    rules = (Rule(start=NOW, end=NOW + timedelta(hours=1), at_least=2, name="sale"),) if rng.random() > 0.5 else ()
    return Inputs(snapshot, forecast, policy, NOW, knobs, memory, rules, "Europe/Berlin")


def planned(inputs: Inputs, forecast: Forecast | NoForecast | None):
    return plan(
        inputs.snapshot,
        forecast,
        inputs.policy,
        inputs.now,
        knobs=inputs.knobs,
        memory=inputs.memory,
        rules=inputs.rules,
        timezone=inputs.timezone,
    ).plan


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_what_is_kept_gives_the_same_plan(seed: int) -> None:
    inputs = some_inputs(seed)
    used, name, numbers = inputs.forecast, None, None
    if isinstance(used, Forecast):
        used = abridged(used, inputs.knobs.near_level)
        numbers = forecast_bytes(used, inputs.knobs.near_level)
        name = forecast_name(numbers)
    made = planned(inputs, used)
    body = inputs_bytes(inputs, name)
    assert forecast_name_of(body) == name
    read = inputs_of(body, None if numbers is None else forecast_of(numbers))
    assert (read.snapshot, read.policy, read.knobs, read.memory) == (
        inputs.snapshot, inputs.policy, inputs.knobs, inputs.memory,
    )  # fmt: skip
    assert plan_to_json(again(read)) == plan_to_json(made)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_the_planner_reads_nothing_that_is_left_out(seed: int) -> None:
    inputs = some_inputs(seed)
    if not isinstance(inputs.forecast, Forecast):
        return
    whole, part = inputs.forecast, abridged(inputs.forecast, inputs.knobs.near_level)
    full, short = planned(inputs, whole), planned(inputs, part)
    assert [s.replicas for s in full.steps] == [s.replicas for s in short.steps]
    assert (full.bound_by, full.hold, full.proposals) == (short.bound_by, short.hold, short.proposals)


def test_other_bytes_are_no_inputs() -> None:
    with pytest.raises(ValueError, match="not the inputs of a decision"):
        inputs_of(b"nothing", None)
