"""What pre-scaling windows make of a plan: to the second what a person asked for, beforehand what it takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.demand import CELLS
from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.plan import BoundKind, ScalingPlan
from balancer.planner import plan
from balancer.plans.codec import plan_from_json, plan_to_json
from balancer.policy import ScalingPolicy
from balancer.prescaling import UNLIMITED, Rule, spans
from balancer.windows import Asked, asked, shares
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.topics import GroupId, TopicPartition
from headway.status.wire import plan_document

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
POOL = ScalingPolicy(
    capacity_per_member=10.0, lead_time=timedelta(seconds=120), max_replicas=20, cap_at_partitions=False
)
CAPPED = replace(POOL, cap_at_partitions=True)


def snapshot(at: datetime, replicas: int, rate: float, partitions: int = 1) -> GroupSnapshot:
    parts = [TopicPartition("orders", p) for p in range(partitions)]
    members = tuple(Member(f"m-{i}", tuple(parts[i : i + 1])) for i in range(replicas))
    states = {p: PartitionState(0, rate / partitions) for p in parts}
    return GroupSnapshot(GroupId("orders"), at, replicas, members, states)


def forecast(at: datetime, rate: float, partitions: int = 1) -> Forecast:
    total = np.full((72, 1), rate) * np.array([1.0, 1.1, 1.3])
    each = np.repeat(total[None] / partitions, partitions, axis=0)
    step, names = timedelta(minutes=5), tuple(range(partitions))
    return Forecast("orders", at, step, names, (0.5, 0.9, 0.99), each, total, "test", Rung.OWN_MODEL)


def played(
    rules: list[Rule], minutes: int, replicas: int, rate: float, policy: ScalingPolicy = POOL
) -> list[ScalingPlan]:
    """Plan once a minute; every request is fulfilled at once."""
    made, memory = [], None
    for minute in range(minutes):
        at = NOW + minute * MINUTE
        answer = plan(snapshot(at, replicas, rate), forecast(at, rate), policy, at, rules=rules, memory=memory)
        memory, replicas = answer.memory, answer.plan.replicas
        made.append(answer.plan)
    return made


def sizes(plans: list[ScalingPlan]) -> list[int]:
    return [p.replicas for p in plans]


def test_an_exact_size_acts_from_its_first_second_until_its_last() -> None:
    rule = Rule(start=NOW + 4 * MINUTE, end=NOW + 8 * MINUTE, replicas=2)
    plans = played([rule], 9, 10, 70.0)
    assert sizes(plans) == [10, 10, 10, 10, 2, 2, 2, 2, 10]
    assert [any("acts now" in r for r in p.reasons) for p in plans] == [False] * 4 + [True] * 4 + [False]
    assert "10 → 2 members: a pre-scaling window asks for this size" in plans[4].reasons
    assert "2 members stay: a pre-scaling window asks for this size" in plans[5].reasons


def test_an_exact_size_above_what_is_needed_is_there_when_it_begins() -> None:
    rule = Rule(start=NOW + 12 * MINUTE, end=NOW + HOUR, replicas=12)
    before = sizes(played([rule], 13, 10, 70.0))
    assert before[0] == 10
    assert before[10:] == [12, 12, 12]


def test_a_ceiling_acts_from_its_first_second_until_its_last() -> None:
    rule = Rule(start=NOW + 3 * MINUTE, end=NOW + 6 * MINUTE, at_most=5)
    plans = played([rule], 7, 10, 70.0)
    assert sizes(plans) == [10, 10, 10, 5, 5, 5, 10]
    assert "10 → 5 members: a pre-scaling window allows no more" in plans[3].reasons
    assert plans[4].bound_by.kind is BoundKind.MAX_REPLICAS
    assert plans[4].bound_by.start == NOW + 4 * MINUTE
    assert plans[6].bound_by.kind is BoundKind.NONE


def test_a_ceiling_ahead_is_in_the_plan_and_bounds_it_from_then_on() -> None:
    rule = Rule(start=NOW + HOUR, end=NOW + 2 * HOUR, at_most=5)
    made = played([rule], 1, 10, 70.0)[0]
    assert made.replicas == 10
    inside = [s.replicas for s in made.steps if rule.start <= s.start < rule.end]
    assert inside == [5]
    assert made.steps[-1].replicas > 5
    assert (made.bound_by.kind, made.bound_by.start) == (BoundKind.MAX_REPLICAS, rule.start)


def test_a_ceiling_that_nothing_reaches_changes_nothing() -> None:
    rule = Rule(start=NOW, end=NOW + HOUR, at_most=15)
    made, bare = played([rule], 3, 10, 70.0), played([], 3, 10, 70.0)
    assert [p.steps for p in made] == [p.steps for p in bare]
    assert made[-1].bound_by == bare[-1].bound_by


def test_a_ceiling_of_zero_lets_a_group_sleep_only_where_min_replicas_does() -> None:
    rule = Rule(start=NOW, end=NOW + HOUR, at_most=0)
    assert sizes(played([rule], 2, 4, 20.0, replace(POOL, min_replicas=0))) == [0, 0]
    assert sizes(played([rule], 2, 4, 20.0, replace(POOL, min_replicas=2))) == [2, 2]


def test_a_floor_beats_a_ceiling_and_an_exact_size_beats_both() -> None:
    floor, ceiling = Rule(end=NOW + HOUR, at_least=7), Rule(end=NOW + HOUR, at_most=5)
    assert sizes(played([floor, ceiling], 1, 10, 90.0)) == [7]
    assert sizes(played([floor, ceiling, Rule(end=NOW + HOUR, replicas=3)], 1, 10, 90.0)) == [3]


@pytest.mark.parametrize("rule", [Rule(end=NOW + HOUR, replicas=2), Rule(end=NOW + HOUR, at_most=2)])
def test_no_window_takes_a_member_while_something_is_unknown(rule: Rule) -> None:
    made = plan(snapshot(NOW, 9, 70.0), None, POOL, NOW, rules=[rule]).plan
    assert made.replicas == 9
    assert any("the forecaster did not answer" in r for r in made.reasons)
    thin = plan(snapshot(NOW, 9, 70.0), NoForecast("orders", NOW, "too young"), POOL, NOW, rules=[rule]).plan
    assert thin.replicas == 2  # nothing is wrong there: what is seen is enough to plan by


@pytest.mark.parametrize("ask", [{"replicas": 9}, {"at_least": 9}])
def test_a_window_beyond_the_partitions_is_cut_and_says_so(ask: dict[str, int]) -> None:
    rule = Rule(end=NOW + HOUR, **ask)
    made = plan(snapshot(NOW, 4, 30.0, 4), forecast(NOW, 30.0, 4), CAPPED, NOW, rules=[rule]).plan
    assert made.replicas == 4
    said = "4 members instead of the 9 of a pre-scaling window: as many as the partitions can keep busy"
    assert said in made.reasons


def test_every_window_is_in_the_plan_with_its_share_in_it() -> None:
    soon = Rule(name="import", start=NOW + HOUR, end=NOW + 3 * HOUR, at_least=9)
    sale = Rule(name="sale", start=NOW - HOUR, end=NOW + HOUR, factor=2.0)
    slim = Rule(start=NOW + 4 * HOUR, end=NOW + 4 * HOUR + MINUTE, at_most=3)
    made = played([slim, soon, sale], 1, 4, 30.0)[0]
    bare = played([], 1, 4, 30.0)[0]
    needed = bare.replicas
    found = {share.text.partition(":")[0]: share for share in made.windows}
    assert [(s.start, s.end) for s in made.windows] == [(r.start, r.end) for r in (sale, soon, slim)]
    assert (found["import"].replicas, found["import"].without) == (9, needed)
    assert found["sale"].replicas == made.replicas > found["sale"].without == needed
    assert f"{sale.text} acts now: {made.replicas} members, {needed} without it" in made.reasons
    assert f"{soon.text}: 9 members, {needed} without it" in made.reasons
    assert plan_from_json(plan_to_json(made)) == made
    assert plan_document(made)["windows"][1]["replicas"] == 9
    assert bare.windows == ()


def test_a_ceilings_share_is_what_it_takes_away() -> None:
    rule = Rule(start=NOW + HOUR + MINUTE, end=NOW + 2 * HOUR + MINUTE, at_most=5)
    (share,) = played([rule], 1, 10, 70.0)[0].windows
    assert (share.replicas, share.without) == (5, 8)


CELL_COUNT = CELLS.count


def ask(low: int = -1, high: int = UNLIMITED, exact: int | None = None) -> Asked:
    """What a window asks for now and over the whole horizon."""
    return Asked(np.full(CELL_COUNT, low), np.full(CELL_COUNT, high), np.ones(CELL_COUNT), low, exact)


@pytest.mark.parametrize(
    ("asked_for", "size", "held"),
    [
        (ask(), 7, 7),
        (ask(high=5), 7, 5),
        (ask(high=5), 4, 4),
        (ask(exact=9), 7, 9),
        (ask(high=5, exact=9), 7, 9),  # somebody said so
        (ask(exact=0), 7, 2),
        (ask(exact=30), 7, 20),
        (ask(high=0), 7, 2),
    ],
)
def test_a_size_is_held_within_the_window_and_the_window_within_the_policy(
    asked_for: Asked, size: int, held: int
) -> None:
    assert asked_for.held(size, 2, 20) == held
    assert ask(exact=9).held(size, 6, 4) == 6  # the fewest hold against partitions that allow less


def test_what_a_window_does_not_get_is_said_with_who_keeps_it() -> None:
    policy = replace(POOL, min_replicas=3, max_replicas=8)
    assert ask(low=8).cut(8, policy) is None
    assert (
        ask(low=9).cut(8, policy) == "8 members instead of the 9 of a pre-scaling window: max_replicas allows no more"
    )
    said = "7 members instead of the 9 of a pre-scaling window: as many as the partitions can keep busy"
    assert ask(low=9).cut(7, policy) == said
    assert ask(low=3).cut(2, policy) is None  # the policy's fewest come whatever the partitions
    assert ask(low=4).cut(2, policy) is not None
    assert ask(high=5).says == "a pre-scaling window allows no more"
    assert ask(exact=5).says == "a pre-scaling window asks for this size"


def test_windows_are_laid_over_the_horizon_cell_by_cell() -> None:
    rules = [
        Rule(start=NOW + 4 * MINUTE, end=NOW + 16 * MINUTE, at_least=6),
        Rule(start=NOW + 7 * MINUTE, end=NOW + 9 * MINUTE, at_most=3),
        Rule(start=NOW + 10 * MINUTE, end=NOW + 11 * MINUTE, factor=2.0),
    ]
    made = asked(spans(rules, NOW, NOW + 6 * HOUR), NOW)
    assert made.low[:5].tolist() == [6, 6, 6, 6, -1]  # of the cells of five minutes
    assert made.high[:5].tolist() == [UNLIMITED] * 5  # a ceiling counts where it holds the whole cell
    assert made.factor[:4].tolist() == [1.0, 1.0, 2.0, 1.0]
    assert (made.least, made.exact) == (-1, None)
    assert asked(spans(rules, NOW, NOW + 6 * HOUR), NOW + 3 * MINUTE).least == -1  # a minute later it is six
    then = asked(spans(rules, NOW, NOW + 6 * HOUR), NOW + 8 * MINUTE)
    assert (then.least, then.high[0]) == (6, 6)  # at this instant the ceiling acts, and the floor beats it
    zero = asked(spans([Rule(end=NOW + HOUR, replicas=0)], NOW, NOW + HOUR), NOW)
    assert zero.exact == 0


def test_a_share_is_read_where_the_window_lies_and_no_window_has_none() -> None:
    assert shares((), NOW, lambda ask: np.zeros(CELL_COUNT, dtype=np.int64)) == ()
    rules = [
        Rule(start=NOW - MINUTE, end=NOW + MINUTE, at_least=1, name="runs"),
        Rule(start=NOW, end=NOW + MINUTE, factor=3.0, name="begins"),
        Rule(start=NOW + 5 * MINUTE, end=NOW + 15 * MINUTE, at_least=1, name="two cells"),
        Rule(start=NOW + 5 * MINUTE, end=NOW + 6 * MINUTE, at_least=1, name="a cell's beginning"),
        Rule(start=NOW + 11 * MINUTE, end=NOW + 12 * MINUTE, at_least=1, name="within a cell"),
    ]

    def need(ask: Asked | None) -> np.ndarray:  # less from cell to cell; ten more where "begins" is away
        return 100 - np.arange(CELL_COUNT) + (0 if ask is not None and ask.factor[0] == 3 else 10)

    windows = spans(rules, NOW - HOUR, NOW + 6 * HOUR)
    found = {share.text.partition(":")[0]: (share.replicas, share.without) for share in shares(windows, NOW, need)}
    assert found == {
        "runs": (100, 100),
        "begins": (100, 110),
        "two cells": (99, 99),
        "a cell's beginning": (99, 99),
        "within a cell": (98, 98),
    }


@settings(deadline=None, max_examples=60)
@given(
    begin=st.integers(-30, 90),
    length=st.integers(1, 120),
    ask=st.sampled_from(["replicas", "at_least", "at_most"]),
    size=st.integers(0, 25),
    replicas=st.integers(1, 20),
    rate=st.floats(0.0, 150.0),
)
def test_what_is_requested_keeps_to_the_windows_of_this_instant(
    begin: int, length: int, ask: str, size: int, replicas: int, rate: float
) -> None:
    rule = Rule(start=NOW + begin * MINUTE, end=NOW + (begin + length) * MINUTE, **{ask: size})
    made = plan(snapshot(NOW, replicas, rate), forecast(NOW, rate), POOL, NOW, rules=[rule]).plan
    acts, within = begin <= 0 < begin + length, min(max(size, 1), 20)
    if acts and ask == "replicas":
        assert made.replicas == within
    elif acts and ask == "at_most":
        assert made.replicas <= within
    elif acts:
        assert made.replicas >= within
    else:
        assert made.replicas >= replicas  # what is still to come takes nobody away
