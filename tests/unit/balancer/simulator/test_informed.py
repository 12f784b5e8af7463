"""The limit with the same information: ready for all that history has shown, and for nothing more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from balancer.rivals.fixed import needed_replicas, perfect
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.compare import limit_hours
from balancer.simulator.informed import Envelope, informed_path, rates_known
from balancer.simulator.world import World, run_path

T0 = datetime(2026, 1, 5, tzinfo=UTC)
UNIT = 600.0

rates = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e5))


@given(rates, st.data())
@settings(max_examples=50, deadline=None)
def test_nothing_in_the_history_exceeds_its_envelope(known: np.ndarray, data: st.DataObject) -> None:
    came = data.draw(arrays(np.float64, known.shape, elements=st.floats(0, 1e5)))
    over = Envelope.of(known, came, UNIT).over(known)
    assert (over >= came * (1 - 1e-9) - 1e-9).all()


@given(rates, st.data(), st.floats(0, 0.5))
@settings(max_examples=50, deadline=None)
def test_no_more_lies_beyond_than_may_and_no_lower_envelope_would_do(
    known: np.ndarray, data: st.DataObject, beyond: float
) -> None:
    known = np.full(known.shape, known[0])  # of one level, so that there is one factor
    came = data.draw(arrays(np.float64, known.shape, elements=st.floats(1, 1e5)))
    over = Envelope.of(known, came, UNIT, beyond).over(known)
    allowed = beyond * came.sum()
    assert np.maximum(came - over, 0).sum() <= allowed * (1 + 1e-9) + 1e-6
    assert np.maximum(came - 0.999 * over, 0).sum() >= allowed * (1 - 1e-6)


def of_jumps(before: float, after: float) -> World:
    """Return a day of history with one jump to ``before``, and a day with one to ``after``."""
    minutes = np.full(2880, 1000.0)
    minutes[700:760], minutes[2140:2200] = before, after
    start = T0 + timedelta(days=1)
    return World(ArrivalTrace(T0, 60, minutes[None]), start, start + timedelta(days=1), capacity=10.0)


def test_what_history_has_shown_is_served_and_paid_for_all_day() -> None:
    world = of_jumps(5000.0, 5000.0)
    path = informed_path(world, None, None)
    assert run_path(world, path, clairvoyant=True).late_share < 1e-4
    assert (path >= needed_replicas(world.arrivals, 10.0, 64)).mean() > 0.999
    assert path.sum() / 60 > 3 * limit_hours(world)  # it may jump at any time, for all that the rate says


def test_what_no_history_shows_is_late() -> None:
    world = of_jumps(2000.0, 9000.0)
    assert run_path(world, informed_path(world, None, None), clairvoyant=True).late_share > 0.01


def test_steady_demand_needs_no_more_than_the_clairvoyant() -> None:
    world = of_jumps(1000.0, 1000.0)
    assert informed_path(world, None, None).tolist() == perfect(world.arrivals, 10.0, 64).tolist()


def test_only_what_was_known_a_start_time_before_counts() -> None:
    minutes = np.arange(20.0)
    assert rates_known(minutes, 300.0)[10] == (minutes[4] + minutes[3]) / 2  # asked for at 5, which is not complete
