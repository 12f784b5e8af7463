"""What so many members sustain, against a direct count of what is left over under every size's assignment."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.assignors import owner_under
from balancer.capacity import assigned_curve

CAPACITY = 10.0


def dealt(loads: list[float], members: int, assignor: str) -> list[list[float]]:
    """Return the loads of each member."""
    owned: list[list[float]] = [[] for _ in range(members)]
    if assignor != "planned":
        for owner, load in zip(owner_under(assignor, [len(loads)], members).tolist(), loads, strict=True):
            owned[owner].append(load)
        return owned
    heap = [(0.0, m) for m in range(members)]
    for load in sorted(loads, reverse=True):
        carried, m = heapq.heappop(heap)
        owned[m].append(load)
        heapq.heappush(heap, (carried + load, m))
    return owned


def left_over(loads: list[float], members: int, assignor: str) -> float:
    """Return the records/s that these members leave unserved, beyond what no number of members could serve."""
    beyond = sum(max(0.0, sum(own) - CAPACITY) for own in dealt(loads, members, assignor))
    return beyond - sum(max(0.0, load - CAPACITY) for load in loads)


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=12),
    st.floats(0.5, 300.0),
    st.sampled_from(["planned", "range", "roundrobin"]),
)
def test_more_members_are_needed_while_they_serve_more(shares: list[int], demand: float, assignor: str) -> None:
    loads = [demand * share / sum(shares) for share in shares]
    needed = int(assigned_curve(CAPACITY, np.array(shares, dtype=float), 12, assignor).need(np.array([demand]))[0])
    slack = 1e-9 * (1 + demand)
    assert 1 <= needed <= len(shares)
    assert left_over(loads, needed, assignor) <= slack
    for fewer in range(1, needed):  # planned takes the best of the smaller packings, so it may stop earlier
        assert left_over(loads, fewer, assignor) > -slack
        if assignor != "planned":
            assert left_over(loads, fewer, assignor) > 0


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.floats(0.5, 300.0), st.integers(1, 12))
def test_what_members_serve_is_the_demand_until_more_would_serve_more(
    shares: list[int], demand: float, members: int
) -> None:
    curve = assigned_curve(CAPACITY, np.array(shares, dtype=float), 12)
    served = float(curve.serves(np.array([members]), np.array([demand]))[0])
    enough = members >= int(curve.need(np.array([demand]))[0])
    assert (served >= demand * (1 - 1e-9)) == enough
    assert np.isfinite(served)


def test_e2_a_hot_partition_asks_for_one_member_and_the_others_for_theirs() -> None:
    shares = np.array([40.0, 6.0, 6.0, 6.0, 6.0])  # of 64 records/s, at 10 a member
    curve = assigned_curve(CAPACITY, shares, 5)
    assert curve.need(np.array([32.0, 64.0])).tolist() == [3, 5]
    assert curve.rates[5] == pytest.approx(16.0)  # the hot one sets the pace of the group as a whole
