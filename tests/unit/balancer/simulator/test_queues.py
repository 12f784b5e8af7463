"""Hand-computed tiny cases, and a slow record-by-record oracle, for queues and members."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.simulator.arrivals import ArrivalTrace, spread, zipf_shares
from balancer.simulator.fleet import Fleet
from balancer.simulator.group import SimulatedGroup, range_sharing
from balancer.simulator.outcome import conclude
from balancer.simulator.queues import late_records
from balancer.simulator.world import World, run_path
from forecaster.topics import GroupId

T0 = datetime(2026, 1, 5, tzinfo=UTC)
G = GroupId("g")


def trace_of(per_minute: list[float]) -> ArrivalTrace:
    return ArrivalTrace(T0, 60, np.array([per_minute]))


def test_overload_by_hand() -> None:
    # 12 records/s against 10: latency grows by 0.2 s per second; after 300 s of overload 60 s are reached
    world = World(trace_of([720.0] * 10 + [0.0] * 10), T0, trace_of([0.0] * 20).end, capacity=10.0, start_s=120)
    outcome = run_path(world, np.ones(20, dtype=np.int64))
    # the run starts with ceil(12 / 8) = 2 working members and drops to one at once: a stall of 6 s first
    # A(t) = 12 t, S(t) = 10 (t - 6): late when 10 (t + 60 - 6) < 12 t, t > 270 s, of 600 s
    assert outcome.late_share == pytest.approx((600 - 270) / 600, abs=1e-9)
    assert outcome.hours == pytest.approx(20 / 60)
    assert outcome.rescales == 1
    # the median record arrives at 300 s and is served at 12 * 300 / 10 + 6 = 366 s
    assert outcome.p50_s == pytest.approx(66, abs=2)


def test_start_time_and_pause_by_hand() -> None:
    # one member for 10/s; demand 15/s; a second member requested at 60 s works at 180 s, then 6 s of stall
    trace = trace_of([900.0] * 30)
    group = SimulatedGroup(G, trace, capacity=10.0, start_s=120, pause_s=6, at=T0, working=1)
    group.advance_to(60)
    group.scale(G, 2, group.now)
    group.advance_to(180)
    assert (group.fleet.working, group.fleet.requested) == (2, 2)
    assert group.queues.backlog[0] == pytest.approx(5 * 180)
    group.advance_to(186)
    assert group.queues.backlog[0] == pytest.approx(5 * 180 + 15 * 6)
    group.advance_to(1800)
    assert group.queues.backlog[0] == 0
    assert group.fleet.paid_s == 60 * 1 + 1740 * 2
    outcome = conclude(group, T0, 1, 60.0)
    # served: 10 t until 180, nothing until 186, then 20/s: S(t) = 1800 + 20 (t - 186)
    # late: S(t + 60) < 15 t; before 120 s: 10 (t + 60) < 15 t, t > 120; then while 1800 < 15 t for t <= 126;
    # then 1800 + 20 (t - 126) < 15 t, t < 144
    assert outcome.late_share * 27000 == pytest.approx(15 * (144 - 120), abs=1e-4)


def test_pending_starts_are_cancelled_newest_first() -> None:
    fleet = Fleet(2, start_s=100, pause_s=6)
    fleet.request(4)
    fleet.move_to(50)
    fleet.request(7)
    assert not fleet.request(5)  # two of the newest three
    fleet.move_to(100)
    assert fleet.working == 4
    assert fleet.request(3)  # the last newest one, and one that works
    assert (fleet.working, fleet.pending) == (3, 0)
    fleet.move_to(150)
    assert fleet.working == 3


def test_stalls_overlap_and_do_not_add_up() -> None:
    fleet = Fleet(5, start_s=0, pause_s=6)
    fleet.request(4)
    fleet.move_to(2)
    fleet.request(3)
    assert fleet.stalled_until_s == 8


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=25), st.integers(0, 12))
def test_working_is_the_smallest_request_within_the_start_time(script: list[tuple[int, int]], start: int) -> None:
    fleet = Fleet(3, start_s=start * 10.0, pause_s=0.0)
    asked = [(-math.inf, 3)]
    at = 0.0
    for wait, replicas in script:
        at += wait * 10.0
        while fleet.next_event_s() <= at:
            fleet.move_to(fleet.next_event_s())
        fleet.move_to(at)
        fleet.request(replicas)
        asked.append((at, replicas))
        latest_before = max(i for i, (t, _) in enumerate(asked) if t <= at - start * 10.0)
        # several requests at one instant: the members that an earlier one cancelled do not come back
        assert fleet.working == min(n for _, n in asked[latest_before:])


def slow_latencies(per_second: list[int], able: list[int]) -> list[int]:
    """Serve records one by one in order: the oracle. ``able[s]`` records may be served in second ``s``."""
    queue: list[int] = []
    waits: list[int] = []
    for second, (arriving, free) in enumerate(zip(per_second, able, strict=True)):
        queue += [second] * arriving
        for _ in range(min(free, len(queue))):
            waits.append(second - queue.pop(0))
    return waits + [10**6] * len(queue)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 600), min_size=4, max_size=8),
    st.lists(st.tuples(st.integers(0, 13), st.integers(1, 6)), min_size=0, max_size=5),
    st.sampled_from([0, 60, 120]),
)
def test_late_share_agrees_with_records_one_by_one(
    minutes: list[int], script: list[tuple[int, int]], start_s: int
) -> None:
    capacity, pause, slo = 3, 6, 60
    minutes = [60 * (m // 60) for m in minutes] + [0] * 20  # whole records per second, and time to drain
    trace = trace_of([float(m) for m in minutes])
    group = SimulatedGroup(G, trace, capacity=capacity, start_s=start_s, pause_s=pause, at=T0, working=1)
    requests = {60 * minute: replicas for minute, replicas in script}
    able: list[int] = []
    history = [1] * (start_s + 1)
    working, stalled = 1, 0
    for second in range(60 * len(minutes)):
        if second in requests:
            group.advance_to(float(second))
            group.scale(G, requests[second], group.now)
            history.append(requests[second])
        else:
            history.append(history[-1])
        now_working = min(history[-(start_s + 1) :])
        if now_working != working:
            working, stalled = now_working, pause
        able.append(0 if stalled else working * capacity)
        stalled = max(0, stalled - 1)
    group.advance_to(60.0 * len(minutes))
    per_second = [m // 60 for m in minutes for _ in range(60)]
    waits = slow_latencies(per_second, able)
    late, total = late_records_of(group, slo)
    assert total == pytest.approx(sum(minutes))
    # seconds against a fluid: a record's latency differs by at most one second
    assert sum(w > slo + 1 for w in waits) - 1e-6 <= late <= sum(w >= slo - 1 for w in waits) + 1e-6


def late_records_of(group: SimulatedGroup, slo: float) -> tuple[float, float]:
    group.queues.close(slo)
    return late_records(group.queues.log.curves(0), slo)


def test_a_hot_partition_is_bound_by_its_member() -> None:
    trace = ArrivalTrace(T0, 60, np.array([[600.0] * 30, [60.0] * 30]), partitioned=True)
    group = SimulatedGroup(G, trace, capacity=8.0, start_s=0, pause_s=0, at=T0, working=2)
    group.advance_to(1800)
    assert group.queues.backlog.tolist() == pytest.approx([2 * 1800, 0])
    assert group.observe(G).members[0].partitions[0].partition == 0


def test_moved_partitions_alone_stall_when_the_pause_is_theirs() -> None:
    trace = ArrivalTrace(T0, 60, np.full((4, 10), 60.0), partitioned=True)
    group = SimulatedGroup(G, trace, capacity=8.0, start_s=0, pause_s=6, at=T0, working=2, pause_moved_only=True)
    group.advance_to(60.0)
    group.scale(G, 4, group.now)  # range over 4: partitions 1, 2 and 3 change their owner, partition 0 stays
    group.advance_to(63.0)
    assert group.queues.backlog.tolist() == pytest.approx([0, 3, 3, 3])
    group.advance_to(75.0)
    assert group.queues.backlog.sum() == 0
    assert group.moved_load_s == [pytest.approx(3 / 8)]


def test_nobody_works_when_nobody_is_requested() -> None:
    group = SimulatedGroup(G, trace_of([60.0] * 10), capacity=8.0, start_s=0, pause_s=0, at=T0)
    group.scale(G, 0, T0)
    group.advance_to(600)
    assert group.queues.backlog[0] == 600
    outcome = conclude(group, T0, 1, 60.0)
    assert outcome.late_share == pytest.approx(1.0)
    assert outcome.p50_s is None


def test_zipf_spread_keeps_the_sum() -> None:
    trace = spread(trace_of([100.0] * 4), zipf_shares(7, 1.0, 3))
    assert trace.counts.sum() == pytest.approx(400)
    assert trace.queues == 7
    assert range_sharing(3, np.zeros(7, dtype=np.int64)).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_poisson_draws_are_repeatable_and_keep_the_mean() -> None:
    trace = ArrivalTrace(T0, 3600, np.array([[36000.0] * 24]))
    drawn = trace.poisson(3)
    assert drawn.step_s == 60
    assert drawn.counts.sum() == pytest.approx(36000 * 24, rel=0.01)
    assert np.array_equal(drawn.counts, trace.poisson(3).counts)
