"""The checks that end every assignment test."""

from __future__ import annotations

import numpy as np

from balancer.assignment import AssignmentResult
from balancer.movement import difference
from balancer.packing.members import Packing


def check_packing(packing: Packing, loads, capacity, owner) -> None:
    """Every partition has one owner that may own; what is said to have moved is what has moved."""
    assert packing.owner.shape == loads.shape
    assert ((packing.owner >= 0) & (packing.owner < capacity.size)).all()
    assert (capacity[packing.owner] > 0).all()
    np.testing.assert_array_equal(packing.moved, (owner >= 0) & (packing.owner != owner))
    carried = np.bincount(packing.owner, loads, capacity.size).astype(float)
    expected = np.divide(carried, capacity, out=np.zeros_like(carried), where=capacity > 0)
    np.testing.assert_allclose(packing.utilization, expected, rtol=1e-9, atol=1e-12)


def check_bins(after, loads, capacity) -> None:
    """Open-ended packing: everybody is placed, nobody is over capacity except one that holds one hot partition."""
    assert (after >= 0).all()
    for member in np.unique(after):
        own = loads[after == member]
        assert own.sum() <= capacity * (1 + 1e-6) or (own > 0).sum() == 1


def check_result(result: AssignmentResult, loads, members, current) -> None:
    """One owner each, draining members own nothing, moves are the difference, nothing moves without a reason."""
    placed = [p for owned in result.assignment.values() for p in owned]
    assert sorted(placed) == sorted(loads)
    assert set(result.assignment) == {m.id for m in members}
    assert all(owned == tuple(sorted(owned)) for owned in result.assignment.values())
    assert all(not result.assignment[m.id] for m in members if m.draining)
    assert result.moves == difference(current, result.assignment)
    assert result.reasons or not result.moves
    if result.rscore is not None:
        assert result.rscore >= 0
        assert (result.rscore == 0) or any(m.source is not None for m in result.moves)
    if result.lower_bound is not None:
        assert result.lower_bound <= sum(not m.draining for m in members)
