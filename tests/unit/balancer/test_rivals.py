"""Rivals as published, KEEP and KEEP*, and sequences of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from balancer.packing.bounds import l2_bound
from balancer.packing.exact import fewest_bins
from balancer.packing.keep import _potential_of, keep, potential
from balancer.packing.rivals import RIVALS, any_fit, keep_star, modified_any_fit
from balancer.packing.sequence import ALGORITHMS, FIXED, cardinal_bin_scores, run_sequence
from tests.unit.balancer.invariants import check_bins

LOADS = hnp.arrays(float, st.integers(1, 16), elements=st.one_of(st.just(0.0), st.floats(0.01, 130)))
NOBODY = {n: np.full(n, -1, dtype=np.intp) for n in range(1, 20)}


def walk(partitions, rows, step, seed=0):
    """The generator of arXiv 2402.06085."""
    rng = np.random.default_rng(seed)
    out = [rng.uniform(0, 100, partitions)]
    for _ in range(rows - 1):
        out.append(np.clip(out[-1] + rng.uniform(-step, step, partitions), 0, 100))
    return np.array(out)


@settings(max_examples=15)
@pytest.mark.parametrize("name", ALGORITHMS)
@given(LOADS, st.data())
def test_every_algorithm_keeps_the_invariants(name, loads, data):
    owner = data.draw(hnp.arrays(np.intp, loads.size, elements=st.integers(-1, 5)))
    after = ALGORITHMS[name](loads, owner, 100.0, np.arange(loads.size))
    check_bins(after, loads, 100.0)
    assert np.unique(after[loads > 0]).size >= l2_bound(loads, 100.0)


@settings(max_examples=25)
@given(hnp.arrays(float, st.integers(1, 9), elements=st.integers(1, 130).map(float)))
def test_ffd_and_bfd_keep_their_proved_distance(loads):
    optimum = fewest_bins(loads, 100.0)
    for name in ("ffd", "bfd"):
        used = np.unique(RIVALS[name](loads, NOBODY[loads.size], 100.0, np.arange(loads.size))).size
        assert used <= 11 / 9 * optimum + 6 / 9 + 1e-9


def test_the_classics_on_an_example_by_hand():
    loads, owner, order = np.array([50.0, 70.0, 40.0, 30.0, 20.0]), NOBODY[5], np.arange(5)
    packed = {rule: any_fit(loads, owner, 100.0, order, rule).tolist() for rule in ("next", "first", "worst", "best")}
    assert packed == {
        "next": [0, 1, 2, 2, 2],
        "first": [0, 1, 0, 1, 2],
        "worst": [0, 1, 0, 1, 2],
        "best": [0, 1, 0, 1, 2],
    }


def test_a_new_bin_takes_the_partitions_old_consumer():
    owner = np.array([4, 7, 7], dtype=np.intp)
    assert any_fit(np.array([90.0, 80.0, 70.0]), owner, 100.0, np.arange(3), "first").tolist() == [4, 7, 0]


def test_modified_any_fit_by_hand():
    # Consumer 1 (sum 110) comes first: 70 and 30 stay, 10 does not fit anywhere yet and goes into its own bin first.
    loads, owner = np.array([70.0, 30.0, 10.0, 60.0]), np.array([1, 1, 1, 2], dtype=np.intp)
    assert modified_any_fit(loads, owner, 100.0, "worst", by_biggest=False).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("packer", [keep, keep_star])
@given(LOADS, st.data())
@settings(max_examples=30)
def test_keep_moves_nothing_without_a_reason(packer, loads, data):
    owner = data.draw(hnp.arrays(np.intp, loads.size, elements=st.integers(0, 5)))
    carried = np.bincount(owner, loads, 6)
    counts = np.bincount(owner, minlength=6)
    after = packer(loads, owner, 100.0, dissolve=False)
    check_bins(after, loads, 100.0)
    if ((carried <= 100) | (counts <= 1)).all():
        np.testing.assert_array_equal(after, owner)
    well = np.flatnonzero((carried <= 100 * (1 - 1e-9)) & (counts > 0))
    if packer is keep_star:  # who has room gives nothing away
        assert (after[np.isin(owner, well)] == owner[np.isin(owner, well)]).all()


def test_keep_scales_with_its_unit():
    loads, owner = walk(20, 1, 10)[0], np.arange(20) % 9
    np.testing.assert_array_equal(keep(loads, owner, 100.0), keep(loads * 1e6, owner, 1e8))


@given(st.floats(0, 3))
def test_the_potential_of_one_is_that_of_many(load):
    assert _potential_of(load) == pytest.approx(potential(np.array([load]))[0], abs=1e-12)


def test_large_groups_are_sampled_and_still_packed_well():
    rng = np.random.default_rng(5)
    loads = rng.uniform(0, 100, 700)
    first = keep(loads, np.full(700, -1), 100.0)
    later = np.clip(loads + rng.uniform(-10, 10, 700), 0, 100)
    second = keep(later, first, 100.0)
    for owner, values in ((first, loads), (second, later)):
        check_bins(owner, values, 100.0)
        assert np.unique(owner).size <= 1.07 * l2_bound(values, 100.0)
    assert (first != second).mean() < 0.4


def test_keep_dissolves_only_where_it_pays():
    # The second member is nearly empty and fits: it goes. One that carries nearly a full member stays, fit or not.
    assert keep(np.array([60.0, 5.0]), np.array([0, 1]), 100.0).tolist() == [0, 0]
    loads = np.array([60.0, 60.0, 60.0, 60.0, 24.0, 24.0, 24.0, 24.0])
    assert keep(loads, np.array([0, 1, 2, 3, 4, 4, 4, 4]), 100.0).tolist() == [0, 1, 2, 3, 4, 4, 4, 4]


@pytest.mark.parametrize(("step", "share"), [(5, 0.9), (25, 1.1)])
def test_keep_moves_less_than_keep_star_with_no_more_members(step, share):
    """On short walks chance decides a tenth; the benchmark compares long ones."""
    rows = walk(32, 100, step, seed=7)
    results = {name: run_sequence(name, rows, 100.0) for name in ("keep", "keep_star", "bfd", "mwf")}
    scores = cardinal_bin_scores({name: r.consumers for name, r in results.items()})
    for result in results.values():
        for owner, loads in zip(result.owner, rows, strict=True):
            check_bins(owner, loads, 100.0)
        assert (result.consumers >= result.lower_bound).all()
        assert result.busiest.max() <= 1 + 1e-9
    assert results["keep"].rscore.mean() < share * results["keep_star"].rscore.mean()
    assert results["keep_star"].rscore.mean() < results["mwf"].rscore.mean()
    assert results["mwf"].rscore.mean() < results["bfd"].rscore.mean()
    assert scores["keep"] <= scores["keep_star"] + 0.005


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_number_of_members_is_kept(name):
    rows = walk(20, 10, 10)
    result = run_sequence(name, rows, 100.0, members=12)
    assert result.owner.max() < 12 and result.owner.min() >= 0
    assert (result.consumers <= 12).all()
    assert result.busiest[-1] == pytest.approx(np.bincount(result.owner[-1], rows[-1]).max() / 100)


def test_partitions_that_come_and_go():
    rows = np.array([[50.0, 40.0], [50.0, np.nan], [50.0, 40.0]])
    result = run_sequence("keep", rows, 100.0, np.array([3, 3]))
    assert result.owner.tolist() == [[3, 3], [3, -1], [3, 3]]
    assert result.moved.tolist() == [0, 0, 0] and result.rscore.tolist() == [0.0, 0.0, 0.0]


def test_rscore_counts_what_stops_at_its_new_load():
    rows = np.array([[60.0, 30.0], [60.0, 50.0]])
    result = run_sequence("keep", rows, 100.0)
    assert result.rscore.tolist() == [0.0, 0.5] and result.moved.tolist() == [0, 1]


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        keep(np.ones(2), NOBODY[2], 0.0)
    with pytest.raises(ValueError, match="finite"):
        keep(np.array([np.inf]), NOBODY[1], 1.0)
    assert keep(np.empty(0), np.empty(0, dtype=np.intp), 1.0).size == 0
