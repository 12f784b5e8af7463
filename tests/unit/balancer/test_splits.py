from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import PolicyRefused
from balancer.routing import protocol
from balancer.routing.table import Kind, SlotTable
from balancer.slot_loads import place_slots, slot_loads
from balancer.splits import Brokers, SplitPolicy, due, plan_splits, proposals_of

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
STEP = timedelta(minutes=15)
POLICY = SplitPolicy(max_partitions=8)
TABLE = protocol.adopt("orders", "id-1", 4, "murmur2", ["billing"])


def flat(*rates: float, steps: int = 12) -> np.ndarray:
    return np.repeat(np.array(rates)[:, None], steps, axis=1)


def peak_at(step: int, height: float, partition: int = 1) -> np.ndarray:
    rates = flat(40.0, 40.0, 40.0, 40.0)
    rates[partition, step:] = height
    return rates


def plan(rates: np.ndarray, **more: object):
    return plan_splits(
        more.pop("table", TABLE), rates, NOW, STEP, 100.0, more.pop("policy", POLICY), more.pop("now", NOW), **more
    )  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.01, 80.0), min_size=1, max_size=60))
def test_every_lane_fits_and_no_fewer_slots_could_move(loads: list[float]) -> None:
    room, weights = 80.0, np.array(loads)
    lanes, hot = place_slots(list(range(len(loads))), weights, room)
    assert hot is None
    moved = [s for lane in lanes for s in lane]
    assert len(set(moved)) == len(moved)
    assert all(weights[list(lane)].sum() <= room + 1e-6 for lane in lanes)
    assert weights.sum() - weights[moved].sum() <= room + 1e-6
    if moved:  # one fewer, even the heaviest, would leave too much behind
        fewest = np.sort(weights)[::-1][: len(moved) - 1].sum()
        assert weights.sum() - fewest > room - 1e-9


def test_e1_a_partition_three_times_a_member_gets_four_lanes_before_its_hour() -> None:
    (split,) = plan(peak_at(6, 300.0))
    assert (split.kind, split.partition, split.lanes, split.refused) == ("split", 1, 4, None)
    assert split.at == NOW + 6 * STEP - POLICY.lead and "300%" in split.reason
    assert due([split], NOW) == () and due([split], split.at) == (split,)


def test_e2_nothing_is_planned_where_one_member_will_do() -> None:
    assert plan(flat(40.0, 99.0, 40.0, 40.0)) == ()


def test_e6_slots_go_by_what_was_sampled_and_few_move() -> None:
    slots = list(TABLE.slots_of(1))
    shares = np.zeros(TABLE.slots)
    shares[slots] = 0.4 / len(slots)
    shares[slots[3]] += 0.6
    (split,) = plan(peak_at(0, 130.0), shares=shares)
    assert slots[3] in split.placement[0]  # the heaviest goes, and nearly nothing else
    assert sum(map(len, split.placement)) < 5


def test_a_key_hotter_than_a_member_is_refused_with_the_offer() -> None:
    shares = np.zeros(TABLE.slots)
    slot = TABLE.slots_of(1)[3]
    shares[slot] = 1.0
    (split,) = plan(peak_at(0, 150.0), shares=shares, hot_keys={slot: ("eve", 140.0)})
    assert split.refused is not None and split.placement == ()
    assert "key eve alone takes 140% of a member" in split.refused and "with the finer key" in split.refused
    assert due([split], NOW) == ()
    (shown,) = proposals_of("orders", [split])
    assert shown.kind == "key" and "not split" in shown.text


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"policy": SplitPolicy()}, "set max_partitions"),
        ({"policy": SplitPolicy(max_partitions=5)}, "leaves 1 new partitions, 3 are needed"),
        ({"brokers": Brokers(partitions_left=2)}, "the cluster has room for 2 more"),
        ({"brokers": Brokers(under_replicated=3)}, "3 partitions of the cluster are under-replicated"),
        ({"brokers": Brokers(offline=1)}, "1 partitions of the cluster are offline"),
        ({"changed": {1: NOW - timedelta(minutes=5)}}, "it was changed 5 min ago"),
    ],
)
def test_e4_what_forbids_a_split_is_said(more: dict[str, object], why: str) -> None:
    (split,) = plan(peak_at(0, 300.0), **more)
    assert split.refused is not None and why in split.refused


def test_lanes_that_are_there_cost_no_partition() -> None:
    rates = np.vstack([peak_at(0, 150.0), np.zeros((1, 12))])
    (split,) = plan(rates, policy=SplitPolicy(max_partitions=5), brokers=Brokers(offline=1))
    assert split.refused is None  # partition 4 exists and serves nothing


def test_a_worker_at_its_cpu_limit_counts_as_saturated() -> None:
    (split,) = plan(flat(40.0, 90.0, 40.0, 40.0), busy={1: 0.95}, cpu_limit=0.8)
    assert split.at == NOW and "95% of a core (limit 80%)" in split.reason
    assert plan(flat(40.0, 90.0, 40.0, 40.0), busy={1: 0.7}, cpu_limit=0.8) == ()


def split_table() -> SlotTable:
    table = protocol.prepare(TABLE, Kind.SPLIT, TABLE.slots_of(1)[::2], 1, 4)
    number = table.epoch
    from balancer.routing.table import Fence

    table = protocol.start(protocol.fence(protocol.stop(table, number), number, Fence(0, 0, 0, 0)), number)
    table = protocol.open_(protocol.drained(table, number, "billing"), number, "billing")
    return protocol.done(table, number)


def test_lanes_are_merged_after_the_peak_and_not_into_the_next_one() -> None:
    table = split_table()
    (merge,) = plan(flat(10.0, 10.0, 10.0, 10.0, 10.0), table=table)
    assert (merge.kind, merge.partition) == ("merge", 1) and "20% of a member" in merge.reason
    soon = flat(10.0, 10.0, 10.0, 10.0, 10.0)
    soon[1, 7] = 60.0  # within the two hours that it looks ahead
    assert plan(soon, table=table) == ()
    assert plan(flat(10.0, 10.0, 10.0, 10.0, 10.0), table=table, changed={1: NOW - timedelta(minutes=10)}) == ()
    assert plan(flat(10.0, 10.0, 10.0, 10.0, 10.0, steps=4), table=table) == ()  # the forecast ends too soon


def test_what_cpu_has_split_is_merged_when_its_owners_are_idle_not_because_records_are_few() -> None:
    low = flat(10.0, 10.0, 10.0, 10.0, 10.0)
    assert plan(low, table=split_table(), busy={1: 0.3, 4: 0.3}, cpu_limit=0.8) == ()
    (merge,) = plan(low, table=split_table(), busy={1: 0.2, 4: 0.2}, cpu_limit=0.8)
    assert merge.kind == "merge"
    # what a worker without work uses is no work of the lanes
    (merge,) = plan(low, table=split_table(), busy={1: 0.4, 4: 0.4}, cpu_limit=0.8, idle_cpu=0.25)
    assert merge.kind == "merge"
    assert plan(low, table=split_table(), busy={1: 0.6, 4: 0.5}, cpu_limit=0.8, idle_cpu=0.25) == ()


def test_a_bigger_member_is_priced_beside_the_split() -> None:
    (split,) = plan(peak_at(8, 150.0), faster_capacity=200.0)
    assert split.others == {"faster_member": 3.0} and split.price < 3.0
    assert "faster_member would cost 3 member-hours, the split" in proposals_of("orders", [split])[0].text
    (dear,) = plan(flat(40.0, 150.0, 40.0, 40.0), faster_capacity=151.0)
    assert dear.others["faster_member"] < dear.price and due([dear], NOW) == ()  # the bigger member is the cheaper one
    (cheap,) = plan(flat(40.0, 150.0, 40.0, 40.0), faster_capacity=350.0)
    assert cheap.others["faster_member"] > cheap.price and due([cheap], NOW) == (cheap,)


def test_loads_are_even_where_nothing_was_sampled() -> None:
    loads = slot_loads(TABLE, 2, 100.0, np.zeros(TABLE.slots))
    assert loads.sum() == pytest.approx(100.0) and loads.std() == pytest.approx(0.0)


def test_a_split_is_done_before_the_load_passes_its_limit_not_when_it_passes_a_member() -> None:
    rates = peak_at(6, 300.0)
    rates[1, 2:6] = (70.0, 82.0, 90.0, 98.0)  # on its way: 80 % of a member is passed three steps before all of it
    (split,) = plan(rates)
    assert split.at == NOW + 3 * STEP - POLICY.lead and "passes one member's capacity" in split.reason
    rates[1, 4] = 75.0  # it comes back below: what counts is the last rise
    (later,) = plan(rates)
    assert later.at == NOW + 5 * STEP - POLICY.lead


def test_arrivals_above_the_limit_count_where_the_forecast_did_not_see_them() -> None:
    low = flat(40.0, 40.0, 40.0, 40.0)
    (split,) = plan(low, arriving={1: 170.0})
    assert (split.at, split.lanes) == (NOW, 3) and "170% of a member (limit 80%)" in split.reason
    assert "more than the forecast's 40%" in split.reason
    assert plan(low, arriving={1: 79.0}) == ()
    assert plan(flat(40.0, 90.0, 40.0, 40.0), arriving={1: 85.0}) == ()  # foreseen, and one member will do


def test_lanes_are_evened_out() -> None:
    lanes, _ = place_slots(list(range(9)), np.full(9, 30.0), 80.0)
    assert [len(lane) for lane in lanes] == [2, 2, 2, 1]


def test_policies_that_cannot_be_meant() -> None:
    with pytest.raises(PolicyRefused):
        SplitPolicy(limit=0.5, merge_below=0.6)
