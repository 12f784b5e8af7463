"""Properties of schedule and planner: monotone, bounded, never down on errors, reasons for everything."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.bounding import Routing
from balancer.capacity import assigned_curve, pool_curve
from balancer.errors import PolicyRefused
from balancer.group import GroupSnapshot, Member, PartitionState
from balancer.hotspots import HotKey
from balancer.knobs import Knobs
from balancer.plan import BoundKind
from balancer.planner import _curve, plan
from balancer.policy import AssignmentKind, ScalingPolicy
from balancer.prescaling import Rule
from balancer.schedule import first_choices, highest_of, reaches, schedule
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.topics import GroupId, TopicPartition

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
G = GroupId("orders")
POLICY = ScalingPolicy(capacity_per_member=10.0, lead_time=timedelta(seconds=120), max_replicas=20)
LEVELS = (0.5, 0.9, 0.99)


def snapshot(
    replicas: int | None = 4, rate: float | None = 30.0, lag: int | None = 0, partitions: int = 1, working: int = 4
) -> GroupSnapshot:
    parts = [TopicPartition("orders", p) for p in range(partitions)]
    each = None if rate is None else rate / partitions
    owned = [tuple(p for p in parts if p.partition % max(working, 1) == m) for m in range(working)]
    return GroupSnapshot(
        G,
        NOW,
        replicas,
        tuple(Member(f"m-{i}", owned[i]) for i in range(working)),
        {p: PartitionState(None if lag is None else lag // partitions, each) for p in parts},
    )


def forecast(rates: list[float], partitions: int = 1, origin: datetime = NOW) -> Forecast:
    total = np.array(rates)[:, None] * np.array([1.0, 1.1, 1.3])
    each = np.repeat(total[None] / partitions, partitions, axis=0)
    return Forecast(
        "orders", origin, timedelta(minutes=5), tuple(range(partitions)), LEVELS, each, total, "test", Rung.OWN_MODEL
    )


POOL = replace(POLICY, cap_at_partitions=False)
EAGER = Knobs(dwell=timedelta(minutes=5), price_h=0.0)
rates_of_a_day = st.lists(st.floats(0, 400), min_size=12, max_size=72)


def slow_path(need: list[int], hours: list[float], price: float, first: int) -> float:
    best = {first: first * hours[0] if first >= need[0] else np.inf}
    for n, h in zip(need[1:], hours[1:], strict=True):
        best = {
            m: min(c + (price if m != b else 0.0) for b, c in best.items()) + (m * h if m >= n else np.inf)
            for m in range(max(max(need), first) + 1)
        }
    return min(best.values())


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.sampled_from([0.0, 0.3, 1.0, 5.0]), st.integers(0, 7))
def test_schedule_is_the_cheapest_path(need: list[int], price: float, current: int) -> None:
    hours = np.linspace(0.1, 1.0, len(need))
    ahead = schedule(need, hours.tolist(), price)
    chosen = ahead.first_choice(current)
    many = first_choices(np.array(need)[:, None].repeat(3, 1), hours, np.full(3, price), np.full(3, current))
    assert many.tolist() == [chosen] * 3
    assert chosen >= need[0]

    def total(first: int) -> float:
        return slow_path(need, hours.tolist(), price, first) + (price if first != current else 0.0)

    assert total(chosen) == pytest.approx(min(total(n) for n in range(max(need) + 1) if n >= need[0]), abs=1e-9) or (
        chosen == current and total(chosen) <= min(total(n) for n in range(need[0], max(need) + 1)) + 1e-9
    )
    sizes = [s.replicas for s in ahead.path(chosen)]
    assert all(a != b for a, b in itertools.pairwise(sizes))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=12), st.integers(0, 3))
def test_requests_cover_need_through_the_lead_time(need: list[int], lead: int) -> None:
    covered = np.minimum(np.arange(len(need)) + lead, len(need) - 1)
    requested = highest_of(np.array(need), reaches(covered))
    working = [min(requested[max(0, t - lead) : t + 1]) for t in range(len(need))]
    assert all(w >= n for w, n in zip(working[lead:], need[lead:], strict=True))


@settings(deadline=None, max_examples=60)
@given(rates_of_a_day, st.floats(1.0, 3.0), st.integers(1, 20), st.integers(0, 3000))
def test_d8_more_forecast_never_means_fewer_replicas(rates: list[float], factor: float, current: int, lag: int) -> None:
    seen = snapshot(current, 30.0, lag, working=current)
    less = plan(seen, forecast(rates), POOL, NOW).plan
    more = plan(seen, forecast([r * factor for r in rates]), POOL, NOW).plan
    assert more.replicas >= less.replicas
    assert all(POOL.min_replicas <= s.replicas <= POOL.max_replicas for s in more.steps)


@settings(deadline=None, max_examples=40)
@given(rates_of_a_day, st.integers(1, 12), st.integers(1, 9), st.floats(0, 500), st.sampled_from(AssignmentKind))
def test_b1_never_more_members_than_partitions_and_each_owned_once(
    rates: list[float], partitions: int, working: int, rate: float, kind: AssignmentKind
) -> None:
    working = min(working, partitions)
    seen = snapshot(working, rate, 100, partitions, working)
    made = plan(seen, forecast(rates, partitions), replace(POLICY, assignment=kind), NOW).plan
    assert all(1 <= s.replicas <= partitions for s in made.steps)
    first = made.steps[0].assignment
    if kind is AssignmentKind.PLANNED:
        assert first is not None
        owned = sorted(p for parts in first.values() for p in parts)
        assert owned == sorted(seen.partitions)


@pytest.mark.parametrize("lag", [0, 500_000])
def test_e2_a_hot_partition_neither_starves_the_others_nor_hires_for_its_own_backlog(lag: int) -> None:
    each = np.array([30.0, 4.0, 4.0, 4.0, 4.0, 4.0])  # records/s; a member serves 10
    parts = [TopicPartition("orders", p) for p in range(6)]
    states = {p: PartitionState(lag if i == 0 else 0, float(each[i])) for i, p in enumerate(parts)}
    rates = np.repeat((each[:, None] * np.array([1.0, 1.1, 1.2]))[:, None], 72, axis=1)
    ahead = Forecast(
        "orders", NOW, timedelta(minutes=5), tuple(range(6)), LEVELS, rates, rates.sum(axis=0), "test", Rung.OWN_MODEL
    )
    seen = replace(snapshot(4, 1.0, 0, 6, 4), partitions=states)
    made = plan(seen, ahead, replace(POLICY, assignment=AssignmentKind.PLANNED), NOW).plan
    assert made.bound_by.kind is BoundKind.PARTITION
    assert [s.replicas for s in made.steps] == [4]  # one for the hot one, and five times 4.8 on three
    assert made.replicas >= (made.lower_bound or 0)


def test_b2_the_last_step_is_reached() -> None:
    seen = snapshot(59, 630.0, 0, 64, 59)
    made = plan(seen, forecast([630.0] * 72, 64), replace(POLICY, max_replicas=64), NOW).plan
    assert made.replicas == 64


def test_b4_one_jump_to_the_planned_size() -> None:
    assert plan(snapshot(1, 10.0), forecast([10.0] * 2 + [150.0] * 70), POOL, NOW).plan.replicas in (2, 20)
    assert plan(snapshot(1, 10.0), forecast([150.0] * 72), POOL, NOW).plan.replicas == 20


def settle(rates: list[float], minutes: int, knobs: Knobs, rate: float = 30.0, current: int = 9) -> list[int]:
    """Tick on for some minutes; return what is requested after each."""
    memory, sizes = None, []
    for minute in range(minutes):
        at = NOW + timedelta(minutes=minute)
        seen = replace(snapshot(current, rate, working=current), at=at)
        planned = plan(seen, forecast(rates, origin=at), POOL, at, knobs=knobs, memory=memory)
        memory, current = planned.memory, planned.plan.replicas
        sizes.append(current)
    return sizes


def test_b9_down_only_after_the_dwell_and_then_in_one_step() -> None:
    sizes = settle([30.0] * 72, 40, Knobs(dwell=timedelta(minutes=20), price_h=0.1))
    assert sizes[:20] == [9] * 20
    assert len(set(sizes)) == 2
    assert sizes[-1] == 4


def test_d19_forecast_alone_never_takes_demand_below_what_is_seen() -> None:
    low, seen = [5.0] * 72, snapshot(9, 85.0, working=9)
    assert plan(seen, forecast(low), POOL, NOW).plan.replicas == 9
    assert set(settle(low, 60, Knobs(dwell=timedelta(minutes=5)), rate=85.0)) == {9}


def test_d20_size_is_that_of_the_moment_when_members_would_be_ready() -> None:
    rising = [30.0, 30.0, 80.0] + [80.0] * 69
    soon = replace(POOL, lead_time=timedelta(seconds=60))
    late = replace(POOL, lead_time=timedelta(seconds=600))
    knobs = Knobs(near_level=0.9)
    assert plan(snapshot(), forecast(rising), soon, NOW, knobs=knobs).plan.replicas == 4
    assert plan(snapshot(), forecast(rising), late, NOW, knobs=knobs).plan.replicas == 9


def test_b17_the_cap_at_partitions_is_a_policy_and_on_unless_told_otherwise() -> None:
    seen, ahead = snapshot(3, 100.0, 0, partitions=3, working=3), forecast([100.0] * 72, 3)  # a member serves 10
    capped, pooled = (plan(seen, ahead, policy, NOW).plan for policy in (POLICY, POOL))
    assert ScalingPolicy(capacity_per_member=10.0).cap_at_partitions
    assert capped.replicas == 3
    assert pooled.replicas > 10, "as a share group or a pool of jobs needs them"


def test_b23_pods_of_a_rolling_update_beside_those_asked_for_change_no_plan() -> None:
    """Each new pod joins before an old one leaves: what is asked for counts, and not what happens to live."""
    ahead = forecast([30.0] * 72, 12)
    usual = plan(snapshot(6, 30.0, 0, 12, 6), ahead, POOL, NOW).plan
    for living in (7, 9, 12):
        assert plan(snapshot(6, 30.0, 0, 12, living), ahead, POOL, NOW).plan.replicas == usual.replicas


@pytest.mark.parametrize("policy", [POLICY, POOL])
def test_a13_what_waits_behind_a_stuck_record_asks_for_nobody_and_forbids_no_fall(policy: ScalingPolicy) -> None:
    memory, sizes, at = None, {}, NOW
    for stuck in (None, TopicPartition("orders", 3)):
        memory, current, at = None, 12, NOW
        for minute in range(30):
            seen = replace(snapshot(current, 36.0, 0, 12, current), at=at)
            if stuck is not None:  # its lag grows by what arrives, for hours already
                behind = PartitionState(100_000 + 180 * minute, 3.0, 0.0, "stuck: …", is_stuck=True)
                seen = replace(seen, partitions={**seen.partitions, stuck: behind})
            planned = plan(seen, forecast([36.0] * 72, 12, at), policy, at, knobs=EAGER, memory=memory)
            memory, current, at = planned.memory, planned.plan.replicas, at + timedelta(minutes=1)
            assert not any("drain" in reason or "downstream" in reason for reason in planned.plan.reasons)
        sizes[stuck] = current
    assert len(set(sizes.values())) == 1 and current < 12
    waiting = replace(seen, partitions={p: replace(s, is_stuck=False) for p, s in seen.partitions.items()})
    drained = plan(waiting, forecast([36.0] * 72, 12, at), policy, at, knobs=EAGER, memory=memory).plan
    # the same lag where it is no stuck record's; of a partition that one member owns no more members make it less
    assert (drained.replicas > current) is not policy.cap_at_partitions


def test_b33_a_backlog_that_drains_by_itself_adds_nobody() -> None:
    few = plan(snapshot(6, 30.0, 1500, working=6), forecast([30.0] * 72), POOL, NOW).plan
    much = plan(snapshot(6, 30.0, 60000, working=6), forecast([30.0] * 72), POOL, NOW).plan
    assert few.replicas == 6
    assert much.replicas == 20
    assert any("drain the backlog" in reason for reason in much.reasons)


@pytest.mark.parametrize(
    ("seen", "policy", "at", "word"),
    [
        (snapshot(), POOL, NOW + timedelta(minutes=10), "last seen 600 s ago"),
        (snapshot(), replace(POOL, capacity_per_member=None), NOW, "capacity of a member is not known"),
        (snapshot(replicas=None), POOL, NOW, "scale target"),
        (snapshot(rate=None), POOL, NOW, "arrival rate"),
    ],
)
def test_what_is_wrong_or_unknown_holds_and_says_why(
    seen: GroupSnapshot, policy: ScalingPolicy, at: datetime, word: str
) -> None:
    made = plan(seen, forecast([1.0] * 72), policy, at).plan
    assert made.hold
    assert made.replicas == 4
    assert word in made.reasons[0]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["none", "old", "partial", "unknown lag", "members gone"]), st.integers(2, 20))
def test_a16_no_error_path_scales_down(kind: str, current: int) -> None:
    memory, wish = None, Knobs(dwell=timedelta(minutes=1), price_h=0.0)
    for minute in range(30):
        at = NOW + timedelta(minutes=minute)
        seen = replace(snapshot(current, 5.0, partitions=2, working=current), at=at)
        given_forecast: Forecast | NoForecast | None = forecast([5.0] * 72, 2, at)
        if kind == "none":
            given_forecast = None
        elif kind == "old":
            given_forecast = forecast([5.0] * 72, 2, at - timedelta(hours=1))
        elif kind == "partial":
            given_forecast = forecast([5.0] * 72, 1, at)
        elif kind == "unknown lag":
            states = dict(seen.partitions)
            states[TopicPartition("orders", 1)] = PartitionState(None, 2.0, why="leader gone")
            seen = replace(seen, partitions=states)
        else:
            seen = replace(seen, members=seen.members[: current // 2])
        planned = plan(seen, given_forecast, POOL, at, knobs=wish, memory=memory)
        memory = planned.memory
        assert planned.plan.replicas >= current
        assert any("no member is given up" in reason for reason in planned.plan.reasons)


def test_too_little_history_is_a_result_that_may_scale_both_ways() -> None:
    none = NoForecast("orders", NOW, "one day of history, two are needed")
    made = plan(snapshot(1, 95.0, working=1), none, POOL, NOW).plan
    assert made.replicas > 9
    assert made.bound_by.kind is BoundKind.HISTORY
    assert any("one day of history" in reason for reason in made.reasons)


def test_e2_a_partition_beyond_one_member_bounds_the_plan() -> None:
    total = np.array([60.0] * 72)[:, None] * np.ones(3)
    each = np.stack([total * 0.5] + [total * 0.5 / 11] * 11)
    skewed = Forecast(
        "orders", NOW, timedelta(minutes=5), tuple(range(12)), LEVELS, each, total, "test", Rung.OWN_MODEL
    )
    planned_policy = replace(POLICY, assignment=AssignmentKind.PLANNED)
    made = plan(snapshot(4, 60.0, 0, 12), skewed, planned_policy, NOW).plan
    assert made.bound_by.kind is BoundKind.PARTITION
    assert made.bound_by.id == "orders:0"
    assert made.replicas < 12  # no extra member helps
    assert {"split", "faster_member", "batching"} <= {p.kind for p in made.proposals}


def hot_topic(share: float, at: float = 60.0) -> Forecast:
    """Return a forecast whose partition 0 takes a share of it, and from ten o'clock on twice as much."""
    total = np.array([at] * 12 + [2 * at] * 60)[:, None] * np.ones(3)
    each = np.stack([total * share] + [total * (1 - share) / 23] * 23)
    return Forecast("orders", NOW, timedelta(minutes=5), tuple(range(24)), LEVELS, each, total, "t", Rung.OWN_MODEL)


def test_e1_e2_proposals_name_partition_hour_and_cure() -> None:
    monday = replace(POLICY, assignment=AssignmentKind.PLANNED)  # NOW is a Monday, nine o'clock
    seen = snapshot(4, 60.0, 0, 24)
    plain = plan(seen, hot_topic(0.1), monday, NOW, timezone="Europe/Berlin").plan
    assert (plain.bound_by.kind, plain.bound_by.id) == (BoundKind.PARTITION, "orders:0")
    assert plain.bound_by.start == NOW + timedelta(hours=1)
    texts = {p.kind: p.text for p in plain.proposals}
    assert set(texts) == {"split", "faster_member", "batching"}
    assert all(text.startswith("partition 0 passes one member's capacity on Monday 11:00") for text in texts.values())
    assert "once its producers are routed" in texts["split"]
    routed = plan(seen, hot_topic(0.1), monday, NOW, routing=Routing(frozenset({"orders"}))).plan
    assert "split it into 2 lanes" in {p.kind: p.text for p in routed.proposals}["split"]


def test_e6_a_hot_key_bounds_the_plan_and_no_split_is_proposed() -> None:
    eve = HotKey(TopicPartition("orders", 0), "eve", 11.0, 1.1)
    made = plan(
        snapshot(4, 60.0, 0, 24), hot_topic(0.1), POLICY, NOW, routing=Routing(frozenset({"orders"}), [eve])
    ).plan
    assert (made.bound_by.kind, made.bound_by.id) == (BoundKind.KEY, "orders:0/eve")
    kinds = {p.kind for p in made.proposals}
    assert "key" in kinds and "split" not in kinds


def test_e1_what_is_alone_already_is_not_to_be_isolated_and_a_faster_member_counts() -> None:
    shared = snapshot(4, 60.0, 0, 24)
    zero = TopicPartition("orders", 0)
    rest = tuple(p for p in shared.partitions if p != zero)
    alone = replace(shared, members=(Member("m-0", (zero,)), Member("m-1", rest)))
    steady = hot_topic(0.075)  # 4.5, later 9 records/s: hot, but within one member
    assert [p.kind for p in plan(shared, steady, POLICY, NOW).plan.proposals] == ["isolate"]
    assert plan(alone, steady, POLICY, NOW).plan.proposals == ()
    faster = replace(alone, members=(replace(alone.members[0], capacity=20.0), *alone.members[1:]))
    assert plan(faster, hot_topic(0.1), POLICY, NOW).plan.bound_by.kind is not BoundKind.PARTITION


def test_b15_sized_by_the_forecast_of_the_moment_when_members_work_and_steady_thereafter() -> None:
    """A slow start (five minutes) under a rise: one jump ahead of it, no climb in steps, no way back."""
    slow = replace(POOL, lead_time=timedelta(minutes=5))
    memory, current, sizes = None, 3, []
    for minute in range(90):
        at = NOW + timedelta(minutes=minute)
        rise = [20.0 if m < 30 else 120.0 for m in range(minute, minute + 360, 5)]
        rate = 20.0 if minute <= 30 else 120.0  # of the last complete minute
        seen = replace(snapshot(current, rate, working=current), at=at)
        planned = plan(
            seen, forecast(rise, origin=at), slow, at, knobs=Knobs(near_level=0.9, correction=0.0), memory=memory
        )
        memory, current = planned.memory, planned.plan.replicas
        sizes.append(current)
    up = next(m for m, size in enumerate(sizes) if size >= 13)
    assert 15 <= up <= 25  # works at half past, and was not asked for an hour before
    assert set(sizes[:up]) == {3} and set(sizes[up:]) == {sizes[up]}  # one step, and it stays


def test_max_replicas_bounds_the_plan_and_says_from_when() -> None:
    made = plan(snapshot(4, 30.0), forecast([30.0] * 12 + [900.0] * 60), POOL, NOW).plan
    assert made.bound_by.kind is BoundKind.MAX_REPLICAS
    assert made.bound_by.start == NOW + timedelta(minutes=60)


def test_a_full_group_says_what_it_is_full_of_and_not_that_a_change_costs_too_much() -> None:
    few = plan(snapshot(4, 95.0, 0, 4), None, POLICY, NOW).plan
    assert (few.replicas, few.bound_by.kind, few.bound_by.id) == (4, BoundKind.PARTITION, None)
    assert "4 members stay: as many as the partitions can keep busy" in few.reasons
    most = plan(snapshot(8, 900.0), forecast([900.0] * 72), replace(POOL, max_replicas=8), NOW).plan
    assert (most.replicas, most.bound_by.kind) == (8, BoundKind.MAX_REPLICAS)
    assert "8 members stay: max_replicas allows no more" in most.reasons
    assert not any("cost more" in reason for reason in (*few.reasons, *most.reasons))


def test_zero_is_a_size_and_members_wake_before_the_first_arrivals() -> None:
    asleep = replace(POOL, min_replicas=0)
    knobs = Knobs(dwell=timedelta(minutes=5), price_h=0.0, floor=1.0)
    quiet = plan(snapshot(0, 0.0, working=0), forecast([0.0] * 72), asleep, NOW, knobs=knobs).plan
    assert quiet.replicas == 0
    waking = plan(snapshot(0, 0.0, working=0), forecast([0.0] + [25.0] * 71), asleep, NOW, knobs=knobs).plan
    assert waking.replicas >= 3  # the lead time ends after the first arrivals of the next five minutes
    soon = replace(asleep, lead_time=timedelta(minutes=6))
    assert plan(snapshot(0, 0.0, working=0), forecast([0.0] + [25.0] * 71), soon, NOW, knobs=knobs).plan.replicas >= 3
    surprised = plan(snapshot(0, 0.0, 5, working=0), forecast([0.0] * 72), asleep, NOW, knobs=knobs).plan
    assert surprised.replicas >= 1


def test_windows_floor_the_plan_before_they_begin_and_not_outside() -> None:
    window = Rule(start=NOW + timedelta(minutes=2), end=NOW + timedelta(hours=2), at_least=9)
    assert plan(snapshot(), forecast([30.0] * 72), POOL, NOW, rules=[window]).plan.replicas == 9
    later = Rule(start=NOW + timedelta(hours=2), end=NOW + timedelta(hours=3), at_least=9)
    made = plan(snapshot(), forecast([30.0] * 72), POOL, NOW, rules=[later]).plan
    assert made.replicas == 4
    assert max(s.replicas for s in made.steps) == 9
    exact = Rule(end=NOW + timedelta(hours=1), replicas=2, override=True)
    assert plan(snapshot(), forecast([30.0] * 72), POOL, NOW, rules=[exact]).plan.replicas == 2


def test_events_multiply_the_forecast() -> None:
    sale = Rule(name="sale", start=NOW, end=NOW + timedelta(hours=1), factor=3.0)
    usual = plan(snapshot(), forecast([30.0] * 72), POOL, NOW).plan
    special = plan(snapshot(), forecast([30.0] * 72), POOL, NOW, rules=[sale]).plan
    assert special.replicas > 2 * usual.replicas
    assert any("sale" in reason for reason in special.reasons)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=14),
    st.sampled_from(["range", "roundrobin", "uniform", "sticky", "planned"]),
)
def test_b16_size_follows_the_busiest_member(weights: list[float], assignor: str) -> None:
    shares = np.array(weights) / sum(weights)
    curve = assigned_curve(10.0, shares, len(weights), assignor)
    assert (np.diff(curve.rates) >= -1e-9).all()
    assert curve.rates[-1] <= 10.0 / shares.max() + 1e-9
    assert (curve.rates <= pool_curve(10.0, len(weights)).rates + 1e-6).all()


def test_uniform_and_several_topics_deal_as_kafka_does() -> None:
    falling = np.array([4.0, 3.0, 2.0, 1.0])
    assert assigned_curve(10.0, falling, 2, "uniform").rates.round(2).tolist() == [0.0, 10.0, 14.29]  # runs: 7 and 3
    assert assigned_curve(10.0, falling, 2, "roundrobin").rates.round(2).tolist() == [0.0, 10.0, 16.67]  # 6 and 4
    two = assigned_curve(10.0, np.ones(4), 4, "range", (2, 2))  # range never gives two topics more than two members
    assert two.rates.tolist() == [0.0, 10.0, 20.0, 20.0, 20.0]


def test_d22_the_horizon_of_the_plan_is_in_time() -> None:
    made = plan(snapshot(), forecast([30.0] * 36 + [90.0] * 36), POOL, NOW).plan
    rise = next(s for s in made.steps if s.replicas > 4)
    assert NOW + timedelta(hours=2) <= rise.start <= NOW + timedelta(hours=3)


def test_an_unknown_assignor_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(PolicyRefused, match="assignor=rang must be one of range, roundrobin"):
        ScalingPolicy(assignor="rang")


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky", "uniform"])
def test_b16_scale_only_groups_get_the_even_division_that_really_helps(assignor: str) -> None:
    """Twelve even partitions: five members are no faster than four (the busiest has three), six are."""
    lone = replace(POLICY, assignor=assignor, assignment=AssignmentKind.SCALE_ONLY)
    knobs = Knobs(near_level=0.5, far_level=0.5, floor=0.0, correction=0.0)
    made = plan(snapshot(4, 41.0, 0, 12), forecast([41.0] * 72, 12), lone, NOW, knobs=knobs).plan
    assert made.replicas == 6  # 41 records/s want five members of ten; under this assignor five are as slow as four
    assert all(s.replicas in (1, 2, 3, 4, 6, 12) for s in made.steps)


def test_b16_range_deals_each_topic_of_a_group_by_itself() -> None:
    """Twice six even partitions: four members are as slow as three (the first has two of each topic), six are not."""
    lone = replace(POLICY, assignor="range", assignment=AssignmentKind.SCALE_ONLY)
    knobs = Knobs(near_level=0.5, far_level=0.5, floor=0.0, correction=0.0)
    rows = [TopicPartition(topic, p) for topic in ("orders", "returns") for p in range(6)]
    seen = snapshot(4, 35.0, 0, 12)
    seen = replace(seen, partitions=dict(zip(rows, seen.partitions.values(), strict=True)))
    both = replace(
        forecast([35.0] * 72, 12), partitions=tuple(r.partition for r in rows), topics=tuple(r.topic for r in rows)
    )
    assert plan(seen, both, lone, NOW, knobs=knobs).plan.replicas == 6


broken = st.fixed_dictionaries(
    {
        "age_min": st.sampled_from([0, 0, 1, 30, -30]),
        "capacity": st.sampled_from([10.0, 10.0, None]),
        "replicas": st.sampled_from([7, 7, None]),
        "members": st.sampled_from([7, 7, 3, 0]),
        "known": st.sampled_from([2, 2, 1, 0]),
        "lag": st.sampled_from([0, 0, None]),
        "forecast": st.sampled_from(["whole", "whole", "partial", "old", "gone", "future"]),
    }
)


@settings(deadline=None, max_examples=40)
@given(st.lists(broken, min_size=1, max_size=12))
def test_whatever_breaks_in_whatever_order_nobody_is_given_up(faults: list[dict[str, object]]) -> None:
    """Seven members, two records a second: only ticks at which everything is known may take one away."""
    knobs, memory = Knobs(dwell=timedelta(minutes=2), price_h=0.0), None
    for minute, fault in enumerate(faults):
        at = NOW + timedelta(minutes=minute)
        working = int(fault["members"])  # type: ignore[call-overload]
        seen = snapshot(7, 2.0, 0, 2, working)
        states = {
            tp: PartitionState(fault["lag"], 1.0 if n < int(fault["known"]) else None, why="away")  # type: ignore[arg-type, call-overload]
            for n, tp in enumerate(seen.partitions)
        }
        seen = replace(
            seen,
            at=at - timedelta(minutes=int(fault["age_min"])),  # type: ignore[call-overload]
            replicas=fault["replicas"],
            partitions=states,
        )
        late = {"old": -1, "future": 1}.get(str(fault["forecast"]), 0)
        given_forecast = forecast(
            [2.0] * 72, 1 if fault["forecast"] == "partial" else 2, at + late * timedelta(hours=1)
        )
        is_whole = fault == {
            "age_min": fault["age_min"], "capacity": 10.0, "replicas": 7, "members": working, "known": 2, "lag": 0,
            "forecast": "whole",
        } and working == 7 and fault["age_min"] in (0, 1)  # fmt: skip
        planned = plan(
            seen,
            None if fault["forecast"] == "gone" else given_forecast,
            replace(POOL, capacity_per_member=fault["capacity"]),  # type: ignore[arg-type]
            at,
            knobs=knobs,
            memory=memory,
        )
        memory = planned.memory
        if not is_whole and fault["replicas"] is not None:
            assert planned.plan.replicas >= 7
            assert planned.plan.reasons
        if is_whole and planned.plan.replicas < 7:
            return


def test_k11_sized_by_rate_and_capacity_and_not_by_a_threshold_of_lag() -> None:
    """The steps between the limits are used, up and down; the same lag on a slow stream asks for no more."""
    sizes = [plan(snapshot(8, r, working=8), forecast([r] * 60), POOL, NOW).plan.steps[-1].replicas for r in RATES]
    assert len(set(sizes)) == len(RATES) and sizes == sorted(sizes)
    lagging = [
        plan(snapshot(8, r, 400, working=8), forecast([r] * 60), POOL, NOW).plan.steps[-1].replicas for r in RATES
    ]
    assert lagging == sizes  # forty seconds of one member are worked off; they are no size of their own


RATES = (5.0, 30.0, 60.0, 90.0, 120.0)


@pytest.mark.parametrize(("waits_s", "kind"), [(12, BoundKind.NONE), (45, BoundKind.DOWNSTREAM)])
def test_k9_what_is_in_flight_between_commits_is_no_backlog_and_no_sign_of_a_slow_downstream(
    waits_s: int, kind: BoundKind
) -> None:
    """The group consumes the 30 records/s that arrive, with two members and with four; what waits differs."""
    memory, at, made = None, NOW, None
    for minute in range(12):
        working = 2 if minute < 5 else 4
        states = {TopicPartition("orders", p): PartitionState(waits_s * 5, 5.0, 5.0) for p in range(6)}
        members = tuple(Member(f"m-{i}", ()) for i in range(working))
        seen = replace(snapshot(working), at=at, members=members, partitions=states)
        planned = plan(seen, forecast([30.0] * 72, 6, at), POOL, at, memory=memory)
        memory, made, at = planned.memory, planned.plan, at + timedelta(minutes=1)
    assert memory is not None
    assert made is not None
    assert (memory.downstream.limit is None) == (kind is BoundKind.NONE)
    assert any("downstream is the bound" in why for why in made.reasons) == (kind is BoundKind.DOWNSTREAM)


def test_a_partition_whose_rate_is_not_known_takes_its_part_of_a_member() -> None:
    """Seven partitions of 10 and one that was not read: they are held by eight members, not by seven."""

    def seen(last: float | None) -> GroupSnapshot:
        states = {TopicPartition("orders", p): PartitionState(0, 10.0) for p in range(7)}
        states[TopicPartition("orders", 7)] = PartitionState(0, last)
        return GroupSnapshot(G, NOW, 4, tuple(Member(f"m-{i}") for i in range(4)), states)

    planned = replace(POLICY, assignment=AssignmentKind.PLANNED)
    curves = [_curve(seen(last), None, planned, 10.0, 8) for last in (10.0, None)]
    assert curves[0].need(np.array([60.0])) == curves[1].need(np.array([60.0])) == 8
    nobody = replace(seen(None), partitions=dict.fromkeys(seen(None).partitions, PartitionState(0, None)))
    assert _curve(nobody, None, planned, 10.0, 8).need(np.array([60.0])) == 8
