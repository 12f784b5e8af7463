"""What a month of simulation takes a short way around says, to the bit, what the long way says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.knobs import Knobs
from balancer.schedule import highest_of, reaches
from balancer.simulator.arrivals import ArrivalTrace, spread, zipf_shares
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.queues import FluidQueues, weighted_quantiles
from balancer.simulator.ticking import run_headway
from balancer.simulator.world import World
from forecaster.forecast import Forecast, Rung

T0 = datetime(2026, 1, 5, tzinfo=UTC)
LEVELS = (0.5, 0.9, 0.98)


def batch_of(rng: np.random.Generator, origins: int, steps: int = 72) -> ForecastBatch:
    rising = np.cumsum(rng.gamma(2.0, 20.0, (origins, steps, len(LEVELS))), axis=2)
    return ForecastBatch(0, 300, LEVELS, rising.astype(np.float32))


@given(seed=st.integers(0, 99), partitions=st.integers(1, 40), level=st.integers(0, 2), cut=st.integers(0, 71))
def test_a_shared_forecast_is_the_whole_one(seed: int, partitions: int, level: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    batch, shares = batch_of(rng, 1), rng.dirichlet(np.ones(partitions))
    shared = batch.at(0, T0, shares)
    total = batch.total[0].astype(np.float64)
    numbers = tuple(range(partitions))
    rates = shares[:, None, None] * total
    whole = Forecast("simulated", T0, timedelta(minutes=5), numbers, LEVELS, rates, total, "lead_ridge", Rung.OWN_MODEL)
    assert (shared.peaks(level, cut, 72) == whole.peaks(level, cut, 72)).all()
    assert (shared.at_step(cut, level) == whole.at_step(cut, level)).all()
    assert (shared.rates == whole.rates).all() and shared.steps == whole.steps and shared.horizon == whole.horizon
    assert isinstance(shared, Forecast) and shared.partitions == whole.partitions


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 7.25]), st.floats(0.1, 9.0)), min_size=1, max_size=60))
def test_quantiles_are_those_of_all_records_in_order(pairs: list[tuple[float, float]]) -> None:
    values, weights = np.array([v for v, _ in pairs]), np.array([w for _, w in pairs])
    order = np.argsort(values, kind="stable")
    covered = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(covered, np.array((0.5, 0.99)) * covered[-1]), values.size - 1)
    assert weighted_quantiles(values, weights, (0.5, 0.99)) == tuple(values[order][at].tolist())


@given(seed=st.integers(0, 99), members=st.integers(1, 6))
def test_members_share_their_capacity_by_work(seed: int, members: int) -> None:
    rng = np.random.default_rng(seed)
    queues, owner = FluidQueues(8), rng.integers(-1, members, 8)
    work, capacity = np.where(rng.random(8) < 0.3, 0.0, rng.gamma(2.0, 50.0, 8)), rng.gamma(2.0, 20.0, members)
    queues.pass_slot(15.0, work, capacity, owner)
    for member in range(members):
        own = owner == member
        expected = np.zeros(8)
        if work[own].sum() > 0:
            expected[own] = np.minimum(work[own], work[own] * capacity[member] / work[own].sum() * 15.0)
        assert np.allclose(queues.served[own], expected[own])
    assert (queues.served[owner < 0] == 0).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 4))
def test_a_request_covers_what_lies_ahead(needs: list[int], ahead: int) -> None:
    need, cells = np.array(needs), np.arange(len(needs))
    covered = np.minimum(cells + ahead, len(needs) - 1)
    assert highest_of(need, reaches(covered)).tolist() == [max(needs[k : c + 1]) for k, c in enumerate(covered)]


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 99), capacity=st.sampled_from([25.0, 60.0, 400.0]))
def test_a_run_that_explains_nothing_decides_the_same(seed: int, capacity: float) -> None:
    rng = np.random.default_rng(seed)
    rate = 9000 * (1.2 + np.sin(np.arange(400) / 60))
    trace = spread(ArrivalTrace(T0, 60, rng.poisson(rate)[None].astype(float)), zipf_shares(8, 1.0, seed))
    world = World(trace, T0 + timedelta(minutes=60), T0 + timedelta(minutes=300), capacity)
    forecast = np.repeat((rng.gamma(50.0, 3.0, (240, 72, 1))), 3, axis=2) * np.array([1.0, 1.2, 1.4])
    batch = ForecastBatch(60, 300, LEVELS, forecast.astype(np.float32))
    said: list[str] = []
    told = run_headway(world, batch, Knobs(), on_tick=lambda group, made: said.extend(made.reasons))
    quiet = run_headway(world, batch, Knobs())
    assert said and told.changes == quiet.changes
    assert told.figures() == quiet.figures() and (told.late_per_hour == quiet.late_per_hour).all()
